"""A document's text and lines against a model that is too simple to be wrong."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp.document import Document, Edit, Position
from lsp.positions import (
    ENCODINGS,
    Change,
    ClientPosition,
    ClientRange,
    Encoding,
    apply_changes,
    chosen,
    client_position,
    offset_of,
    units,
)

ALPHABET = "ab\té\n\r\f\v\u0085\u2028\ufeff😀𝒳"
TEXTS = st.text(alphabet=ALPHABET, max_size=40)
SIZES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def naive_lines(text: str) -> list[str]:
    """The lines of a text with what ends them."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text) + (
        [""] if not text or text[-1] in "\r\n" else []
    )


def naive_offset(text: str, line: int, character: int, encoding: Encoding) -> int:
    """What a client means, found by counting units one code point after the other."""
    lines = naive_lines(text)
    if line >= len(lines):
        return len(text)
    codec, width = SIZES[encoding]
    offset = sum(len(one) for one in lines[:line])
    used = 0
    for point in lines[line].rstrip("\r\n"):
        used += len(point.encode(codec)) // width
        if used > character:
            break
        offset += 1
    return offset


def check(document: Document, text: str) -> None:
    assert document.text == text
    lines = naive_lines(text)
    assert document.lines() == [line.rstrip("\r\n") for line in lines]
    offset = 0
    for number, line in enumerate(lines):
        assert document.bounds(number) == (offset, offset + len(line.rstrip("\r\n")))
        for column in range(len(line.rstrip("\r\n")) + 1):
            place = Position(line=number, column=column)
            assert document.offset(place) == offset + column
            assert document.position(offset + column) == place
        offset += len(line)


@given(text=TEXTS, data=st.data())
def test_any_edits_leave_text_and_lines_in_agreement(text: str, data: st.DataObject) -> None:
    document = Document("file:///a.py", text)
    check(document, text)
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        new = data.draw(st.text(alphabet=ALPHABET, max_size=6))
        assert document.replace(start, end, new) == Edit(start=start, end=end, text=new)
        text = text[:start] + new + text[end:]
        check(document, text)


@given(
    text=TEXTS,
    encoding=st.sampled_from(ENCODINGS),
    wanted=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 9), st.integers(0, 30)),
        min_size=1,
        max_size=6,
    ),
    new=st.lists(st.text(alphabet=ALPHABET, max_size=5), min_size=6, max_size=6),
)
@settings(max_examples=200)
def test_a_message_s_changes_build_on_each_other(
    text: str, encoding: Encoding, wanted: list[tuple[int, int, int, int]], new: list[str]
) -> None:
    document = Document("file:///a.py", text)
    changes: list[Change] = []
    for (line, column, line2, column2), inserted in zip(wanted, new, strict=False):
        start = naive_offset(text, line, column, encoding)
        end = max(naive_offset(text, line2, column2, encoding), start)
        changes.append(
            Change(
                text=inserted,
                range=ClientRange(
                    start=ClientPosition(line=line, character=column),
                    end=ClientPosition(line=line2, character=column2),
                ),
            )
        )
        text = text[:start] + inserted + text[end:]
    apply_changes(document, changes, encoding)
    check(document, text)


@given(text=TEXTS, encoding=st.sampled_from(ENCODINGS), data=st.data())
def test_a_place_told_to_the_client_comes_back_the_same(
    text: str, encoding: Encoding, data: st.DataObject
) -> None:
    document = Document("file:///a.py", text)
    offset = data.draw(st.integers(0, len(text)))
    place = client_position(document, offset, encoding)
    splits = text[offset - 1 : offset + 1] == "\r\n" if offset else False
    assert offset_of(document, place, encoding) == offset - (1 if splits else 0)
    assert naive_offset(text, place.line, place.character, encoding) == offset - splits


def test_the_same_place_in_three_encodings() -> None:
    document = Document("file:///a.py", 'def f():\n    s = "😀é"; ')
    seen = {name: client_position(document, len(document.text), name) for name in ENCODINGS}
    assert {name: place.character for name, place in seen.items()} == {
        "utf-8": 18,
        "utf-16": 15,
        "utf-32": 14,
    }


