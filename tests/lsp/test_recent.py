"""Answers that are found again: only where they fit, and only what is left of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lsp.document import Snapshot
from lsp.recent import KEY_AFTER, KEY_BEFORE, Fill, Recent, spot_of

URI = "file:///a.py"
TEXTS = st.text("ab()\n ", max_size=12)


def at(text: str, uri: str = URI) -> Snapshot:
    before, _, after = text.partition("▮")
    return Snapshot(
        uri=uri, version=1, language="python", path=None, text=before + after, offset=len(before)
    )


def texts(recent: Recent, text: str) -> list[str] | None:
    known = recent.recall(at(text))
    return None if known is None else [fill.text for fill in known.fills]


def test_an_answer_is_typed_through_and_then_spent() -> None:
    recent = Recent()
    recent.keep(at("x = ▮\ny"), [Fill(text="foo(1)")], "model")
    assert texts(recent, "x = ▮\ny") == ["foo(1)"]
    assert texts(recent, "x = fo▮\ny") == ["o(1)"]
    assert texts(recent, "x = f▮\ny") == ["oo(1)"]
    assert texts(recent, "x = foo(1)▮\ny") is None


def test_another_text_on_either_side_is_another_place() -> None:
    recent = Recent()
    recent.keep(at("x = ▮\ny"), [Fill(text="foo(1)")], "model")
    assert texts(recent, "z = ▮\ny") is None
    assert texts(recent, "x = ▮\nz") is None
    assert texts(recent, "x = ▮") is None
    assert texts(recent, "x = g▮\ny") is None
    assert recent.recall(at("x = ▮\ny", "file:///b.py")) is None


def test_other_cells_before_a_cell_are_another_place() -> None:
    recent, cell = Recent(), at("area = ▮")
    recent.keep(replace(cell, before="radius = 3\n"), [Fill(text="radius ** 2")], "model")
    assert recent.recall(replace(cell, before="radius = 3\n")) is not None
    assert recent.recall(cell) is None


def test_nothing_is_remembered_as_nothing_just_there() -> None:
    recent = Recent()
    recent.keep(at("done()▮\n"), [], "model")
    assert texts(recent, "done()▮\n") == []
    assert texts(recent, "done().▮\n") is None


def test_alternatives_stay_as_long_as_they_fit() -> None:
    recent = Recent()
    fills = [Fill(text="return a"), Fill(text="return b"), Fill(text="raise")]
    recent.keep(at("  ▮"), fills, "model", all_known=True)
    assert texts(recent, "  re▮") == ["turn a", "turn b"]
    assert texts(recent, "  ra▮") == ["ise"]
    known = recent.recall(at("  ▮"))
    assert known is not None
    assert known.all_known
    typed = recent.recall(at("  r▮"))
    assert typed is not None
    assert not typed.all_known


def test_a_bracket_that_the_editor_adds_is_told() -> None:
    recent = Recent()
    recent.keep(at("x = ▮\n"), [Fill(text="f(a)")], "model")
    known = recent.recall(at("x = f(▮)\n"))
    assert known is not None
    assert (known.added, known.fills) == (")", (Fill(text="a)"),))


def test_a_bracket_that_was_to_be_replaced_may_be_typed_over() -> None:
    recent = Recent()
    recent.keep(at("f(▮)\n"), [Fill(text="a) + 1", covers=1)], "model")
    known = recent.recall(at("f(a▮)\n"))
    assert known is not None
    assert known.fills == (Fill(text=") + 1", covers=1),)
    known = recent.recall(at("f(a)▮\n"))
    assert known is not None
    assert known.fills == (Fill(text=" + 1", covers=0),)


def test_the_newest_answer_for_a_place_holds_and_old_ones_go() -> None:
    recent = Recent(most=3)
    for number in range(9):
        recent.keep(at(f"{number} = ▮"), [Fill(text="a")], "model")
        recent.keep(at("same ▮"), [Fill(text=str(number))], "model")
    assert len(recent) == 3
    assert texts(recent, "same ▮") == ["8"]
    assert texts(recent, "1 = ▮") is None
    recent.forget(URI)
    assert len(recent) == 0


def test_only_so_much_of_a_large_document_is_kept_and_compared() -> None:
    recent = Recent()
    long = "x" * 100_000
    recent.keep(at(f"{long}▮{long}"), [Fill(text="abc")], "model")
    assert texts(recent, f"{long}a▮{long}") == ["bc"]
    assert texts(recent, f"{long}a▮){long}") == ["bc"]
    assert texts(recent, f"{long[:-1]}ya▮{long}") is None
    spot = spot_of(at(f"{long}▮{long}"))
    assert (len(spot.before), len(spot.after)) == (KEY_BEFORE, KEY_AFTER)


def test_what_was_half_written_is_gone_on_with() -> None:
    recent = Recent()
    recent.keep_unfinished(at("def ▮\r\n"), "f():\n    re")
    assert recent.unfinished(at("def ▮\r\n")) == "f():\n    re"
    assert recent.unfinished(at("def f():\r\n▮\r\n")) == "    re"
    assert recent.unfinished(at("def g▮\r\n")) == ""
    assert recent.unfinished(at("def f▮x\r\n")) == ""


@given(before=TEXTS, after=TEXTS, fill=TEXTS, covers=st.integers(0, 3), now=TEXTS, end=TEXTS)
def test_what_is_recalled_goes_on_from_what_is_typed(
    before: str, after: str, fill: str, covers: int, now: str, end: str
) -> None:
    recent = Recent()
    covers = min(covers, len(after))
    recent.keep(at(f"{before}▮{after}"), [Fill(text=fill, covers=covers)], "model")
    known = recent.recall(at(f"{now}▮{end}"))
    if known is None:
        return
    (found,) = known.fills
    assert now + found.text == before + fill
    assert end == known.added + after[covers - found.covers :]
    assert set(known.added) <= set(")]}>\"'`")


@given(before=TEXTS, after=TEXTS, fill=TEXTS, count=st.integers(0, 12))
def test_typing_an_answer_never_loses_it(before: str, after: str, fill: str, count: int) -> None:
    recent = Recent()
    recent.keep(at(f"{before}▮{after}"), [Fill(text=fill)], "model")
    typed, rest = fill[:count], fill[count:]
    known = recent.recall(at(f"{before}{typed}▮{after}"))
    assert (known is not None) == bool(rest.strip())
