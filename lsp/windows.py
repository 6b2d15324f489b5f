"""A text cut into windows of some 20 to 40 lines, along its definitions where there are any.

Pure. It goes by indentation alone, so it needs no grammar and takes any language. A window from
inside a long definition begins with the line that opened it, so that it can be read by itself.

Invariant: the windows of a text don't overlap and hold its lines as they are, in order, whatever
ended them; a text that no person wrote (very long lines) has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

FEWEST_LINES = 20
"""A window that has as many takes no further definition in."""
MOST_LINES = 40
LONGEST_LINE = 1000
_TAB = 4
_DEEPEST = 5

_LINE_END = re.compile("\r\n|\r|\n")
_GOES_ON = re.compile(
    r"[)\]}>]|(?:end|else|elif|elsif|except|catch|finally|rescue|ensure|fi|done|esac)\b|</|#endif"
)
"""What starts a line that belongs to the one above it, not to the next definition."""
_LEADS = re.compile(r"@|//|/\*|\*|#(?!include|define|if|endif|pragma)|--|;;|<!--|\"\"\"|template\b")
"""What starts a line that belongs to the definition below it."""


class Window(Struct, frozen=True, kw_only=True):
    """Some lines of a text."""

    first: int
    """Number of the first line, from 0."""
    body: str
    """The lines, with `\\n` between them."""
    header: str = ""
    """The line that opened the definition which these are inside of; empty for none."""

    @property
    def text(self) -> str:
        """What to show."""
        return f"{self.header}\n{self.body}" if self.header else self.body


class _Lines:
    """The lines of one text and how deep each of them is."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.depths = [_depth(line) for line in lines]

    def starts(self, begin: int, end: int) -> list[int]:
        """The lines from `begin` to `end` with which something of its own begins."""
        levels = [
            self.depths[at]
            for at in range(begin, end)
            if self.depths[at] >= 0 and not _GOES_ON.match(self.lines[at].lstrip())
        ]
        if not levels:
            return []
        level = min(levels)
        found: list[int] = []
        led = False
        for at in range(begin, end):
            if self.depths[at] < 0:
                led = False
                continue
            line = self.lines[at].lstrip()
            if self.depths[at] == level and not _GOES_ON.match(line):
                if not led:
                    found.append(at)
                led = _LEADS.match(line) is not None
        return found

    def header(self, begin: int, end: int) -> int | None:
        """The last line before the definition that begins at `begin` gets deeper."""
        level = self.depths[begin]
        for at in range(begin + 1, end):
            if self.depths[at] > level:
                return at - 1 if self.depths[at - 1] == level else None
        return None


def lines_of(text: str) -> list[str]:
    """The lines of a text, as the protocol counts them."""
    return _LINE_END.split(text)


def windows(text: str) -> tuple[Window, ...]:
    """All windows of a text, in order."""
    lines = lines_of(text)
    if any(len(line) > LONGEST_LINE for line in lines):
        return ()
    return tuple(_windows(_Lines(lines), 0, len(lines), ""))


def _windows(text: _Lines, begin: int, end: int, header: str, deep: int = 0) -> Iterator[Window]:
    held: tuple[int, int] | None = None
    for first, last in _blocks(text, begin, end):
        if held is not None:
            lines = held[1] - held[0]
            if lines < FEWEST_LINES and last - held[0] <= MOST_LINES:
                held = (held[0], last)
                continue
            yield from _window(text, *held, header)
            held = None
        if last - first <= MOST_LINES:
            held = (first, last)
        else:
            yield from _inside(text, first, last, header, deep)
    if held is not None:
        yield from _window(text, *held, header)


def _blocks(text: _Lines, begin: int, end: int) -> Iterator[tuple[int, int]]:
    starts = text.starts(begin, end)
    if not starts:
        if begin < end:
            yield begin, end
        return
    starts[0] = begin
    yield from zip(starts, [*starts[1:], end], strict=True)


def _inside(text: _Lines, first: int, last: int, header: str, deep: int) -> Iterator[Window]:
    """The windows of one definition that is too long for one."""
    opened = text.header(first, last)
    if opened is None or deep == _DEEPEST or len(text.starts(opened + 1, last)) < 2:
        for at in range(first, last, MOST_LINES):
            yield from _window(text, at, min(at + MOST_LINES, last), header)
        return
    shown = header
    inner = _windows(text, opened + 1, last, text.lines[opened], deep + 1)
    for number, window in enumerate(inner):
        if number:
            yield window
            continue
        # The definition's own first lines go with what comes first in it.
        joined = "\n".join(text.lines[first : opened + 1])
        yield Window(first=first, body=f"{joined}\n{window.body}", header=shown)


def _window(text: _Lines, first: int, last: int, header: str) -> Iterator[Window]:
    while first < last and text.depths[first] < 0:
        first += 1
    while last > first and text.depths[last - 1] < 0:
        last -= 1
    if first < last:
        yield Window(first=first, body="\n".join(text.lines[first:last]), header=header)


def _depth(line: str) -> int:
    """Columns of indentation; -1 for a line with nothing on it."""
    bare = line.lstrip(" \t")
    if not bare.strip():
        return -1
    return len(line[: len(line) - len(bare)].expandtabs(_TAB))
