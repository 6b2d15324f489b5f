r"""Files named in a message: where `@path` stands in the text, and which part of the file is meant.

Owns the notation: `@path`, `@"path with spaces"`, each with `:10` or `:10-40` behind it for those
lines. Pure: it looks at letters, never at files, so whether there is such a file is not its matter.

Invariant: an `@` inside a word (`me@example.org`) or in backticks is no mention; text is only read,
never changed.
"""

from __future__ import annotations

import re

from msgspec import Struct

_BEFORE = r"(?<![^\s(\[{<,;])"
_SPAN = r":(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?"
_MENTION = re.compile(
    _BEFORE + r'@(?:"(?P<path>[^"\n]+)"' + f"(?:{_SPAN})?" + r"|(?P<word>[^\s@\"'`<>|]+))"
)
_LINES = re.compile(r"(?P<path>.+?)" + _SPAN + r"\Z")
_AFTERWARDS = ".,;:!?)]}*_"
"""What may follow a name in a sentence; taken off only if no file has it in its name."""


class Wanted(Struct, frozen=True, kw_only=True):
    """A file, or some lines of it."""

    path: str
    lines: tuple[int, int] | None = None
    """First and last, counted from 1; None for all of it."""


class Mention(Struct, frozen=True, kw_only=True):
    """One `@…` in a text."""

    start: int
    end: int
    written: str
    readings: tuple[Wanted, ...]
    """What it may mean, the most literal first: `@a.py,` is first the file `a.py,`, then `a.py`."""


def mentions(text: str) -> tuple[Mention, ...]:
    """Every mention in `text`, in order."""
    return tuple(
        Mention(
            start=match.start(), end=match.end(), written=match.group(), readings=_readings(match)
        )
        for match in _MENTION.finditer(text)
    )


def as_mention(path: str) -> str:
    """How `path` is to be written so that it is read back as itself."""
    bare = _MENTION.fullmatch(f"@{path}")
    is_plain = bare and path[-1] not in _AFTERWARDS and not _LINES.match(path)
    return f"@{path}" if is_plain else f'@"{path}"'


def _readings(match: re.Match[str]) -> tuple[Wanted, ...]:
    if match["path"] is not None:
        return (Wanted(path=match["path"], lines=_span(match)),)
    word = match["word"]
    readings = []
    while word:
        readings.append(Wanted(path=word))
        if part := _LINES.match(word):
            readings.append(Wanted(path=part["path"], lines=_span(part)))
        if word[-1] not in _AFTERWARDS:
            break
        word = word[:-1]
    return tuple(readings)


def _span(match: re.Match[str]) -> tuple[int, int] | None:
    if match["first"] is None:
        return None
    first = int(match["first"])
    return first, int(match["last"]) if match["last"] else first
