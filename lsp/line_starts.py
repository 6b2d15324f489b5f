"""Where the lines of a text start, kept right while the text is edited.

Lines end at `\\n`, `\\r\\n` and `\\r` and at nothing else, as the language server protocol has it.
It holds offsets only, never the text, and knows nothing of positions or of encodings. An edit costs
what it touches and not what lies behind it: offsets beyond the last edited place are left as they
were, and the shift that they miss is kept as one number.

Invariant: `start(0)` is 0 and the starts rise strictly; `line_at` inverts `start`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

_LINE_END = re.compile(r"\r\n?|\n")


class LineStarts:
    """The offsets, in code points, at which the lines of one text start."""

    __slots__ = ("_missed", "_settled", "_starts")

    def __init__(self, text: str) -> None:
        self._starts = [0, *_found(text, 0, len(text))]
        self._settled = len(self._starts)
        """Entries before this index are exact, the others miss `_missed`."""
        self._missed = 0

    def __len__(self) -> int:
        return len(self._starts)

    def start(self, line: int) -> int:
        """Offset of the first code point of a line, 0 ≤ line < len(self)."""
        return self._starts[line] + (self._missed if line >= self._settled else 0)

    def line_at(self, offset: int) -> int:
        """The line that an offset ≥ 0 lies in; a line's end belongs to it."""
        starts, settled = self._starts, self._settled
        if settled < len(starts) and offset >= starts[settled] + self._missed:
            return bisect_right(starts, offset - self._missed, settled) - 1
        return bisect_right(starts, offset, 0, settled) - 1

    def edited(self, text: str, start: int, end: int, length: int) -> None:
        """Take in that `text` has come about by putting `length` code points in the place of those
        from `start` to `end`."""
        # A \r before the place and a \n behind it may join with the new text, or no longer join.
        first = start - 1 if start and text[start - 1] == "\r" else start
        last = start + length
        if text[last : last + 1] == "\n":
            last += 1
        shift = length - (end - start)
        begin = self.line_at(first) + 1
        stop = self.line_at(last - shift) + 1
        self._settle(stop)
        found = _found(text, first, last)
        self._starts[begin:stop] = found
        self._settled = begin + len(found)
        self._missed += shift

    def _settle(self, line: int) -> None:
        """Make the entries before `line` exact and those from it on miss `_missed`."""
        missed = self._missed
        for index in range(self._settled, line):
            self._starts[index] += missed
        for index in range(line, self._settled):
            self._starts[index] -= missed
        self._settled = line


def _found(text: str, first: int, last: int) -> list[int]:
    """Offsets behind the line ends between two offsets of a text."""
    if text.find("\r", first, last) < 0:
        lengths = [len(line) + 1 for line in text[first:last].split("\n")]
        return list(accumulate(lengths[:-1], initial=first))[1:]
    return [match.end() for match in _LINE_END.finditer(text, first, last)]
