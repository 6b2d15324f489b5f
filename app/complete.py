"""`complete`: fill in the middle at one point of a file, and print only the insertion.

Three pure parts, none of which knows the engine: locating the hole, deciding where an insertion
ends, and trimming what the text around the cursor already says. The editor's `lsp/shape.py` shapes
its suggestions by rules of its own, which need a document. Invariant: prefix + insertion + suffix
is the new file, so the insertion never repeats what the suffix begins with.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from msgspec import Struct

from app.inputs import read_text
from app.stream import read_events
from engine.protocol import (
    Engine,
    Event,
    FillPrompt,
    Finished,
    GenerateRequest,
    RequestError,
    RouteChoice,
    SamplingParams,
    TextDelta,
)

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_MAX_TOKENS = 128
MAX_PREFIX_CHARS = 8000
MAX_SUFFIX_CHARS = 2000
"""Text farther from the cursor is left out: it would cost prefill time and seldom decides."""

_CLOSERS = {")": "(", "]": "[", "}": "{"}


class Hole(Struct, frozen=True, kw_only=True):
    """The text before and after the cursor, with `\\n` as line end."""

    prefix: str
    suffix: str
    path: str | None = None
    crlf: bool = False
    """The file ends its lines with `\\r\\n`, and so must the insertion."""


def hole_in_file(path: Path, line: int | None, column: int | None) -> Hole:
    """The hole at a point of a file; without a column, at the end of the line.

    Raises `RequestError` for a file that can't be read, a missing line or a point outside it.
    """
    if line is None:
        raise RequestError("no_line", "--file was given without --line", "Add --line N.")
    text = read_text(path)
    if column is None:
        lines = text.replace("\r\n", "\n").split("\n")
        column = len(lines[line - 1]) + 1 if 1 <= line <= len(lines) else 1
    return hole_at(text, line, column, path)


def hole_at(text: str, line: int, column: int, path: Path) -> Hole:
    """The hole before character `column` of line `line`, both counted from 1.

    The column after the last character of a line is its end. Raises `RequestError` for a point
    outside the text.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if not 1 <= line <= len(lines):
        raise RequestError(
            "no_such_line", f"{path} has no line {line}", f"Its lines are 1 to {len(lines)}."
        )
    width = len(lines[line - 1])
    if not 1 <= column <= width + 1:
        raise RequestError(
            "no_such_column",
            f"line {line} of {path} has no column {column}",
            f"Its columns are 1 to {width + 1}; the last one is the line's end.",
        )
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
    after = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
    return Hole(prefix=before, suffix=after, path=str(path), crlf="\r\n" in text)


def hole_at_marker(text: str, marker: str) -> Hole:
    """The hole where `marker` stands. Raises `RequestError` unless it stands exactly once."""
    found = text.count(marker) if marker else 0
    if found != 1:
        raise RequestError(
            "no_cursor",
            f"The text has the marker {marker!r} {found} times",
            "Put it once where the insertion goes, or choose another with --marker.",
        )
    before, after = text.replace("\r\n", "\n").split(marker)
    return Hole(prefix=before, suffix=after, crlf="\r\n" in text)


def build_request(
    hole: Hole, sampling: SamplingParams, *, route: RouteChoice, k: int | None
) -> GenerateRequest:
    """The request that fills `hole`, with far-away text left out at line borders."""
    prefix, suffix = hole.prefix, hole.suffix
    if len(prefix) > MAX_PREFIX_CHARS:
        kept = prefix[-MAX_PREFIX_CHARS:]
        prefix = kept.partition("\n")[2] or kept
    if len(suffix) > MAX_SUFFIX_CHARS:
        kept = suffix[:MAX_SUFFIX_CHARS]
        suffix = kept.rpartition("\n")[0] or kept
    return GenerateRequest(
        id=uuid.uuid4().hex,
        prompt=FillPrompt(prefix=prefix, suffix=suffix, path=hole.path),
        sampling=sampling,
        priority="fill",
        route=route,
        k=k,
        client="complete",
    )


def complete(engine: Engine, request: GenerateRequest, hole: Hole) -> str:
    """The insertion for `hole`, in the file's own line ends. Raises an `EngineError` on failure."""
    text = ""

    def collect(event: Event) -> bool:
        nonlocal text
        if isinstance(event, TextDelta):
            text += event.text
        # A line that max_tokens cut in two is no sensible end; the line before it is.
        if isinstance(event, Finished) and event.reason in ("length", "context"):
            text = text.rpartition("\n")[0] or text
        # What comes after the end is not worth decoding.
        return end_of(beyond_indentation(text, hole), hole) is None

    asyncio.run(read_events(engine, request, collect))
    shaped = shape(beyond_indentation(text, hole), hole)
    return shaped.replace("\n", "\r\n") if hole.crlf else shaped


