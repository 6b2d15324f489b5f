"""One fenced block of code of an answer: its lines in colour, and what can be done with it.

Owns the head with its actions and the colouring: while the block is open only its last lines are
coloured anew, a closed block once as a whole, in slices so that a long one never holds up a key.
Knows a `Fence`, not the markdown around it; says which block is meant by the line of its fence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace
from textual.content import Content
from textual.message import Message
from textual.style import Style

from tui import highlighting
from tui.line_pane import LinePane
from tui.markdown_rows import TAB_CELLS, Row
from tui.markdown_stream import Fence, Piece
from tui.safe_text import visible

CodeVerb = Literal["copy_code", "save_code", "apply_code"]
CODE_VERBS: tuple[CodeVerb, ...] = ("copy_code", "save_code", "apply_code")

WINDOW = 600
"""Characters at the end of an open block that are coloured with each update."""
AT_ONCE = 2000
"""Characters of a closed block that are coloured without a pause."""
SLICE_S = 0.008
"""How long the colouring of a long block may hold up everything else."""
SHOW_S = 0.25
"""How often what was coloured of a long block is shown."""


class CodeChosen(Message):
    """The user wants something done with a code block."""

    def __init__(self, verb: CodeVerb, line: int) -> None:
        super().__init__()
        self.verb = verb
        self.line = line
        """1-based line of the block's fence in the answer."""


class CodeView(LinePane):
    """A code block: one row that heads it, and its lines."""

    DEFAULT_CSS = """
    CodeView {
        margin: 0 0 1 0;
        padding: 0 1;
        background: $foreground 6%;
        & > .line-pane--code { background: transparent; }
    }
    """

    def __init__(self, fence: Fence) -> None:
        super().__init__()
        self.fence = fence
        self.highlighted = 0
        """Characters given to the lexer so far."""
        self._shown = 0
        """Pieces of the fence that are settled here as well."""
        self._window = 1
        """First row of those that are coloured with each update."""
        self._finished = False
        self.extend([_head(fence)])

    @property
    def code(self) -> list[Row]:
        """The rows without the head."""
        return self.rows[1:]

    def on_mount(self) -> None:
        """Show what is there already."""
        self.sync()

    def sync(self) -> None:
        """Show what the fence has more than before."""
        pieces = self.fence.pieces
        fresh = [_plain(piece) for piece in pieces[self._shown :]]
        self._shown = len(pieces)
        partial = [] if self.fence.partial is None else [_plain(self.fence.partial)]
        self.extend(fresh, partial)
        if self.fence.closed:
            self.finish()
        elif self.fence.language:
            self._color_end()

    def finish(self) -> None:
        """No more code comes: colour all of it."""
        if self._finished:
            return
        self._finished = True
        if not self.fence.language:
            return
        if sum(len(row.body) for row in self.code) <= AT_ONCE:
            self._recolor(1, self._colored(self.code))
        else:
            self.run_worker(self._color_all(), exclusive=True)

    def _color_end(self) -> None:
        """Colour the last lines, as if the code began there: cheap, and right most of the time."""
        rows = self.rows
        size = sum(len(row.body) for row in rows[self._window :])
        if size > 2 * WINDOW:
            while size > WINDOW:
                size -= len(rows[self._window].body)
                self._window += 1
        self._recolor(self._window, self._colored(rows[self._window :]))

    def _colored(self, rows: Sequence[Row]) -> list[Content]:
        self.highlighted += sum(len(row.body) for row in rows)
        return highlighting.styled([row.body.plain for row in rows], self.fence.language)

    async def _color_all(self) -> None:
        """Colour the whole block in slices. The text is final by now."""
        lines = [row.body.plain for row in self.code]
        self.highlighted += sum(map(len, lines))
        done: list[Content] = []
        first = 1
        began = shown = time.monotonic()
        for content in highlighting.styled_lines(lines, self.fence.language):
            done.append(content)
            if (now := time.monotonic()) - began < SLICE_S:
                continue
            if now - shown > SHOW_S:
                self._recolor(first, done)
                first, done, shown = first + len(done), [], now
            await asyncio.sleep(SLICE_S)
            began = time.monotonic()
        self._recolor(first, done)

    def _recolor(self, first: int, contents: Sequence[Content]) -> None:
        rows = self.rows[first : first + len(contents)]
        self.restyle(
            first, [replace(row, body=body) for row, body in zip(rows, contents, strict=True)]
        )

    def action_chosen(self, verb: CodeVerb) -> None:
        """Say that this block was chosen for something."""
        self.post_message(CodeChosen(verb, self.fence.line))


def _head(fence: Fence) -> Row:
    """The language of a block, and what can be done with it as something to click on."""
    parts = [Content.styled(visible(fence.info) or "code", "$foreground 60%")]
    for verb in CODE_VERBS:
        click = Style.from_meta({"@click": f"chosen('{verb}')"})
        parts.append(Content.styled(verb.removesuffix("_code"), click + Style(underline=True)))
    return Row(body=Content("  ").join(parts), silent=True)


def _plain(piece: Piece) -> Row:
    shown = visible(piece.text).expandtabs(TAB_CELLS)
    raw = None if shown == piece.text else piece.text
    return Row(body=Content(shown), fold=True, raw=raw, glued=not piece.begins)
