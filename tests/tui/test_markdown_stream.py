"""Markdown that grows: the same rows however it is cut, and work that does not grow with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tui.answers import DOCUMENT
from tui.markdown_rows import Row, block_rows, parse
from tui.markdown_stream import LIMIT, Fence, MarkdownStream, Prose
from tui.row_layout import breaks, height_of, lines_of, source_column
from tui.safe_text import visible

LINES = (
    "# h\n", "para\n", "word ", "\n", "\n\n", "- a\n", "- b\n", "  - c\n", "1. x\n", "2. y\n",
    "3) z\n", "10. ten\n", "* s\n", "+ t\n", "-\n", "1.\n", "```py\n", "```\n", "~~~\n", "````\n",
    "   ```\n", "  text\n", "   cont\n", "    code\n", "> q\n", ">\n", "| a | b |\n",
    "|---|---:|\n", "| 1 | `2` |\n", "x | y\n", "---\n", "===\n", "***\n", "*em*", "**", "`",
    "[a](b)", "![i](s)", "<div>\n", "</div>\n", "[r]: http://x\n", "日本 ", "\r\n", "\x1b[31m",
    "&amp;", "\\\n", "!",
)  # fmt: skip
documents = st.lists(st.sampled_from(LINES), max_size=30).map("".join)
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def plain(row: Row) -> Any:
    columns = None if row.columns is None else tuple(row.columns.widths)
    cells = tuple(cell.plain for cell in row.cells)
    spans = tuple(row.body.spans)
    return row.first, row.rest, row.body.plain, spans, row.fold, row.fill, columns, cells


def state(stream: MarkdownStream) -> list[Any]:
    found: list[Any] = []
    for segment in stream.segments:
        if isinstance(segment, Fence):
            code = "".join(piece.text + "\n" * piece.ends for piece in segment.pieces)
            found.append(("fence", segment.info, segment.line, code, segment.closed))
            assert segment.partial is None
        else:
            found.append([plain(row) for row in segment.rows])
            assert not segment.tail
    return found


def at_once(text: str, limit: int = LIMIT) -> MarkdownStream:
    stream = MarkdownStream(limit)
    stream.feed(text)
    stream.close()
    return stream


def in_pieces(text: str, sizes: list[int], limit: int = LIMIT) -> MarkdownStream:
    stream = MarkdownStream(limit)
    at, turn = 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        stream.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    stream.close()
    return stream


def read_whole(text: str) -> list[Any]:
    """What one parse of the whole text gives, as `state` tells it."""
    text = visible(text.replace("\r\n", "\n").removesuffix("\n") + "\n")
    found: list[Any] = []
    prose: list[Any] = []
    for node in [*parse(text), None]:
        if node is not None and node.type != "fence":
            prose.append(node)
            continue
        if rows := block_rows(prose):
            found.append([plain(row) for row in rows])
        prose = []
        if node is not None and node.map is not None:
            found.append(("fence", node.info, node.map[0] + 1, node.content.rstrip()))
    return found


@settings(max_examples=150, deadline=None)
@given(documents, cuts)
@example(DOCUMENT, [1])
@example(DOCUMENT, [7, 3])
@example("| a |\n|---|\n| x |\n| y |\n| **z** |\n", [1])
def test_any_cut_gives_the_rows_of_one_parse(text: str, sizes: list[int]) -> None:
    streamed = state(in_pieces(text, sizes))
    assert streamed == state(at_once(text))
    told = [
        (*each[:3], visible(each[3]).rstrip()) if isinstance(each, tuple) else each
        for each in streamed
    ]
    assert told == read_whole(text)


@settings(max_examples=150, deadline=None)
@given(documents, cuts, st.sampled_from([1, 5, 10, 30]))
def test_any_cut_gives_the_same_where_blocks_are_too_long(
    text: str, sizes: list[int], limit: int
) -> None:
    assert state(in_pieces(text, sizes, limit)) == state(at_once(text, limit))


LONG = {
    "fence": "```python\n" + "def f(x): return x + 1\n" * 3000 + "```\n",
    "no language": "```\n" + "some text in a fence\n" * 3000 + "```\n",
    "list": "- item with **bold** and `code`\n" * 3000,
    "numbers": "1. item with **bold** and `code`\n" * 3000,
    "nested list": "- top\n" + "  - item with `code`\n" * 3000,
    "table": "| a | b |\n|---|---|\n" + "| **x** | some text |\n" * 3000,
    "nested fence": "1. do:\n   ```python\n"
    + "   def f(x): return x\n" * 3000
    + "   ```\n2. then\n",
    "paragraph": "a line of plain text\n" * 3000,
    "one line": "word and more " * 3000,
    "quote": "> a line of plain text\n" * 3000,
    "paragraphs": "A paragraph of *text*.\n\n" * 3000,
}


@pytest.mark.parametrize("name", LONG)
def test_an_update_costs_the_same_at_the_end_as_at_the_beginning(name: str) -> None:
    text = LONG[name]
    stream = MarkdownStream()
    costs: list[int] = []
    sizes: list[int] = []
    for start in range(0, len(text), 600):
        before = stream.parsed
        stream.feed(text[start : start + 600])
        costs.append(stream.parsed - before)
        sizes.append(sum(len(segment.tail) for segment in prose_of(stream)))
    stream.close()
    assert max(costs) <= 12 * LIMIT
    assert sum(costs[-20:]) <= 1.5 * max(sum(costs[at : at + 20]) for at in range(0, 60, 20)) + 600
    assert max(sizes) <= 400
    assert at_once(text).parsed <= 2.5 * len(text) + 10 * LIMIT


def prose_of(stream: MarkdownStream) -> list[Prose]:
    return [segment for segment in stream.segments if isinstance(segment, Prose)]


def test_a_long_list_keeps_its_numbers() -> None:
    rows = prose_of(at_once(LONG["numbers"]))[0].rows
    assert [row.first for row in rows] == [f"{number}. " for number in range(1, 3001)]


def test_a_fence_in_a_list_is_code_to_its_end() -> None:
    (prose,) = prose_of(at_once(LONG["nested fence"] + "\n```\nlast\n```\n"))
    assert [row.fold for row in prose.rows] == [False, *[True] * 3000, False]
    assert [row.first for row in prose.rows] == ["1. ", *["   "] * 3000, "2. "]


def test_columns_of_a_long_table_are_shared() -> None:
    text = "| a | b |\n|---|---|\n" + "| x | y |\n" * 500 + "| wide cell | y |\n"
    rows = prose_of(at_once(text))[0].rows
    assert {id(row.columns) for row in rows} == {id(rows[0].columns)}
    assert [line.text.plain for line in lines_of(rows[2], 40)] == ["x         │ y"]


def test_nothing_that_was_written_is_swallowed() -> None:
    text = "<div>\n<b>x</b>\n\n[r]: http://secret\n\n<!-- note -->\n\n[a](http://b.c) ![i](j)\n"
    shown = "\n".join(row.body.plain for row in prose_of(at_once(text))[0].rows)
    for part in ("<div> <b>x</b>", "[r]: http://secret", "<!-- note -->", "a (http://b.c)", "(j)"):
        assert part in shown


@given(st.text("a b日\t👍-", max_size=80), st.integers(4, 30), st.booleans())
def test_lines_put_together_are_the_row(text: str, width: int, fold: bool) -> None:
    from textual.content import Content

    row = Row(body=Content(text), first="• ", rest="  ", fold=fold)
    lines = lines_of(row, width)
    assert "".join(line.text.plain for line in lines) == text
    assert len(lines) == height_of(row, width)
    assert [line.start for line in lines] == [
        0,
        *breaks(text, max(8, width - 2) if width > 8 else width, fold=fold),
    ]


@pytest.mark.parametrize(
    ("raw", "column", "place"),
    [("a\tb", 0, 0), ("a\tb", 4, 2), ("\x1b[m", 1, 1), ("\u202ex", 5, 1), ("ab", 9, 2)],
)
def test_a_column_is_found_in_the_source(raw: str, column: int, place: int) -> None:
    assert source_column(raw, column) == place
