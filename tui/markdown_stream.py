"""A markdown text that grows at its end, as rows and fences that no further text can change.

Owns where the text may be cut: blocks that are over, all but the last item of a list, all but the
last row of a table, and the lines of a fence are settled once and never read again. What is still
open is bounded in size, a longer block being cut, so the work for each piece of text depends on
the piece and not on what came before. Pure: knows no widget.

Invariant: after `close`, the segments depend on the text alone, not on how it was cut into pieces.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tui.markdown_resume import goes_on_after, settled_before
from tui.markdown_rows import FRESH, Resume, Row, block_rows, language_of, parse
from tui.safe_text import visible

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

LIMIT = 2000
"""Characters that may be open; a longer block is cut at the next end of a line."""
HARD = 4
"""How many times the limit a line may take until it is cut itself."""
PIECE = 1500
"""Longest part of a line that is handled at once."""
_MAYBE_FENCE = re.compile(r" {0,3}(?:`{3}|~{3}|`{1,2}$|~{1,2}$)")


class Piece(Struct, frozen=True, kw_only=True):
    """A line, or a part of a very long one, as the model wrote it, less its line end."""

    text: str
    begins: bool = True
    ends: bool = True


class Prose:
    """Everything that is not a top-level fence."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        """Settled: only ever added to."""
        self.tail: list[Row] = []
        """The block that is open; replaced as it grows."""


class Fence:
    """A fenced block of code at the top level."""

    def __init__(self, opener: re.Match[str], info: str, line: int) -> None:
        self.language = language_of(info)
        self.info = info
        self.line = line
        """1-based line of the opening fence."""
        self.pieces: list[Piece] = []
        """Settled lines, without the indentation of the fence: only ever added to."""
        self.partial: Piece | None = None
        self.closed = False
        self._indent = len(opener[1])
        self._closer = re.compile(rf" {{0,3}}{re.escape(opener[2][0])}{{{len(opener[2])},}}[ \t]*")

    def take(self, piece: Piece) -> None:
        """Add a line, which may be the closing one."""
        self.partial = None
        if piece.begins and piece.ends and self._closer.fullmatch(piece.text):
            self.closed = True
        else:
            self.pieces.append(self._unindented(piece))

    def show(self, partial: Piece) -> None:
        """Show a line that is not complete yet, unless it may become the closing one."""
        self.partial = None
        if partial.text and not (partial.begins and _MAYBE_FENCE.match(partial.text)):
            self.partial = self._unindented(partial)

    def _unindented(self, piece: Piece) -> Piece:
        if not (piece.begins and self._indent):
            return piece
        spaces = len(piece.text) - len(piece.text.lstrip(" "))
        return Piece(text=piece.text[min(self._indent, spaces) :], ends=piece.ends)


class MarkdownStream:
    """The segments of a text that comes in pieces."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.segments: list[Prose | Fence] = []
        self.parsed = 0
        """Characters that were given to the parser so far."""
        self._pieces: list[Piece] = []
        self._partial = ""
        self._begins = True
        self._resume: Resume = FRESH
        self._seen = 0
        """Open pieces that were parsed without anything becoming settled."""
        self._line = 0
        """Lines before the first open piece."""
        self._limit = limit

    def feed(self, text: str) -> None:
        """Take in more of the text."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._add_line(line)
        while len(self._partial) > PIECE:
            self._add_piece(self._partial[:PIECE], ends=False)
            self._partial = self._partial[PIECE:]
        self._settle()
        self._show_open()

    def close(self) -> None:
        """The text is over: settle what is open. A fence that was never closed stays so."""
        if self._partial:
            self._add_line(self._partial)
            self._partial = ""
        self._settle()
        if self._open_fence() is None and self._pieces:
            self._keep(parse(self._open_text(len(self._pieces))))
            self._pieces = []
        self._show_open()

    def _add_line(self, line: str) -> None:
        while len(line) > PIECE:
            self._add_piece(line[:PIECE], ends=False)
            line = line[PIECE:]
        self._add_piece(line.removesuffix("\r"), ends=True)

    def _add_piece(self, text: str, *, ends: bool) -> None:
        self._pieces.append(Piece(text=text, begins=self._begins, ends=ends))
        self._begins = ends

    def _open_fence(self) -> Fence | None:
        last = self.segments[-1] if self.segments else None
        return last if isinstance(last, Fence) and not last.closed else None

    def _settle(self) -> None:
        """Move on over everything that no further text can change."""
        while self._pieces:
            if (fence := self._open_fence()) is not None:
                self._settle_code(fence)
                continue
            count, full = self._window()
            if count == self._seen and not full:
                return
            if not self._settle_blocks(count, full=full):
                self._seen = count
                return
            self._seen = 0

    def _settle_code(self, fence: Fence) -> None:
        taken = 0
        for piece in self._pieces:
            taken += 1
            fence.take(piece)
            if fence.closed:
                self._resume = FRESH
                break
        self._drop(taken)

    def _window(self) -> tuple[int, bool]:
        """How many open pieces to look at, and whether no more may be waited for."""
        size = whole = 0
        for count, piece in enumerate(self._pieces, 1):
            size += len(piece.text) + 1
            whole = count if piece.ends else whole
            if size >= HARD * self._limit or (size >= self._limit and piece.ends):
                return count, True
        return whole, False

    def _settle_blocks(self, count: int, *, full: bool) -> bool:
        """Settle what is over among the first pieces; whether anything was."""
        text = self._open_text(count)
        nodes = parse(text)
        for number, node in enumerate(nodes):
            if node.type == "fence" and node.map is not None:
                self._keep(nodes[:number])
                self._begin_fence(node, node.map[0] - self._resume.stub_lines)
                return True
        if not nodes:
            self._resume = FRESH
            self._drop(count)
            return True
        start, kept, resume = settled_before(nodes, text, self._resume)
        if start > 0:
            self._keep(kept)
            if resume.stub and resume.columns is None:
                # The rest of a table shares the columns of the rows just kept.
                resume = replace(resume, columns=self._prose().rows[-1].columns)
            self._drop(self._piece_of(start))
        elif full:
            resume = goes_on_after(nodes, text, self._resume)
            self._keep(nodes)
            self._drop(count)
        else:
            return False
        self._resume = resume
        return True

    def _begin_fence(self, node: SyntaxTreeNode, start: int) -> None:
        at = self._piece_of(start)
        opener = re.match(r"([ \t]*)(`{3,}|~{3,})", self._pieces[at].text)
        assert opener is not None, "the parser saw a fence where there is none"
        self._drop(at)
        self.segments.append(Fence(opener, node.info, self._line + 1))
        end = next((n for n, piece in enumerate(self._pieces, 1) if piece.ends), len(self._pieces))
        self._drop(end)

    def _keep(self, nodes: list[SyntaxTreeNode]) -> None:
        self._set_tail([])
        if rows := block_rows(nodes, self._resume, after=self._has_rows()):
            self._prose().rows += rows

    def _show_open(self) -> None:
        """Show the open block as it is so far. Costs no more than the open block's size."""
        partial = Piece(text=self._partial, begins=self._begins, ends=False)
        if (fence := self._open_fence()) is not None:
            fence.show(partial)
            return
        shown = not (partial.begins and _MAYBE_FENCE.match(partial.text))
        rows: list[Row] = []
        if self._pieces or partial.text:
            text = self._open_text(len(self._pieces)) + (visible(partial.text) if shown else "")
            # Columns are widened by what is settled only, or they would depend on the cut.
            rows = block_rows(parse(text), self._resume.apart(), after=self._has_rows())
        self._set_tail(rows)

    def _set_tail(self, rows: list[Row]) -> None:
        last = self.segments[-1] if self.segments else None
        if rows:
            self._prose().tail = rows
        elif isinstance(last, Prose):
            last.tail = []
            if not last.rows:
                self.segments.pop()

    def _has_rows(self) -> bool:
        last = self.segments[-1] if self.segments else None
        return isinstance(last, Prose) and bool(last.rows)

    def _prose(self) -> Prose:
        if not self.segments or not isinstance(self.segments[-1], Prose):
            self.segments.append(Prose())
        last = self.segments[-1]
        assert isinstance(last, Prose)
        return last

    def _open_text(self, count: int) -> str:
        parts = [piece.text + "\n" * piece.ends for piece in self._pieces[:count]]
        text = self._resume.stub + visible("".join(parts))
        self.parsed += len(text)
        return text

    def _piece_of(self, line: int) -> int:
        """Index of the piece that begins the open line of this number."""
        for index, piece in enumerate(self._pieces):
            if line == 0:
                return index
            line -= piece.ends
        return len(self._pieces)

    def _drop(self, count: int) -> None:
        self._line += sum(piece.ends for piece in self._pieces[:count])
        del self._pieces[:count]
