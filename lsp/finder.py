"""The part of `workspace` that lives in a thread of its own: it reads, cuts, compares and chooses.

Owns the index of files and the texts that were read, which only its thread touches. What is open
comes along with each question, so that nothing is shared with the event loop.

Invariant: no text is looked at, open or on disk, that the rules refuse, that git ignores or that
lies outside the workspace folders; without such folders only open documents are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lsp.document import Snapshot
from lsp.file_texts import Texts
from lsp.path_rules import PathRules
from lsp.related import Asked, Choice, Source, choose, files_to_look_at
from lsp.uris import name_within
from lsp.windows import lines_of

if TYPE_CHECKING:
    from lsp.file_index import FileIndex
    from lsp.file_watch import Watches


class OpenText(Struct, frozen=True, kw_only=True):
    """A document that is open."""

    snapshot: Snapshot
    age_s: float
    """Since it changed; since it was opened if it never did."""


class Question(Struct, frozen=True, kw_only=True):
    """What to look for, and all that is needed to."""

    snapshot: Snapshot
    line: int
    budget: int
    open: tuple[OpenText, ...]
    rules: PathRules
    before: Choice | None


class Finder:
    """Finds related windows. Blocks; every method but `is_due` and `stop` is for one thread."""

    def __init__(
        self,
        watch: Callable[[], Watches] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._make_watch = watch
        self._clock = clock
        self._index: FileIndex | None = None
        self._folders: tuple[Path, ...] = ()
        self._texts = Texts()
        self._stopped = False

    @property
    def is_due(self) -> bool:
        """Whether a `refresh` would have something to do. For any thread."""
        return not self._stopped and (self._index is None or self._index.is_due)

    def stop(self) -> None:
        """Make what runs end soon. For any thread."""
        self._stopped = True
        if self._index is not None:
            self._index.stop()

    def find(self, question: Question) -> Choice:
        """What to show at a place."""
        index = self._indexed(question.rules.folders)
        own = _real(question.snapshot.path)
        asked = Asked(
            path=own,
            lines=tuple(lines_of(question.snapshot.text)),
            line=question.line,
            budget=question.budget,
        )
        sources = [one for one in self._open(question, index) if one.path != own]
        sources.extend(self._on_disk(question, asked, index))
        return choose(asked, sources, self._texts, question.before)

    def refresh(self, folders: tuple[Path, ...]) -> bool:
        """Bring the index up to date. True if it changed."""
        return self._indexed(folders).refresh() if folders else False

    def close(self) -> None:
        """End the watch on the files."""
        self.stop()
        if self._index is not None:
            self._index.close()

    def _indexed(self, folders: tuple[Path, ...]) -> FileIndex:
        if self._index is None:
            from lsp.file_index import FileIndex

            self._index = FileIndex(self._make_watch)
            if self._stopped:
                self._index.stop()
        if folders != self._folders:
            self._folders = folders
            self._index.use(folders)
        return self._index

    def _on_disk(self, question: Question, asked: Asked, index: FileIndex) -> Iterator[Source]:
        taken = {_real(one.snapshot.path) for one in question.open}
        files = {path: state for path, state in index.files.items() if path not in taken}
        roots = [Path(os.path.realpath(folder)) for folder in question.rules.folders]
        now = self._clock()
        for path in files_to_look_at(asked, files):
            if question.rules.refused(Path(path)) is None and index.holds(Path(path)):
                yield Source(
                    path=path,
                    name=name_within(Path(path), roots),
                    state=files[path],
                    age_s=now - files[path].modified_ns / 1e9,
                )

    def _open(self, question: Question, index: FileIndex) -> Iterator[Source]:
        for one in question.open:
            path = one.snapshot.path
            if path is None or question.rules.refused(path) is not None:
                continue
            real = _real(path)
            if not self._folders or index.holds(Path(real)):
                yield Source(
                    path=real,
                    name=one.snapshot.name or path.name,
                    state=(one.snapshot.uri, one.snapshot.version, len(one.snapshot.text)),
                    age_s=one.age_s,
                    text=one.snapshot.text,
                )


def _real(path: Path | None) -> str:
    return "" if path is None else os.path.realpath(path)
