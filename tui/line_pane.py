"""A pane of rows: any number of lines for the price of those on the screen.

Owns the breaking of rows at the pane's width, painting and the selection of text. A row is
measured once when it comes and once when the width changes, and turned into styled text only while
it is visible. Knows rows, not markdown; never scrolls itself, its container does.

Invariant: the selected text is what the rows say is their source, never what was added to show it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from tui.markdown_rows import Row
from tui.row_layout import Line, aligned, copied, height_of, lines_of


class LinePane(Widget):
    """Rows from top to bottom, as high as it needs to be."""

    DEFAULT_CSS = """
    LinePane {
        width: 1fr;
        height: auto;
        & > .line-pane--prefix { color: $text-primary; }
        & > .line-pane--code { background: $foreground 6%; }
        & > .line-pane--fill { color: $foreground 40%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line-pane--prefix",
        "line-pane--code",
        "line-pane--fill",
    }

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.rows: list[Row] = []
        self.measured = 0
        """Characters of rows that were measured so far."""
        self._settled = 0
        """Rows that `set_tail` does not replace."""
        self._starts: list[int] = []
        """First line of each row."""
        self._lines = 0
        self._width = 0
        self._fitting: dict[int, Row] = {}
        """A row of each table whose cells stand in columns at this width."""
        self._broken: tuple[int, list[Line]] = (-1, [])

    def extend(self, rows: Sequence[Row], tail: Sequence[Row] = ()) -> None:
        """Add rows for good, and in place of the earlier tail another one."""
        if not (rows or tail or len(self.rows) > self._settled):
            return
        del self.rows[self._settled :]
        if len(self._starts) > self._settled:
            self._lines = self._starts[self._settled]
            del self._starts[self._settled :]
        self._settled += len(rows)
        self.rows += [*rows, *tail]
        self._measure()
        self.refresh(layout=True)

    def clear(self) -> None:
        """Forget all rows."""
        self.rows = []
        self._settled = 0
        self._measure_again()
        self.refresh(layout=True)

    def restyle(self, first: int, rows: Sequence[Row]) -> None:
        """Put rows of the same text but other styles in place of those from `first` on."""
        self.rows[first : first + len(rows)] = rows
        self._broken = (-1, [])
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The number of lines at this width."""
        if width != self._width:
            self._width = width
            self._measure_again()
        return self._lines

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """As wide as there is room."""
        return container.width

    def _measure_again(self) -> None:
        self._starts = []
        self._lines = 0
        self._fitting = {}
        self._measure()

    def _measure(self) -> None:
        """Give the rows that came last their place."""
        self._broken = (-1, [])
        if not self._width:
            return
        for row in self.rows[len(self._starts) :]:
            self._starts.append(self._lines)
            self._lines += height_of(row, self._width)
            self.measured += len(row.body)
            if row.columns is not None and row.cells and aligned(row, self._width):
                self._fitting[id(row.columns)] = row
        if any(not aligned(row, self._width) for row in self._fitting.values()):
            # A table outgrew the pane: its rows are broken into lines from now on.
            self._measure_again()

    def render_line(self, y: int) -> Strip:
        """One line, styled, with the places of its characters for the selection."""
        base = self.visual_style
        if not 0 <= y < self._lines or self.size.width != self._width:
            return Strip.blank(self.size.width, base.rich_style)
        index = bisect_right(self._starts, y) - 1
        if self._broken[0] != index:
            self._broken = (index, lines_of(self.rows[index], self._width))
        line = self._broken[1][min(y - self._starts[index], len(self._broken[1]) - 1)]
        row = self.rows[index]
        prefix_style = base + self._part("prefix")
        style = base
        if row.fold:
            style += self._part("code")
        if row.fill:
            style += self._part("fill")
        text = line.text
        if (span := self._selected(index)) is not None:
            start, end = (max(0, place - line.start) for place in span)
            if start < min(end, len(text)):
                text = text.stylize(self._selection_style(), start, min(end, len(text)))
        parts = [
            Segment(part, part_style.rich_style)
            for part, part_style in text.render(style, end="", parse_style=self._resolved)
        ]
        strip = Strip(parts or [Segment(" ", style.rich_style)])
        if not row.silent:
            strip = strip.apply_offsets(line.start, index)
        if line.prefix:
            strip = Strip.join([Strip([Segment(line.prefix, prefix_style.rich_style)]), strip])
        return strip.adjust_cell_length(self._width, style.rich_style)

    def _resolved(self, style: Style | str) -> Style:
        return style if isinstance(style, Style) else Style.parse(style)

    def _part(self, name: str) -> Style:
        return self.get_visual_style(f"line-pane--{name}", partial=True)

    def _selection_style(self) -> Style:
        return Style.from_styles(self.screen.get_component_styles("screen--selection"))

    def _selected(self, index: int) -> tuple[int, int] | None:
        selection = self.text_selection
        if selection is None or (span := selection.get_span(index)) is None:
            return None
        if self.rows[index].silent:
            return None
        start, end = span
        return start, len(self.rows[index].body) + self._width if end == -1 else end

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected rows as they stand in their source."""
        first = 0 if selection.start is None else selection.start.y
        last = len(self.rows) - 1 if selection.end is None else selection.end.y
        parts: list[str] = []
        for index in range(max(0, first), min(last, len(self.rows) - 1) + 1):
            row = self.rows[index]
            span = selection.get_span(index)
            if span is None or row.silent:
                continue
            start, end = span
            if parts and not row.glued:
                parts.append("\n")
            parts.append(copied(row, self._width, start, None if end == -1 else end))
        return "".join(parts), "\n"
