"""What a terminal would obey, hide or reorder is made visible; all else stays."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.safe_text import visible

SHOWN_ANYWAY = {
    *range(0x600, 0x606),
    *(0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD),
}
"""Format characters of Arabic, Syriac and Kaithi that are drawn."""


def test_every_control_and_format_character_is_made_visible() -> None:
    unsafe = ("Cc", "Cf", "Cs", "Zl", "Zp")
    kept = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in unsafe and visible(chr(code)) == chr(code)
    ]
    assert set(kept) == {0x9, 0xA, *SHOWN_ANYWAY}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", "␛[31mred␇"),
        ("a\r\nb\0\x7f", "a␍\nb␀␡"),
        ("if x:\u202e } ⁦", "if x:⟨RLO⟩ } ⟨LRI⟩"),
        ("pass\u200bword", "pass⟨ZWSP⟩word"),
        ("\x9b2J", "⟨U+009B⟩2J"),
        ("\ud800", "⟨U+D800⟩"),
        ("a\U000e0041", "a⟨U+E0041⟩"),
        ("\ufeffx", "⟨BOM⟩x"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f⟨U+FE0F⟩"),
        ("\ufe0f", "⟨U+FE0F⟩"),
        ("ㅤ", "⟨U+3164⟩"),
    ],
)
def test_it_names_what_it_shows(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text", ["plain\ttext\n", "[/x] [bold]no markup[/]", "日本語 héllo", "שלום العربية", "❤️ 👍🏽"]
)
def test_ordinary_text_stays(text: str) -> None:
    assert visible(text) == text


@given(st.text(st.characters()))
def test_the_result_is_safe_and_stays_so(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert shown.count("\n") == text.count("\n")
    assert len(shown) >= len(text)
    assert len(shown.splitlines()) == len(shown.removesuffix("\n").split("\n")) * bool(shown)
    shown.encode("utf-8")
