"""A folder of the user's, as far as its files may be looked at.

Owns the walk (what is left out, in which order, where it stops) and the same question about one
path. Synchronous, and meant for threads. It opens no file but `.gitignore`; it knows neither who
asks nor what a file contains.

Invariant: what it gives are plain files inside the folder that git would not ignore and that are
not known to hold secrets; it never goes through a link to a folder.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from msgspec import Struct

from engine.project_files.ignore_rules import IgnoreRules
from engine.project_files.secrets import secret_reason

MAX_FILES = 50_000
MAX_ENTRIES = 400_000
"""Names looked at, ignored ones included: a folder without rules must not be walked for minutes."""
TOOL_FOLDERS = frozenset(
    (".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".tox", ".nox", ".venv")
) | frozenset((".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".DS_Store"))
"""Never walked, whatever the rules say."""


class Limits(Struct, frozen=True, kw_only=True):
    """Where a walk stops."""

    files: int = MAX_FILES
    entries: int = MAX_ENTRIES


class Folder(Struct, frozen=True, kw_only=True):
    """One folder on the way. Paths are absolute; what is in a folder is sorted by name."""

    path: str
    files: tuple[os.DirEntry[str], ...]
    kept: tuple[str, ...]
    """Folders in it that the walk goes into later."""
    left_out: tuple[str, ...]
    """Folders in it that it does not."""


class ProjectTree:
    """One folder and all below it."""

    def __init__(
        self,
        root: Path,
        *,
        limits: Limits | None = None,
        fits: Callable[[str], bool] | None = None,
        links: bool = True,
    ) -> None:
        """`fits` may refuse more names; `links` lets in links to files inside the folder."""
        self.root = Path(os.path.realpath(root))
        self.truncated = False
        """The last walk ended early: the folder holds more than was looked at."""
        self._limits = limits or Limits()
        self._fits = fits
        self._links = links
        self._rules: dict[str, IgnoreRules] = {}

    def walk(self, stopped: threading.Event) -> Iterator[Folder]:
        """Every folder, those nearest the top first; ends soon once `stopped` is set."""
        self.truncated = False
        self._rules = {}
        entries = files = 0
        pending = deque([str(self.root)])
        while pending and not stopped.is_set():
            path = pending.popleft()
            listed = _entries(path)[: self._limits.entries - entries + 1]
            entries += len(listed)
            folder = self._sorted_out(path, listed, self._limits.files - files)
            files += len(folder.files)
            pending.extend(folder.kept)
            self.truncated = entries > self._limits.entries or files >= self._limits.files
            yield folder
            if self.truncated:
                return

    def holds(self, path: Path) -> bool:
        """Whether a walk would come upon the file at `path`, which is absolute and not a link."""
        inside = path.is_relative_to(self.root) and path != self.root
        if not inside or os.path.realpath(path) != str(path):
            return False
        here = self.root
        *folders, name = path.relative_to(self.root).parts
        for folder in folders:
            if not self._wants(here, folder, is_folder=True):
                return False
            here /= folder
        return self._wants(here, name, is_folder=False)

    def _sorted_out(self, path: str, listed: list[os.DirEntry[str]], room: int) -> Folder:
        here = Path(path)
        files: list[os.DirEntry[str]] = []
        kept: list[str] = []
        left_out: list[str] = []
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                wanted = self._wants(here, entry.name, is_folder=True)
                (kept if wanted else left_out).append(entry.path)
            elif (
                len(files) < room
                and self._wants(here, entry.name, is_folder=False)
                and self._is_plain(entry)
            ):
                files.append(entry)
        return Folder(path=path, files=tuple(files), kept=tuple(kept), left_out=tuple(left_out))

    def _is_plain(self, entry: os.DirEntry[str]) -> bool:
        try:
            if not entry.is_symlink():
                return entry.is_file()
            inside = self._links and Path(entry.path).resolve().is_relative_to(self.root)
            return inside and entry.is_file()
        except (OSError, RuntimeError):
            return False

    def _wants(self, folder: Path, name: str, *, is_folder: bool) -> bool:
        if name in TOOL_FOLDERS or (self._fits is not None and not self._fits(name)):
            return False
        # With the folder's name, for some files are secret only where they stand. What stands above
        # was looked at on the way down.
        if secret_reason(PurePath(folder.name, name)) is not None:
            return False
        return not self._rules_in(folder).ignored(str(folder / name), is_folder=is_folder)

    def _rules_in(self, folder: Path) -> IgnoreRules:
        rules = self._rules.get(str(folder))
        if rules is None:
            at_root = folder == self.root
            above = IgnoreRules.above(folder) if at_root else self._rules_in(folder.parent)
            rules = self._rules[str(folder)] = above.inside(folder)
        return rules


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What a folder holds, by name; nothing if it can't be listed."""
    try:
        with os.scandir(folder) as listed:
            return sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return []
