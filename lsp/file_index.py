"""The files of the workspace folders that may be read, and when each of them changed.

Owns the walk, and what is done about changes that `file_watch` noted: single files are looked at
again, anything greater means a new walk. Where a watch does not reach, it walks again from time to
time. Synchronous; all of it but `noted` and `stop` belongs to one thread. It opens no file but
`.gitignore`. The watch comes in with the first walk, for it is slow to import.

Invariant: what `files` has passed `project_files`; the number of them has a bound.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from engine.project_files.tree import Folder, Limits, ProjectTree

if TYPE_CHECKING:
    from lsp.file_watch import Watches

LIMITS = Limits(files=20_000, entries=100_000)
UNWATCHED_S = 20.0
"""Age of a walk that is no longer good where not everything is watched."""
WATCHED_S = 600.0
"""The same where all is, for systems lose events."""
REST_S = 2.0
"""Shortest time between two walks, and at least ten times what one takes."""


class FileState(Struct, frozen=True, kw_only=True):
    """What tells one state of a file from the next."""

    modified_ns: int
    size: int


class FileIndex:
    """Plain files of the workspace folders by absolute path."""

    def __init__(
        self,
        make_watch: Callable[[], Watches] | None = None,
        *,
        limits: Limits = LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files: dict[str, FileState] = {}
        self._make_watch = make_watch or _file_watch
        self._watch: Watches | None = None
        self._limits = limits
        self._clock = clock
        self._trees: list[ProjectTree] = []
        self._stopped = threading.Event()
        self._walked_at: float | None = None
        self._took_s = 0.0
        self._covered = False

    def use(self, folders: tuple[Path, ...]) -> None:
        """Look at these folders from now on; the next `refresh` walks them."""
        self._trees = [ProjectTree(root, limits=self._limits, links=False) for root in folders]
        self.files = {}
        self._walked_at = None

    @property
    def is_due(self) -> bool:
        """Whether a `refresh` would have something to do now. For any thread."""
        if self._walked_at is None or self._watch is None:
            return True
        age = self._clock() - self._walked_at
        if age > (WATCHED_S if self._covered else UNWATCHED_S):
            return True
        notes = self._watch.notes
        rested = age > max(REST_S, 10 * self._took_s)
        return rested if notes.all_changed else bool(notes)

    def holds(self, path: Path) -> bool:
        """Whether a file is in one of the folders and may be read, be it there or not."""
        return any(tree.holds(path) for tree in self._trees)

    def refresh(self) -> bool:
        """Bring the index up to date. True if anything in it changed. Blocks."""
        if not self.is_due or self._stopped.is_set():
            return False
        if self._watch is None:
            self._watch = self._make_watch()
        before = self.files
        paths = self._watch.notes.take()
        if not paths or self._walked_at is None:
            self._walk(self._watch)
            return self.files != before
        changed = False
        for path in paths:
            changed |= self._look_at(Path(path))
        return changed

    def stop(self) -> None:
        """Make a walk that is under way end soon. For any thread."""
        self._stopped.set()

    def close(self) -> None:
        """End the watch."""
        self.stop()
        if self._watch is not None:
            self._watch.close()

    def _walk(self, watch: Watches) -> None:
        begun = self._clock()
        files: dict[str, FileState] = {}
        self._covered = True
        walked: list[Folder] = []
        for tree in self._trees:
            for folder in tree.walk(self._stopped):
                walked.append(folder)
                for entry in folder.files:
                    state = _state(entry)
                    if state is not None:
                        files[entry.path] = state
            self._covered &= not tree.truncated
        if self._stopped.is_set():
            return
        self.files = files
        roots = tuple(str(tree.root) for tree in self._trees)
        self._covered &= watch.cover(roots, walked)
        self._walked_at = self._clock()
        self._took_s = self._walked_at - begun

    def _look_at(self, path: Path) -> bool:
        state = _state(path) if self.holds(path) else None
        known = self.files.pop(str(path), None)
        if state is not None and (known is not None or len(self.files) < self._limits.files):
            self.files[str(path)] = state
        return known != state


def _file_watch() -> Watches:
    from lsp.file_watch import FileWatch

    return FileWatch()


def _state(file: Path | os.DirEntry[str]) -> FileState | None:
    try:
        about = file.lstat() if isinstance(file, Path) else file.stat(follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(about.st_mode):
        return None
    return FileState(modified_ns=about.st_mtime_ns, size=about.st_size)
