"""A unified diff on the screen: line numbers, a glyph and a colour for each kind of line, wrapped.

Owns how a row of a diff is drawn at a width. Only the rows in sight are drawn, so a diff of many
thousand lines costs no more than a short one. Knows no file and no key but those that scroll.

Invariant: everything the diff holds can be seen: long lines wrap, controls and tabs and what stands
at a changed line's end are made visible, and no meaning is carried by colour alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.diff_text import DiffRow, Sign
from tui.safe_text import visible

_GLYPHS: dict[Sign, str] = {"+": "+", "-": "−", " ": " ", "@": "⋯", "\\": "!"}
_CLASSES: dict[Sign, str] = {
    "+": "diff-view--added",
    "-": "diff-view--removed",
    " ": "diff-view--kept",
    "@": "diff-view--hunk",
    "\\": "diff-view--remark",
}
_GOES_ON = "↪"
_NOTHING = DiffRow(sign=" ", text="")
_TAB_STOP = 4
_BOTH_NUMBERS_FROM = 56
"""Narrower views show one column of line numbers instead of two."""
_LAST_SPACES = re.compile(" +$")


def shown(row: DiffRow) -> str:
    """A row's text with everything in it visible: tabs as →, last spaces of a change as ·."""
    text = visible(row.text)
    if row.sign in ("+", "-"):
        text = _LAST_SPACES.sub(lambda spaces: "·" * len(spaces.group()), text)
    while (at := text.find("\t")) >= 0:
        filling = _TAB_STOP - cell_len(text[:at]) % _TAB_STOP
        text = f"{text[:at]}→{' ' * (filling - 1)}{text[at + 1 :]}"
    return text


class DiffView(ScrollView, can_focus=True):
    """Scrolls through the rows of a diff."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*_CLASSES.values(), "diff-view--number"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("space", "page_down", show=False),
    ]
    DEFAULT_CSS = """
    DiffView {
        overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1;
        background: $surface; color: $foreground;
        & > .diff-view--added { background: $success 20%; color: $foreground; }
        & > .diff-view--removed { background: $error 20%; color: $foreground; }
        & > .diff-view--hunk { color: $text-muted; text-style: italic; }
        & > .diff-view--remark { color: $text-warning; text-style: italic; }
        & > .diff-view--number { color: $text-muted; }
    }
    """

    def __init__(self, rows: Sequence[DiffRow]) -> None:
        super().__init__()
        self._rows = rows
        self._lines: list[tuple[DiffRow, str, bool]] = []
        largest = max((max(row.old or 0, row.new or 0) for row in rows), default=0)
        self._digits = len(str(largest))
        self._width = 0

    def on_resize(self, event: events.Resize) -> None:
        """Wrap anew where the width has changed."""
        width = self.scrollable_content_region.width
        if width == self._width:
            return
        self._width = width
        room = max(1, width - len(self._numbers(_NOTHING)) - len(f" {_GOES_ON} "))
        self._lines = [
            (row, part, number == 0)
            for row in self._rows
            for number, part in enumerate(chop_cells(shown(row), room) or [""])
        ]
        self.virtual_size = Size(width, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the view, `y` cells below its top."""
        at = self.scroll_offset.y + y
        if at >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        row, text, first = self._lines[at]
        style = self.get_component_rich_style(_CLASSES[row.sign])
        number = style + Style(color=self.get_component_rich_style("diff-view--number").color)
        strip = Strip(
            [
                Segment(self._numbers(row if first else _NOTHING), number),
                Segment(f" {_GLYPHS[row.sign] if first else _GOES_ON} ", style),
                Segment(text, style),
            ]
        )
        return strip.adjust_cell_length(self.size.width, style)

    def _numbers(self, row: DiffRow) -> str:
        """Line numbers of both versions, or of the one that has the row where room is short."""
        numbers = [row.old, row.new]
        if self._width < _BOTH_NUMBERS_FROM:
            numbers = [row.new if row.sign == "+" else row.old]
        return " ".join(f"{number or '':>{self._digits}}" for number in numbers)
