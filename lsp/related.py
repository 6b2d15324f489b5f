"""Chooses the windows of other files that a prompt shows.

Owns where candidates come from (what is open, what changed last, what the document imports, what
lies beside it), how many of them are looked at and how many are taken. Synchronous, for a thread of
its own; what may be read at all is the index's business.

Invariant: what is chosen fits the budget, overlaps nowhere and is not of the document itself; the
best stands last, nearest to the cursor.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Protocol

from msgspec import Struct

from engine.protocol import Snippet
from lsp.document import without_surrogates
from lsp.file_texts import MAX_BYTES, Texts
from lsp.similarity import (
    OTHER_FAMILY,
    Candidate,
    Query,
    Scored,
    identifiers,
    imported_names,
    kinship,
    module_name,
    ranked,
)
from lsp.windows import Window

LINES_BEFORE = 40
LINES_AFTER = 15
"""Of the document around the cursor, to which others are compared."""
MOST_SNIPPETS = 8
MOST_OF_A_FILE = 3
LEAST_SCORE = 0.06
RECENT_FILES = 24
IMPORTED_FILES = 12
NEAR_FILES = 8
NAME_COST = 24
"""Characters that a snippet takes besides its text and its path."""
STAYS = 0.8
"""A choice stays while it is worth at least this part of what could be had."""


class Source(Struct, frozen=True, kw_only=True):
    """A text that windows may be taken from."""

    path: str
    name: str
    state: object
    age_s: float
    text: str | None = None
    """Of an open document; None for a file on disk."""


class Known(Protocol):
    """What the index tells of a file."""

    @property
    def modified_ns(self) -> int: ...

    @property
    def size(self) -> int: ...


class Asked(Struct, frozen=True, kw_only=True):
    """Where related text is wanted."""

    path: str
    """Of the document; empty for none."""
    lines: tuple[str, ...]
    line: int
    """Of the cursor, from 0."""
    budget: int
    """Characters."""


class Choice(Struct, frozen=True, kw_only=True):
    """What was chosen for one place."""

    taken: tuple[Scored, ...] = ()
    """The best last."""
    budget: int = 0

    @property
    def snippets(self) -> tuple[Snippet, ...]:
        return tuple(
            # A name on disk need not be text, and what is sent must be.
            Snippet(path=without_surrogates(one.candidate.name), text=one.candidate.window.text)
            for one in self.taken
        )

    @property
    def worth(self) -> float:
        return sum(one.score for one in self.taken)


def choose(asked: Asked, sources: Sequence[Source], texts: Texts, before: Choice | None) -> Choice:
    """The windows to show, or those shown `before` while they are nearly as good. Reads files."""
    query = query_of(asked)
    own = "\n".join(asked.lines)
    candidates = [one for one in _candidates(sources, texts) if one.window.body not in own]
    scored = ranked(query, candidates)
    new = Choice(taken=_taken(scored, asked.budget), budget=asked.budget)
    if before is None or not before.taken or cost(before.taken) > asked.budget:
        return new
    places = {_place(one.candidate): one for one in scored}
    still = [places.get(_place(one.candidate)) for one in before.taken]
    kept = tuple(one for one in still if one is not None)
    if len(kept) == len(still) and sum(one.score for one in kept) >= STAYS * new.worth:
        return Choice(taken=kept, budget=asked.budget)
    return new


def query_of(asked: Asked) -> Query:
    """What the place around the cursor is compared by."""
    around = asked.lines[max(asked.line - LINES_BEFORE, 0) : asked.line + LINES_AFTER]
    return Query(
        words=identifiers("\n".join(around)),
        imports=imported_names(asked.lines),
        suffix=PurePath(asked.path).suffix.lower(),
    )


def files_to_look_at(asked: Asked, files: Mapping[str, Known]) -> list[str]:
    """Files on disk that may have something related: a few dozen of however many there are."""
    own = PurePath(asked.path)
    imports = imported_names(asked.lines)
    near = f"{own.parent}{os.sep}"
    kin: dict[str, bool] = {}
    known: list[str] = []
    alike: list[str] = []
    for path, one in files.items():
        if one.size > MAX_BYTES or path == asked.path:
            continue
        known.append(path)
        suffix = path[path.rfind(".") :].lower()
        if suffix not in kin:
            kin[suffix] = kinship(own.suffix.lower(), suffix) > OTHER_FAMILY
        if kin[suffix]:
            alike.append(path)
    imported = (path for path in alike if module_name(path) in imports)

    def changed(path: str) -> tuple[int, str]:
        return files[path].modified_ns, path

    chosen = [
        *heapq.nlargest(RECENT_FILES, alike, key=changed),
        *heapq.nsmallest(IMPORTED_FILES, imported, key=lambda path: _distance(path, own)),
        *heapq.nlargest(NEAR_FILES, (path for path in alike if path.startswith(near)), key=changed),
        *heapq.nlargest(NEAR_FILES, known, key=changed),
    ]
    return list(dict.fromkeys(chosen))


def cost(taken: Sequence[Scored]) -> int:
    """Characters that snippets take in a prompt."""
    return sum(_cost(one.candidate.window, one.candidate.name) for one in taken)


def _cost(window: Window, name: str) -> int:
    return len(window.text) + len(name) + NAME_COST


def _candidates(sources: Sequence[Source], texts: Texts) -> Iterator[Candidate]:
    for source in sources:
        if source.text is None:
            parts = texts.of_file(Path(source.path), source.state)
        else:
            parts = texts.of_text(source.path, source.state, source.text)
        for part in parts:
            yield Candidate(
                name=source.name,
                window=part.window,
                words=part.words,
                age_s=source.age_s,
                is_open=source.text is not None,
            )


def _taken(scored: Sequence[Scored], budget: int) -> tuple[Scored, ...]:
    taken: list[Scored] = []
    of_file: Counter[str] = Counter()
    for one in scored:
        if one.score < LEAST_SCORE or len(taken) == MOST_SNIPPETS:
            break
        name = one.candidate.name
        price = _cost(one.candidate.window, name)
        if of_file[name] == MOST_OF_A_FILE or price > budget:
            continue
        taken.append(one)
        of_file[name] += 1
        budget -= price
    return tuple(reversed(taken))


def _place(one: Candidate) -> tuple[str, str, str]:
    return one.name, one.window.header, one.window.body


def _distance(path: str, own: PurePath) -> tuple[int, str]:
    """Folders between two files."""
    parts, others = PurePath(path).parent.parts, own.parent.parts
    common = 0
    for part, other in zip(parts, others, strict=False):
        if part != other:
            break
        common += 1
    return len(parts) + len(others) - 2 * common, path
