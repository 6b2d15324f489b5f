"""Where what the model writes stops being of use: the earliest point at which no more is wanted.

Judges the code as it grows, whole lines at a time, and loops within a line as soon as they show.
Knows nothing of what will be trimmed from the code up to that point.

Invariant: the answer depends only on the text up to where it was decided, so the same text in other
pieces, or with more behind it, gets the same answer.
"""

from __future__ import annotations

import re

from lsp.shape_block import Block
from lsp.shape_place import Place
from lsp.shape_start import Start
from lsp.shape_style import depth
from lsp.shape_words import is_fence, is_talk

MAX_LINES = 60
_LOOP_STEP = 16
_LOOP_TIMES = 5
_MIN_LOOP_CHARS = 24
_SHORTEST_UNIT, _LONGEST_UNIT = 2, 40
_LONGEST_PERIOD = 6


def end_of(body: str, place: Place, start: Start, *, multiline: bool) -> int | None:
    """Where the insertion ends in the code; None while that can't be told yet."""
    lines = _Lines(place, start, multiline)
    at = 0
    while (newline := body.find("\n", at)) >= 0:
        line = body[at:newline]
        end = at if _loops_early(line) else lines.take(line, at)
        if end is not None:
            return end
        at = newline + 1
    return at if _loops_early(body[at:]) else None


def loops(line: str) -> bool:
    """Whether a line ends in the same few words again and again."""
    for unit in range(_SHORTEST_UNIT, _LONGEST_UNIT + 1):
        times = max(_LOOP_TIMES, -(-_MIN_LOOP_CHARS // unit))
        said = line[-unit:]
        if line.endswith(said * times):
            return re.search(r"\w", said) is not None
    return False


def repeated(lines: list[str]) -> int:
    """How many of the last lines only say again what the lines before them said; 0 if none do."""
    for period in range(1, _LONGEST_PERIOD + 1):
        times = 2 if period > 2 else 3
        unit = lines[-period:]
        if len(lines) < times * period or not re.search(r"\w\w", "".join(unit)):
            continue
        ends = [len(lines) - n * period for n in range(times)]
        if all(lines[end - period : end] == unit for end in ends):
            return (times - 1) * period
    return 0


def _loops_early(line: str) -> bool:
    """Whether a loop shows in a line. Looked for at fixed steps, whatever pieces came."""
    steps = range(2 * _LOOP_STEP, len(line) + 1, _LOOP_STEP)
    return any(loops(line[:length]) for length in steps)


class _Lines:
    """The lines of one insertion, as far as they were seen."""

    def __init__(self, place: Place, start: Start, multiline: bool) -> None:
        self._place, self._start, self._multiline = place, start, multiline
        self._whole: list[str] = []
        self._offsets: list[int] = []
        self._block = Block(place, start)
        self._following = _content(place.following)

    def take(self, line: str, at: int) -> int | None:
        """Where the insertion ends, if it does at or in the line that starts at an offset."""
        first = not self._whole and not self._start.own_line
        whole = self._place.line + line if first else " " * self._start.shift + line
        self._whole.append(whole)
        self._offsets.append(at)
        after = at + len(line)
        if not self._multiline:
            return self._only_line(line, whole, at)
        if not whole.strip():
            self._block.blank()
            return None
        if self._foreign(line) or self._is_following(whole):
            return at
        again = repeated(self._whole)
        if again:
            return self._offsets[-again]
        verdict = self._block.judge(whole, at_cursor=first)
        if verdict == "goes on":
            return after if len(self._whole) >= MAX_LINES else None
        return at if verdict == "ends before" else after

    def _only_line(self, line: str, whole: str, at: int) -> int | None:
        if not line.strip():
            return at
        return at if self._foreign(line) or self._is_following(whole) else at + len(line)

    def _foreign(self, line: str) -> bool:
        """Whether a line is no code of the document at all."""
        if self._place.language.prose or self._place.inside != "code" or self._block.in_string:
            return self._start.fenced and is_fence(line)
        return is_fence(line) or is_talk(line)

    def _is_following(self, whole: str) -> bool:
        """Whether a line is the one that comes next in the document anyway."""
        return bool(self._following) and _content(whole) == self._following


def _content(line: str) -> tuple[int, str] | None:
    return (depth(line), line.strip()) if line.strip() else None
