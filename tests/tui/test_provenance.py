"""The record of an answer's tokens: exact whatever the deltas, small, and never in the way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import TextDelta, TokenKind
from tests.tui.answers import DOCUMENT, deltas
from tui.provenance import LOOKS, Provenance, Span
from tui.provenance_view import MarkedRows, legend

kinds = st.sampled_from(("accepted", "recovered", "bonus", "plain"))
tokens = st.lists(st.tuples(kinds, st.text("ab\n\t日\x1b", max_size=5)), max_size=40)


def recorded(*parts: TextDelta) -> Provenance:
    record = Provenance()
    for part in parts:
        record.add(part)
    return record


def delta(*told: tuple[TokenKind, str], beyond: str = "") -> TextDelta:
    return TextDelta(
        text="".join(text for _, text in told) + beyond,
        kinds=tuple(kind for kind, _ in told),
        spans=tuple(len(text) for _, text in told),
    )


@given(tokens, st.integers(1, 7))
def test_spans_and_counts_are_those_of_the_tokens(
    told: list[tuple[TokenKind, str]], size: int
) -> None:
    record = recorded(*(delta(*told[at : at + size]) for at in range(0, len(told), size)))
    expected: list[Span] = []
    start = 0
    for kind, text in told:
        if text:
            expected.append(Span(start=start, end=start + len(text), kind=kind))
        start += len(text)
    assert list(record.spans()) == expected
    assert record.counts == Counter(kind for kind, _ in told)
    assert record.length == start


@given(tokens, st.integers(0, 200))
def test_bytes_give_the_record_back(told: list[tuple[TokenKind, str]], beyond: int) -> None:
    record = recorded(delta(*told, beyond="x" * beyond))
    again = Provenance.decode(record.encode())
    assert list(again.spans()) == list(record.spans())
    assert (again.counts, again.length) == (record.counts, record.length)
    for each in (record, again):
        each.add(delta(("bonus", "more"), beyond="!"))
    assert again.encode() == record.encode()


def test_held_back_text_belongs_to_the_token_told_last() -> None:
    record = recorded(
        delta(("accepted", "a"), ("plain", ""), beyond="bc"),
        TextDelta(text="d", kinds=(), spans=()),
    )
    assert list(record.spans()) == [
        Span(start=0, end=1, kind="accepted"),
        Span(start=1, end=4, kind="plain"),
    ]
    assert record.counts == Counter(accepted=1, plain=1)


def test_text_of_no_token_has_no_kind() -> None:
    record = recorded(TextDelta(text="ab", kinds=(), spans=()), delta(("bonus", "c")))
    record.pad(2)
    assert [span.kind for span in record.spans()] == [None, "bonus", None]
    assert Provenance.decode(record.encode()).counts == Counter(bonus=1)


def test_a_token_takes_about_a_byte() -> None:
    record = recorded(*deltas(DOCUMENT * 20))
    assert len(record.encode()) <= 1.01 * record.counts.total() + 1


@given(st.binary(max_size=60))
def test_damaged_bytes_never_keep_an_answer_from_being_shown(data: bytes) -> None:
    list(Provenance.decode(data).spans())
    list(Provenance.decode(b"\x01" + data).spans())


def test_reading_goes_on_where_nothing_more_can_change() -> None:
    record = recorded(delta(("accepted", "abc"), ("plain", "d")))
    mark = record.mark
    assert mark[0] == 3
    record.add(delta(("bonus", "ef"), beyond="g"))
    assert list(record.spans(*mark)) == [
        Span(start=3, end=4, kind="plain"),
        Span(start=4, end=7, kind="bonus"),
    ]


@given(tokens, st.integers(1, 9))
def test_rows_are_the_same_however_the_text_came(
    told: list[tuple[TokenKind, str]], size: int
) -> None:
    text = "".join(part for _, part in told)
    whole = recorded(delta(*told))
    at_once, _ = MarkedRows().more(text, whole, over=True)
    record, marks, rows = Provenance(), MarkedRows(), []
    for at in range(0, len(told), size):
        record.add(delta(*told[at : at + size]))
        settled, _ = marks.more(text[: record.length], record, over=False)
        rows += settled
    rows += marks.more(text, record, over=True)[0]
    assert [(row.raw, row.body.plain, row.body.spans) for row in rows] == [
        (row.raw, row.body.plain, row.body.spans) for row in at_once
    ]
    copied = "".join(("" if row.glued else "\n") + (row.raw or "") for row in rows)
    assert copied.removeprefix("\n") == text.removesuffix("\n")


def test_each_update_reads_only_what_it_brought() -> None:
    record, marks = Provenance(), MarkedRows()
    source, most = "", 0
    for part in deltas("word " * 4000):
        record.add(part)
        source += part.text
        before = marks.read
        marks.more(source, record, over=False)
        most = max(most, marks.read - before)
    assert most <= 3 * 12


@pytest.mark.parametrize("kind", LOOKS)
def test_kinds_differ_without_colour(kind: TokenKind) -> None:
    attributes = {look.style.split()[0] for look in LOOKS.values()}
    assert attributes == {"underline", "reverse", "bold", "dim"}
    record = recorded(delta((kind, "x"), (kind, "y"), ("plain", "z")))
    share = legend(record).plain
    assert f"{LOOKS[kind].word} {record.counts[kind]} (" in share
