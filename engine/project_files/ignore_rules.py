"""What git would ignore: every `.gitignore` from the repository's root down, in git's own order.

Owns where the rules come from (the user's own file, the enclosing repository's `info/exclude` and
`.gitignore` files, then each folder's own) and which one wins: the innermost that says anything,
and in one file the last line. It lists no folder and knows nothing of the index that asks.

Invariant: an object is never changed; going into a folder makes a new one. A rules file that can't
be read, is huge or is no plain file counts as empty, and a line git could not read is left out.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pathspec import GitIgnoreSpec

from engine.project_files.git_excludes import exclude_files

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger(__name__)

MAX_RULES_BYTES = 1 << 20


class IgnoreRules:
    """The rules that hold in one folder, outermost first."""

    def __init__(self, layers: tuple[tuple[str, GitIgnoreSpec], ...] = ()) -> None:
        self._layers = layers

    @classmethod
    def above(cls, root: Path) -> Self:
        """What the repository around `root` says, `root`'s own file not included.

        A folder that its repository ignores altogether is looked at as if there were none:
        whoever works in it wants to see what is there.
        """
        outer = [root, *root.parents]
        tops = [n for n, folder in enumerate(outer) if (folder / ".git").exists()]
        if not tops:
            return cls()
        top, rules = tops[0], cls()
        for file in exclude_files(outer[top]):
            rules = rules._with(outer[top], file)
        for folder in reversed(outer[1 : top + 1]):
            rules = rules.inside(folder)
        return cls() if rules.ignored(str(root), is_folder=True) else rules

    def inside(self, folder: Path) -> Self:
        """These rules and those of `folder`'s own `.gitignore`."""
        return self._with(folder, folder / ".gitignore")

    def ignored(self, path: str, *, is_folder: bool) -> bool:
        """Whether git would leave out `path`, given as an absolute path with this system's
        separators. Folders above it are taken to be not ignored."""
        for base, spec in reversed(self._layers):
            relative = path[len(base) :].replace(os.sep, "/")
            verdict = spec.check_file(f"{relative}/" if is_folder else relative).include
            if verdict is not None:
                return verdict
        return False

    def _with(self, base: Path, file: Path) -> Self:
        lines = _lines_of(file)
        if not lines:
            return self
        prefix = str(base) if str(base).endswith(os.sep) else f"{base}{os.sep}"
        return type(self)((*self._layers, (prefix, _spec(lines))))


def _lines_of(file: Path) -> list[str]:
    try:
        # Looked at before it is opened: a FIFO of that name would block whoever reads it.
        about = file.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_RULES_BYTES:
            return []
        return file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except OSError:
        return []


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    good = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            _log.debug("ignore rule left out: %s", error)
        else:
            good.append(line)
    return GitIgnoreSpec.from_lines(good)
