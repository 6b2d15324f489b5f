"""`complete`: fill in the middle at one point of a file, and print only the insertion.

It locates the hole and makes the request; where the insertion ends, and what of it the text around
the cursor already says, is decided by the editor's own rules, in `lsp`. Invariant: prefix +
insertion + suffix is the new file, so the insertion never repeats what the suffix begins with.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from app.inputs import name_of, read_text
from app.stream import error_of
from engine.protocol import (
    Engine,
    FillPrompt,
    GenerateRequest,
    RequestError,
    RouteChoice,
    SamplingParams,
)

if TYPE_CHECKING:
    from lsp.document import Snapshot
    from lsp.fill_run import FillRun
    from lsp.recent import Fill

DEFAULT_MAX_TOKENS = 128
MAX_PREFIX_CHARS = 8000
MAX_SUFFIX_CHARS = 2000
"""Text farther from the cursor is left out: it would cost prefill time and seldom decides."""

_PYTHON = re.compile(r"^\s*(?:async def|def|class|elif|except|with)\b.*:\s*$", re.MULTILINE)


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
    return Hole(prefix=before, suffix=after, path=name_of(path), crlf="\r\n" in text)


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
    from lsp.fill_run import Ask, FillRun
    from lsp.placing import begun_word
    from lsp.settings import EditorSettings
    from lsp.shape import shape_for

    assert isinstance(request.prompt, FillPrompt)
    snapshot, longest = _snapshot(hole), request.sampling.max_tokens
    shape = shape_for(snapshot, EditorSettings(max_tokens=longest), explicit=True)
    ask = Ask(
        id=request.id,
        snapshot=snapshot,
        shape=replace(shape, max_tokens=longest),
        prompt=request.prompt,
        begun=begun_word(snapshot),
        sampling=request.sampling,
        route=request.route,
        k=request.k,
        client=request.client,
    )
    run = FillRun(engine, ask, time.monotonic)
    fill = asyncio.run(run.run())
    if run.failed is not None:
        raise error_of(run.failed)
    if run.was_cut and "\n" not in run.raw:
        # An editor shows no half word; here it was asked for, and is all there is.
        fill = _uncut(run)
    inserted = "" if fill is None else as_insertion(fill, hole.suffix)
    return inserted.replace("\n", "\r\n") if hole.crlf else inserted


def as_insertion(fill: Fill, suffix: str) -> str:
    """The part of a fill that can be inserted, where an editor would also replace what follows."""
    covered = suffix[: fill.covers]
    if fill.text.endswith(covered):
        return fill.text[: len(fill.text) - len(covered)]
    return fill.text.partition(covered[:1])[0]


def _uncut(run: FillRun) -> Fill | None:
    from lsp.fill_run import fitted
    from lsp.shape import Trimmer

    trimmer = Trimmer(run.ask.snapshot, run.ask.shape)
    trimmer.push(run.raw)
    return fitted(trimmer, run.ask.snapshot)


def _snapshot(hole: Hole) -> Snapshot:
    """The hole as the editor's rules see it. Text without a file name says itself what it is."""
    from lsp.document import Document

    path = None if hole.path is None else Path(hole.path)
    language = "python" if path is None and _PYTHON.search(hole.prefix) else ""
    document = Document("", hole.prefix + hole.suffix, language=language, path=path)
    return document.snapshot(len(hole.prefix))
