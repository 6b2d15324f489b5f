"""One block of code being written: does the next line still belong to it?

By indentation, with brackets and strings read off by `shape_scan` so that a long string or a list
may stand as it likes. Knows nothing of what the document says behind the cursor but whether it
closes the block.

Invariant: a block that was opened at the cursor ends after the line that closes it, or before that
line if the document has it already.
"""

from __future__ import annotations

import re
from typing import Literal

from lsp.shape_place import Place
from lsp.shape_scan import CLOSERS, Lexed, scan
from lsp.shape_start import Start
from lsp.shape_style import depth

Verdict = Literal["ends before", "ends after", "goes on"]

_GOES_ON = {
    "try": ("except", "finally", "else"),
    "begin": ("rescue", "ensure", "else"),
    "if": ("elif", "elsif", "else"),
    "unless": ("else",),
    "case": ("when", "in", "else"),
}
"""First words of lines that belong to a block's statement though they stand where it does."""


class Block:
    """The block at the cursor, as far as its lines were seen."""

    def __init__(self, place: Place, start: Start) -> None:
        self._place, self._start = place, start
        language = place.language
        header = place.header or place.line
        self._state = scan(header, language) if place.inside == "code" else Lexed()
        self._outer = len(self._state.stack)
        self._opened = self._outer if place.opens else 0
        self._header = depth(place.header)
        self._first_word = _word(header)
        self._depth: int | None = None
        """Columns at which the block's lines stand, once one was seen."""
        self._deeper_seen = False
        self._blank_before = False

    @property
    def in_string(self) -> bool:
        """Whether the last line left a string or a long comment open."""
        return bool(self._state.quote) and self._state.quote != "\n"

    def blank(self) -> None:
        """Take a line without text."""
        self._blank_before = True

    def judge(self, line: str, *, at_cursor: bool) -> Verdict:
        """Take a line of text; `at_cursor` if the document has its beginning already."""
        was_in_string = self.in_string
        before = self._state
        added = line[len(self._place.line) :] if at_cursor and self._place.line.strip() else line
        self._state = self._read(added, at_cursor)
        if was_in_string:
            return "goes on"
        if self._place.opens:
            verdict = self._of_opened(line, at_cursor and bool(self._place.line.strip()))
        else:
            verdict = self._of_open(line, before)
        self._blank_before = False
        return verdict

    def _read(self, added: str, at_cursor: bool) -> Lexed:
        text = added if at_cursor else "\n" + added
        return scan(text, self._place.language, self._state)

    def _of_opened(self, line: str, on_header: bool) -> Verdict:
        """The block was opened at the cursor and has only lines of the insertion."""
        shut = bool(self._opened) and self._state.closed < self._opened
        if on_header:
            return "ends after" if shut else "goes on"
        columns = depth(line)
        if columns <= self._header:
            return self._at_header(line)
        if self._depth is None:
            self._depth = columns - self._start.over
        if columns < self._depth and self._place.language.blocks == "colon":
            inside = len(self._state.stack) > self._opened
            return "goes on" if inside else "ends before"
        if shut and len(self._state.stack) < self._opened:
            return "ends before" if self._place.closed else "ends after"
        return "goes on"

    def _at_header(self, line: str) -> Verdict:
        """A line that stands where the line that opened the block does, or left of it."""
        word = _word(line)
        if self._is_closer(line, word):
            if self._place.closed:
                return "ends before"
            reopened = self._opened and len(self._state.stack) >= self._opened
            return "goes on" if reopened else "ends after"
        if self._opened and line.startswith("#") and self._place.language.chars:
            return "goes on"
        if self._depth is not None and word in _GOES_ON.get(self._first_word, ()):
            follows = self._place.language.blocks == "word" or self._first_word == "try"
            return "goes on" if follows else "ends before"
        return "ends before"

    def _of_open(self, line: str, before: Lexed) -> Verdict:
        """The cursor is among the statements of a block, or in none."""
        columns = depth(line)
        if self._depth is None:
            self._depth = columns - self._start.over
            return "goes on"
        if columns < self._depth:
            nested = len(before.stack) > self._outer and before.stack[-1] in "(["
            return "goes on" if nested else "ends before"
        # At the left margin nothing can fall below the block, so a blank line after a body ends it.
        if self._blank_before and self._deeper_seen and columns == self._depth == 0:
            return "ends before"
        self._deeper_seen = self._deeper_seen or columns > self._depth
        return "goes on"

    def _is_closer(self, line: str, word: str) -> bool:
        text = line.strip()
        if self._place.language.blocks == "tag":
            return text.startswith("</")
        return text[0] in CLOSERS or word in self._place.language.closers


def _word(line: str) -> str:
    match = re.match(r"\s*(?:async\s+)?(\w+)", line)
    return match.group(1) if match else ""