def shape(text: str, hole: Hole) -> str:
    """The part of the model's `text` to insert: cut at its end, less what the suffix repeats."""
    end = end_of(text if text.endswith("\n") else text + "\n", hole)
    kept = text if end is None else text[:end]
    if not _single_line(hole):
        kept = kept.rstrip()
    return kept[: len(kept) - overlap(kept, hole.suffix)]


def beyond_indentation(text: str, hole: Hole) -> str:
    """`text` without the indentation of the cursor's line, where the model wrote that once more.

    A cursor that stands farther left than code here would keeps it: there it is the missing part.
    """
    above, _, line = hole.prefix.rpartition("\n")
    if line.strip() or not text.startswith(line):
        return text
    previous = next((one for one in reversed(above.split("\n")) if one.strip()), "").rstrip()
    opens = previous.endswith((":", *_CLOSERS.values()))
    missing = _indentation(line) < _indentation(previous) + opens
    return text if missing else text.removeprefix(line)


def end_of(text: str, hole: Hole) -> int | None:
    """Where the insertion ends in `text`, as an index; None while that can't be told yet.

    Only whole lines are judged, so the answer never changes when more text arrives.
    """
    if _single_line(hole):
        found = text.find("\n")
        return None if found < 0 else found
    block = _Block(hole)
    start = 0
    while (newline := text.find("\n", start)) >= 0:
        verdict = block.judge(text[start:newline], first=start == 0)
        if verdict == "ends before":
            return start
        if verdict == "ends after":
            return newline
        start = newline + 1
    return None


class _Block:
    """The block of code being filled, as far as its lines were seen."""

    def __init__(self, hole: Hole) -> None:
        self._cursor_line = hole.prefix.rpartition("\n")[2]
        self._opens = bool(self._cursor_line.strip())
        self._base = self._depth = _indentation(self._cursor_line)
        following = (later for later in hole.suffix.split("\n")[1:] if later.strip())
        self._next_line = next(following, "").rstrip()
        self._deeper_seen = False
        self._blank_before = False

    def judge(self, line: str, *, first: bool) -> str:
        """Tell whether the insertion "ends before" `line`, "ends after" it or "goes on"."""
        if first:
            line = self._cursor_line + line
        depth = _indentation(line)
        if self._next_line and line.rstrip() == self._next_line:
            return "ends before"
        if first and not self._opens and line.strip():
            self._base = self._depth = depth
        if first or not line.strip():
            self._blank_before = self._blank_before or not first
            return "goes on"
        if self._opens and not self._deeper_seen and depth > self._base:
            self._depth = depth
        if depth < self._depth:
            closes = self._opens and depth == self._base and _only_closers(line)
            return "ends after" if closes else "ends before"
        # At the left margin nothing can fall below the block, so a blank line after a body ends it.
        if self._blank_before and self._deeper_seen and depth == self._base == 0:
            return "ends before"
        self._deeper_seen = self._deeper_seen or depth > self._base
        self._blank_before = False
        return "goes on"


def overlap(insertion: str, suffix: str) -> int:
    """How many characters at the end of `insertion` the suffix already begins with.

    An overlap that would take a closing bracket from its opening one inside the insertion is not
    one: in `call(inner()|)` the insertion's own `)` stays.
    """
    for length in range(min(len(insertion), len(suffix)), 0, -1):
        kept = insertion[: len(insertion) - length]
        if insertion.endswith(suffix[:length]) and _unclosed(kept) <= _unclosed(insertion):
            return length
    return 0


def _unclosed(text: str) -> int:
    """Brackets that `text` opens and leaves open; brackets in strings are counted like others."""
    waiting: list[str] = []
    for character in text:
        if character in _CLOSERS.values():
            waiting.append(character)
        elif character in _CLOSERS and waiting and waiting[-1] == _CLOSERS[character]:
            waiting.pop()
    return len(waiting)


def _single_line(hole: Hole) -> bool:
    return bool(hole.suffix.partition("\n")[0].strip())


def _only_closers(line: str) -> bool:
    return all(character in ")]};," for character in line.strip())


def _indentation(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))
