"""The details panel: where the speculation's time and tokens go.

Owns the panel's sections and their layout: acceptance by position, time of the last rounds, the
arbiter's last decisions, totals, and what was counted in editors. The numbers are those of
`MeterState` and `EditorStatistics`; it must not know events, the engine or a clock, and draws when
it is shown something new.

Invariant: a section without data says so in one line, no text is cut, and what a column or a row
stands for is said above it.
"""

from __future__ import annotations

from itertools import zip_longest

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tui import detail_tables
from tui.editor_statistics import EditorStatistics
from tui.meter_pieces import Line, cells, content
from tui.meter_state import MeterState
from tui.round_chart import chart

SIDE_BY_SIDE_FROM = 104
"""Columns from which the sections stand in two columns."""
_GUTTER = 4
_INDENT = 11


def details_lines(
    state: MeterState, width: int, editor: EditorStatistics | None = None
) -> list[Content]:
    """The panel's lines, none wider than `width` columns; what is too long goes on below."""
    if width < SIDE_BY_SIDE_FROM:
        return _stacked(
            [
                detail_tables.acceptance(state, width),
                chart(state.rounds, width),
                detail_tables.decisions(state, width),
                detail_tables.totals(state, width),
                detail_tables.engine(state),
                detail_tables.editor(editor),
            ],
            width,
        )
    left = (width - _GUTTER) * 9 // 20
    right = width - _GUTTER - left
    first = [detail_tables.acceptance(state, left), detail_tables.totals(state, left)]
    second = [
        chart(state.rounds, right),
        detail_tables.decisions(state, right),
        detail_tables.engine(state),
        detail_tables.editor(editor),
    ]
    return _beside(_stacked(first, left), _stacked(second, right), left + _GUTTER)


def _stacked(sections: list[list[Line]], width: int) -> list[Content]:
    """One under the other, an empty line between two."""
    lines: list[Content] = []
    for section in filter(None, sections):
        lines += [Content("")] if lines else []
        for line in section:
            lines += _wrapped(line, width)
    return lines


def _wrapped(line: Line, width: int) -> list[Content]:
    """One line or as many as it takes, those after the first indented."""
    if cells(line) <= width:
        return [content(line)]
    first, *others = content(line).wrap(width)
    rest = Content(" ").join(other.rstrip() for other in others)
    indent = min(_INDENT, width // 4)
    return [first, *(part.pad_left(indent) for part in rest.wrap(width - indent))]


def _beside(first: list[Content], second: list[Content], column: int) -> list[Content]:
    empty = Content("")
    return [
        Content.assemble(start, " " * (column - start.cell_length), end).rstrip()
        for start, end in zip_longest(first, second, fillvalue=empty)
    ]


class _Sheet(Widget):
    """All of the panel's lines, as high as they are many."""

    DEFAULT_CSS = "_Sheet { width: 1fr; height: auto; }"

    def __init__(self, state: MeterState) -> None:
        super().__init__()
        self.state = state
        self.editor: EditorStatistics | None = None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(details_lines(self.state, width, self.editor))

    def render(self) -> Content:
        lines = details_lines(self.state, self.content_size.width, self.editor)
        return Content("\n").join(lines)


class Details(VerticalScroll):
    """Draws `details_lines` of the state it was last shown, and scrolls them."""

    DEFAULT_CSS = """
    Details {
        height: auto;
        max-height: 60%;
        padding: 0 1;
        background: $surface;
        color: $foreground;
        border-top: solid $panel;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, state: MeterState | None = None) -> None:
        super().__init__()
        self._sheet = _Sheet(state or MeterState())

    def compose(self) -> ComposeResult:
        yield self._sheet

    def show(self, state: MeterState) -> None:
        """Draw another state; a hidden panel only remembers it."""
        if state != self._sheet.state:
            self._sheet.state = state
            self._draw()

    def show_editor(self, counted: EditorStatistics | None) -> None:
        """Draw what was counted of completions in editors as well."""
        if counted != self._sheet.editor:
            self._sheet.editor = counted
            self._draw()

    def _draw(self) -> None:
        if self.display:
            self._sheet.refresh(layout=True)
