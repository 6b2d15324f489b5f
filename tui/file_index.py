"""The files of the working folder, and which of them a few typed letters mean.

Owns the scoring and which names can be shown; what else is left out, and where the walk stops, is
`project_files`' business. Textual-free and synchronous: `refresh` is meant for a thread, `search`
for a thread too once there are many files; both may run at the same time.

Invariant: what it lists are plain files inside the folder that git would not ignore, that are not
known to hold secrets, and whose names can be shown and typed; paths are relative, with `/`.
"""

from __future__ import annotations

import heapq
import itertools
import os
import re
import threading
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from engine.project_files.tree import Limits, ProjectTree
from tui.safe_text import visible

if TYPE_CHECKING:
    from pathlib import Path

_UNTYPABLE = frozenset('"\x7f' + "".join(map(chr, range(32))))
"""A quoted mention ends at the quote, and no other of these gets through the input."""


class Found(Struct, frozen=True, kw_only=True):
    """A file that fits what was typed."""

    path: str
    positions: tuple[int, ...]
    """Characters of `path` that were matched."""


class FileIndex:
    """What can be named after an `@`."""

    def __init__(self, root: Path, *, limits: Limits | None = None) -> None:
        self.root = root
        self.truncated = False
        """The folder holds more than was looked at."""
        self._limits = limits
        self._files: list[str] = []
        self._built_at: float | None = None
        self._stopped = threading.Event()
        self._building = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    @property
    def age_s(self) -> float:
        """Seconds since the walk last ended; infinite before that."""
        return float("inf") if self._built_at is None else time.monotonic() - self._built_at

    def stop(self) -> None:
        """Make a walk that is under way end soon. The index can't be refreshed after that."""
        self._stopped.set()

    def refresh(self) -> None:
        """Walk the folder. Blocks; a call while another walks returns at once."""
        if not self._building.acquire(blocking=False):
            return
        try:
            files: list[str] = []
            # The first walk can be searched while it goes on; a later one takes over at its end.
            if self._built_at is None:
                self._files = files
            self.truncated = self._walk(files)
            if not self._stopped.is_set():
                self._files = files
                self._built_at = time.monotonic()
        finally:
            self._building.release()

    def search(self, query: str, limit: int = 8) -> tuple[Found, ...]:
        """The best `limit` files for `query`, best first; for an empty one, those nearest the top.

        Letters must come in order, in any case, with anything between them.
        """
        files = self._files[:]
        if not query:
            nearest = heapq.nsmallest(limit, files, key=lambda path: (path.count("/"), path))
            return tuple(Found(path=path, positions=()) for path in nearest)
        # Letters that may stand between are any but the one looked for, so that no path is tried
        # twice: 20,000 of them take some ten milliseconds.
        steps = "".join(f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in query)
        in_order = re.compile(steps, re.IGNORECASE | re.DOTALL)
        scored = ((score(query, path), path) for path in files if in_order.match(path))
        best = heapq.nsmallest(limit, scored, key=lambda pair: (-pair[0], len(pair[1]), pair[1]))
        return tuple(Found(path=path, positions=positions(query, path)) for _, path in best)

    def _walk(self, files: list[str]) -> bool:
        """Fill `files`, nearest first. True if there was more than may be looked at."""
        tree = ProjectTree(self.root, limits=self._limits, fits=_can_be_typed)
        for folder in tree.walk(self._stopped):
            paths = (os.path.relpath(entry.path, tree.root) for entry in folder.files)
            files.extend(path.replace(os.sep, "/") for path in paths)
        return tree.truncated


def _can_be_typed(name: str) -> bool:
    return _UNTYPABLE.isdisjoint(name) and (name.isascii() or visible(name) == name)


def score(query: str, path: str) -> int:
    """How well `query` fits `path`, given that its letters occur there in order; more is better.

    The name counts before its folders, one run before letters apart, a word's start before its
    middle.
    """
    wanted, known = query.lower(), path.lower()
    name_at = known.rfind("/") + 1
    name = known[name_at:]
    if wanted in (name, name.partition(".")[0]):
        return 1000
    for part, worth in ((name, 700), (known, 400)):
        at = part.find(wanted)
        if at >= 0:
            return worth + 100 * (at == 0) + 50 * _starts_word(part, at)
    places = positions(query, path)
    in_name = sum(place >= name_at for place in places)
    starts = sum(_starts_word(known, place) for place in places if place < len(known))
    runs = sum(b - a == 1 for a, b in itertools.pairwise(places))
    return 100 * (in_name == len(places)) + 8 * starts + 5 * runs + in_name


def positions(query: str, path: str) -> tuple[int, ...]:
    """Which characters of `path` stand for those of `query`: one run if there is one, as near the
    end as can be."""
    wanted, known = query.lower(), path.lower()
    if len(known) != len(path):  # some letters grow when lowered, and then places would not fit
        wanted, known = query, path
    run = known.rfind(wanted)
    if run >= 0:
        return tuple(range(run, run + len(wanted)))
    places: list[int] = []
    end = len(known)
    for letter in reversed(wanted):
        end = known.rfind(letter, 0, end)
        if end < 0:
            return ()
        places.append(end)
    return tuple(reversed(places))


def _starts_word(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()
