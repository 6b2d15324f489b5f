"""Rows broken into the lines of a pane of some width, and characters found again in what is copied.

Owns where a row is broken (between words, in code anywhere), how the cells of a table stand and
what a selected part of a row is as clean text. Pure: numbers of cells in, lines out.

Invariant: the lines of a row, put together, are its text; nothing is cropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct
from rich.cells import cell_len, get_character_cell_size
from textual.content import Content

from tui.markdown_rows import TAB_CELLS, Row
from tui.safe_text import visible

_WORD = re.compile(r"\s*\S+\s?|\s+")
_LEAST_CELLS = 8
"""A prefix gives way rather than leave less than this for the text."""
_CLEAN = str.maketrans({"▌": ">", "•": "-", "◦": "-", "▪": "-"})


class Line(Struct, frozen=True, kw_only=True):
    """One line of a pane."""

    prefix: str
    text: Content
    start: int
    """Characters of the row's text that stand on earlier lines."""


def lines_of(row: Row, width: int) -> list[Line]:
    """The lines that a row takes in a pane of `width` cells."""
    room = room_of(row, width)
    cut = width - room
    if row.fill:
        cells = room if row.columns is None else min(room, max(1, row.columns.total))
        return [Line(prefix=row.first[:cut], text=Content(row.fill * cells), start=0)]
    text = text_of(row, width)
    starts = [0, *breaks(text.plain, room, fold=row.fold)]
    ends = [*starts[1:], len(text)]
    return [
        Line(
            prefix=(row.rest if number else row.first)[:cut],
            text=text[start:end] if len(starts) > 1 else text,
            start=start,
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def height_of(row: Row, width: int) -> int:
    """How many lines a row takes."""
    if row.fill:
        return 1
    room = room_of(row, width)
    if aligned(row, width):
        return 1
    return 1 + len(breaks(row.body.plain, room, fold=row.fold))


def room_of(row: Row, width: int) -> int:
    """Cells of a line that are left for the row's text."""
    prefix = max(cell_len(row.first), cell_len(row.rest)) if row.first or row.rest else 0
    return max(1, min(width, max(width - prefix, _LEAST_CELLS)))


def aligned(row: Row, width: int) -> bool:
    """Whether the row is one of a table that fits the width, with its cells in columns."""
    return bool(row.cells) and row.columns is not None and row.columns.total <= room_of(row, width)


def text_of(row: Row, width: int) -> Content:
    """The row's whole text as it is shown at this width."""
    if row.columns is None or not aligned(row, width):
        return row.body
    cells = []
    for index, (cell, width_of_all) in enumerate(zip(row.cells, row.columns.widths, strict=False)):
        space = width_of_all - cell.cell_length
        right = index < len(row.columns.right) and row.columns.right[index]
        cells.append(cell.pad_left(space) if right else cell.pad_right(space))
    return Content(" │ ").join(cells)


def breaks(text: str, room: int, *, fold: bool) -> list[int]:
    """The characters that begin a new line."""
    if len(text) <= room and (text.isascii() or cell_len(text) <= room):
        return []
    return list(_folds(text, 0, room, 0) if fold else _wraps(text, room))


def _wraps(text: str, room: int) -> Iterator[int]:
    used = 0
    for word in _WORD.finditer(text):
        cells, bare = cell_len(word[0]), cell_len(word[0].rstrip())
        if used + bare <= room:
            used += cells
            continue
        start = word.start()
        if used:
            yield start
        if bare <= room:
            used = cells
            continue
        last = start
        for last in _folds(word[0], start, room, 0):
            yield last
        used = cell_len(text[last : word.end()])


def _folds(text: str, start: int, room: int, used: int) -> Iterator[int]:
    for index, character in enumerate(text, start):
        cells = get_character_cell_size(character)
        if used and used + cells > room:
            yield index
            used = 0
        used += cells


def copied(row: Row, width: int, start: int, end: int | None) -> str:
    """The clean text of a row's characters; from the first one, with its bullet."""
    if row.fill:
        return "---"
    if row.raw is not None:
        last = None if end is None else source_column(row.raw, end)
        return row.raw[source_column(row.raw, start) : last]
    lead = row.first.translate(_CLEAN) if start == 0 else ""
    return lead + text_of(row, width).plain[start:end].rstrip()


def source_column(raw: str, column: int) -> int:
    """The character of a source line that is shown at a column of the line on the screen."""
    shown = 0
    for index, character in enumerate(raw):
        if shown >= column:
            return index
        shown += TAB_CELLS - shown % TAB_CELLS if character == "\t" else len(visible(character))
    return len(raw)
