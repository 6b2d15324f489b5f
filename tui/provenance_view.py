"""An answer as plain text in which each token shows where it came from.

Owns the legend and the pane of marked text. The four kinds differ in underline, reverse, weight and
brightness, so that they can be told apart without colour. Must not know markdown: what is shown is
the answer's source.

Invariant: what is selected and copied is the source, without marks.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content, Span
from textual.widgets import Static

from engine.protocol import TokenKind
from tui.line_pane import LinePane
from tui.markdown_rows import TAB_CELLS, Row
from tui.provenance import LOOKS, Provenance
from tui.safe_text import visible

PIECE = 1500
"""Longest part of a line that is handled at once."""


class ProvenanceView(Vertical):
    """The legend above the marked text."""

    DEFAULT_CSS = """
    ProvenanceView { height: auto; }
    ProvenanceView > Static { height: auto; margin: 0 0 1 0; }
    ProvenanceView > LinePane { margin: 0 0 1 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.pane = LinePane()
        self._legend = Static(markup=False)
        self._marks = MarkedRows()

    def compose(self) -> ComposeResult:
        """The legend and the text."""
        yield self._legend
        yield self.pane

    def show(self, source: str, provenance: Provenance, *, over: bool) -> None:
        """Show what the answer has more than before."""
        self._legend.update(legend(provenance))
        self.pane.extend(*self._marks.more(source, provenance, over=over))

    def clear(self) -> None:
        """Forget what was shown: it was not the answer."""
        self._marks = MarkedRows()
        self.pane.clear()


def legend(provenance: Provenance) -> Content:
    """Each kind in its own style, with its number of tokens and their share."""
    total = sum(provenance.counts.values())
    parts: list[Content] = []
    for kind, look in LOOKS.items():
        count = provenance.counts[kind]
        share = f" {count} ({count / total:.0%})" if total else " 0"
        parts.append(Content.styled(look.word, look.style) + share)
    return Content("  ").join(parts)


class MarkedRows:
    """Rows of marked text, made once each."""

    def __init__(self) -> None:
        self._mark = (0, 0)
        self._row = _RowInMaking()
        self.read = 0
        """Characters turned into rows so far."""

    def more(
        self, source: str, provenance: Provenance, *, over: bool
    ) -> tuple[list[Row], list[Row]]:
        """Rows that are final since the last call, and those that may still change."""
        settled, end = self._mark, provenance.mark
        rows = self._row.take(source, provenance, settled, end[0])
        self._mark = end
        self.read += end[0] - settled[0]
        if over:
            rows += self._row.take(source, provenance, end, provenance.length)
            self._mark = (provenance.length, end[1])
            return rows + self._row.flush(), []
        ahead = self._row.copy()
        tail = ahead.take(source, provenance, end, provenance.length)
        self.read += provenance.length - end[0]
        return rows, tail + ahead.flush()


class _RowInMaking:
    """The last row of a text that may still grow."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._raw: list[str] = []
        self._spans: list[Span] = []
        self._cells = 0
        self._size = 0
        self._glued = False

    def copy(self) -> _RowInMaking:
        """The same, to be completed for the time being."""
        twin = _RowInMaking()
        twin._shown, twin._raw = [*self._shown], [*self._raw]
        twin._spans = [*self._spans]
        twin._cells, twin._size, twin._glued = self._cells, self._size, self._glued
        return twin

    def take(
        self, source: str, provenance: Provenance, mark: tuple[int, int], end: int
    ) -> list[Row]:
        """Add the text from `mark` to `end`; the rows that are complete by that."""
        rows: list[Row] = []
        for span in provenance.spans(*mark):
            if span.start >= end:
                break
            first, *others = source[span.start : span.end].split("\n")
            self._add(first, span.kind)
            for line in others:
                rows += self._complete(glued=False)
                self._add(line, span.kind)
            if self._size > PIECE:
                rows += self._complete(glued=True)
        return rows

    def flush(self) -> list[Row]:
        """The row as it is."""
        return self._complete(glued=False) if self._size else []

    def _add(self, text: str, kind: TokenKind | None) -> None:
        for number, part in enumerate(text.split("\t")):
            if number:
                self._write(" " * (TAB_CELLS - self._cells % TAB_CELLS), kind)
            self._write(visible(part), kind)
        self._raw.append(text)
        self._size += len(text)

    def _write(self, shown: str, kind: TokenKind | None) -> None:
        if shown and kind is not None:
            style = LOOKS[kind].style
            self._spans.append(Span(self._cells, self._cells + len(shown), style))
        self._shown.append(shown)
        self._cells += len(shown)

    def _complete(self, *, glued: bool) -> list[Row]:
        """End the row. `glued` tells that the line goes on in the next one."""
        raw = "".join(self._raw)
        body = Content("".join(self._shown), self._spans)
        row = Row(body=body, raw=raw, glued=self._glued)
        self.__init__()  # type: ignore[misc]
        self._glued = glued
        return [row]