@pytest.mark.parametrize(("encoding", "inside"), [("utf-8", 2), ("utf-16", 1)])
def test_a_place_within_a_character_counts_as_before_it(encoding: Encoding, inside: int) -> None:
    document = Document("file:///a.py", "😀x")
    assert offset_of(document, ClientPosition(line=0, character=inside), encoding) == 0


def test_a_carriage_return_and_a_newline_typed_apart_become_one_line_end() -> None:
    document = Document("file:///a.py", "a\rb")
    document.replace(2, 2, "\n")
    check(document, "a\r\nb")
    document.replace(2, 2, "x")
    check(document, "a\rx\nb")
    document.replace(1, 3, "")
    check(document, "a\nb")


def test_a_form_feed_or_a_line_separator_ends_no_line() -> None:
    document = Document("file:///a.py", "a\fb\u2028c\vd\x85e\x1cf")
    assert document.line_count == 1


def test_halves_of_a_pair_move_nothing_and_can_be_encoded() -> None:
    document = Document("file:///a.py", "x\ud83dy")
    document.replace(3, 3, "\ude00")
    assert document.text == "x\ufffdy\ufffd"
    for encoding in ENCODINGS:
        lone = "x\ud83dy\ude00".encode(SIZES[encoding][0], "surrogatepass")
        assert units(document.text, encoding) == len(lone) // SIZES[encoding][1]


def test_a_place_outside_the_text_counts_as_the_nearest_one() -> None:
    document = Document("file:///a.py", "ab\ncd")
    assert document.offset(Position(line=0, column=99)) == 2
    assert document.offset(Position(line=7, column=0)) == 5
    assert document.offset(Position(line=-1, column=3)) == 0
    assert document.position(99) == Position(line=1, column=2)
    whole = ClientRange(
        start=ClientPosition(line=0, character=0), end=ClientPosition(line=2**31, character=0)
    )
    apply_changes(document, [Change(text="z", range=whole)], "utf-16")
    assert document.text == "z"


def test_a_change_without_a_range_is_the_whole_text() -> None:
    document = Document("file:///a.py", "one\ntwo")
    assert apply_changes(document, [Change(text="three\r\n")], "utf-8") == (
        Edit(start=0, end=7, text="three\r\n"),
    )
    check(document, "three\r\n")


@pytest.mark.parametrize(
    ("text", "newline"),
    [("", "\n"), ("a", "\n"), ("a\n", "\n"), ("\r\nb\n", "\r\n"), ("a\rb", "\r"), ("\nx", "\n")],
)
def test_the_document_s_own_line_end(text: str, newline: str) -> None:
    assert Document("file:///a.py", text).newline == newline


def test_a_snapshot_stays_what_it_was() -> None:
    document = Document("file:///a.py", "ab", version=3, language="python")
    seen = document.snapshot(1)
    document.replace(0, 2, "xyz")
    assert (seen.text, seen.prefix, seen.suffix, seen.version) == ("ab", "a", "b", 3)


def test_the_client_s_first_known_encoding_is_chosen() -> None:
    assert chosen(["utf-32", "utf-8", "utf-16"]) == "utf-32"
    assert chosen(["utf-7", "utf-8"]) == "utf-8"
    assert chosen([]) == "utf-16"


def test_typing_into_a_large_file_does_not_read_it_anew() -> None:
    """A thousand keys in files of a megabyte, in a time in which a handful of whole scans fit."""
    many = Document("file:///a.py", ("x = 1  # é\n" * 100_000))
    one = Document("file:///b.json", "[" + "1, " * 350_000)
    for document in (many, one):
        middle = len(document.text) // 2
        begun = time.perf_counter()
        for step in range(1000):
            place = client_position(document, middle + step, "utf-16")
            at = ClientRange(start=place, end=place)
            apply_changes(document, [Change(text="k", range=at)], "utf-16")
        assert time.perf_counter() - begun < 5.0
    assert many.line_count == 100_001
