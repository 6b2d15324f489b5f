"""Notes what changes on disk below the workspace folders, as far as the system lets it be watched.

Owns the watches: as few as can be, on whole trees where those are small and else folder by folder,
up to a bound, for systems give out few. It looks at no file and decides nothing; it notes paths
until someone takes them.

Invariant: what is noted has a bound; beyond it, the note is that anything may have changed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Protocol

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from engine.project_files.secrets import is_version_control, secret_reason
from engine.project_files.tree import TOOL_FOLDERS, Folder

MAX_NOTED = 500
MAX_WATCHES = 24
"""Trees and folders watched by themselves; each takes a thread."""
MAX_FOLDERS = 4096
"""Folders watched in all; each takes a place in a list of the kernel's."""
_RULES = (".gitignore", "exclude")
_EVENTS: list[type[FileSystemEvent]] = [
    *(FileCreatedEvent, FileModifiedEvent, FileMovedEvent, FileDeletedEvent),
    *(DirCreatedEvent, DirMovedEvent, DirDeletedEvent),
]

log = logging.getLogger(__name__)


class Notes(FileSystemEventHandler):
    """Paths that changed since they were last taken. For any thread."""

    def __init__(self) -> None:
        self.roots: tuple[str, ...] = ()
        self._paths: set[str] = set()
        self._all = False
        self._lock = threading.Lock()

    @property
    def all_changed(self) -> bool:
        """Anything may have changed."""
        return self._all

    def __bool__(self) -> bool:
        return self._all or bool(self._paths)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called by watchdog, in its thread."""
        places = (os.fsdecode(place) for place in (event.src_path, event.dest_path) if place)
        seen = [place for place in places if self._matters(PurePath(place))]
        with self._lock:
            if not seen or self._all:
                return
            self._paths.update(seen)
            rules = any(PurePath(place).name in _RULES for place in seen)
            if event.is_directory or rules or len(self._paths) > MAX_NOTED:
                self._all = True
                self._paths.clear()

    def _matters(self, path: PurePath) -> bool:
        """Whether a change there can change the index."""
        inside = [path.relative_to(root) for root in self.roots if path.is_relative_to(root)]
        if not inside:
            return False
        shortest = min(inside, key=lambda one: len(one.parts))
        if shortest.parts[-3:] == (".git", "info", "exclude"):
            return True
        return TOOL_FOLDERS.isdisjoint(shortest.parts) and secret_reason(shortest) is None

    def take(self) -> frozenset[str] | None:
        """What was noted, which is then forgotten; None if anything may have changed."""
        with self._lock:
            taken = None if self._all else frozenset(self._paths)
            self._all = False
            self._paths.clear()
        return taken


class Watches(Protocol):
    """What the index needs of a watch."""

    notes: Notes

    def cover(self, roots: Sequence[str], walked: Sequence[Folder]) -> bool:
        """Watch what was walked; False if not all of it can be."""
        ...

    def close(self) -> None:
        """End all watching."""
        ...


class FileWatch:
    """Watches folders for `Notes`. All of it belongs to one thread."""

    def __init__(self, max_watches: int = MAX_WATCHES, max_folders: int = MAX_FOLDERS) -> None:
        self.notes = Notes()
        self._max_watches = max_watches
        self._max_folders = max_folders
        self._observer: BaseObserver | None = None
        self._watches: dict[tuple[str, bool], ObservedWatch] = {}

    def cover(self, roots: Sequence[str], walked: Sequence[Folder]) -> bool:
        """Watch what was walked, and nothing else; False if not all of it can be."""
        self.notes.roots = tuple(roots)
        shapes = {folder.path: folder for folder in walked}
        weights = _weights(walked, self._max_folders)
        planned: dict[tuple[str, bool], None] = {}
        left = self._max_folders
        whole = True
        for path, recursive in _plan(roots, shapes, weights, self._max_folders):
            weight = weights[path] if recursive else 1
            if len(planned) == self._max_watches or weight > left:
                whole = False
                continue
            planned[path, recursive] = None
            left -= weight
        return self._watch(list(planned)) and whole

    def close(self) -> None:
        """End all watching."""
        observer, self._observer = self._observer, None
        self._watches.clear()
        if observer is not None:
            observer.stop()
            observer.join(timeout=2.0)

    def _watch(self, planned: Sequence[tuple[str, bool]]) -> bool:
        try:
            observer = self._observer or _started()
            self._observer = observer
            for key in self._watches.keys() - set(planned):
                observer.unschedule(self._watches.pop(key))
            for path, recursive in planned:
                # An old watch may be on a folder that was moved away since.
                old = self._watches.pop((path, recursive), None)
                if old is not None:
                    observer.unschedule(old)
                self._watches[path, recursive] = observer.schedule(
                    self.notes, path, recursive=recursive, event_filter=_EVENTS
                )
        except OSError as error:
            log.info("not everything can be watched: %s", error)
            return False
        return True


def _started() -> BaseObserver:
    observer = Observer()
    observer.daemon = True
    observer.start()
    return observer


def _plan(
    roots: Sequence[str], shapes: dict[str, Folder], weights: dict[str, int], most: int
) -> Iterator[tuple[str, bool]]:
    """What to watch, each with whether all below it is meant; those nearest the top first."""
    pending = list(roots)
    while pending:
        path = pending.pop(0)
        if path not in weights:
            continue
        small = weights[path] <= most // 2
        yield path, small
        if not small:
            pending.extend(shapes[path].kept)


def _weights(walked: Sequence[Folder], most: int) -> dict[str, int]:
    """How many folders there are at and below each folder, what is left out included. Counting
    stops at `most`."""
    weights: dict[str, int] = {}
    for folder in reversed(walked):
        # A folder that the walk did not get to may be of any size.
        below = sum(weights.get(path, most) for path in folder.kept)
        weights[folder.path] = 1 + below + sum(_size(path, most) for path in folder.left_out)
    return weights


def _size(path: str, most: int) -> int:
    """The number of folders in one that is left out."""
    name = PurePath(PurePath(path).name)
    if secret_reason(name) is not None and not is_version_control(name):
        return 1
    count = 0
    for _ in os.walk(path):
        count += 1
        if count >= most:
            break
    return count
