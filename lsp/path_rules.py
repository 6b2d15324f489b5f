"""Which files are neither completed in nor shown: secrets, and what the settings leave out.

Goes by names, and by the name of what a link leads to; it opens nothing. What git ignores is not
its business: such files are completed in, though never shown with others.

Invariant: an object never changes; new folders or settings make a new one.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from engine.project_files.secrets import secret_reason

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

log = logging.getLogger(__name__)


class PathRules:
    """The rules for some workspace folders and some globs of the settings."""

    def __init__(self, folders: tuple[Path, ...] = (), globs: tuple[str, ...] = ()) -> None:
        self.folders = folders
        self.globs = globs
        self._spec = _spec(globs) if globs else None
        self._roots = folders
        if folders:
            self._roots += tuple(Path(os.path.realpath(folder)) for folder in folders)

    def refused(self, path: Path) -> str | None:
        """Why a file must be left alone, as the end of a sentence, or None. Looks at no more of the
        disk than where links lead."""
        for place in dict.fromkeys((path, Path(os.path.realpath(path)))):
            within = self._within(place)
            reason = secret_reason(within)
            if reason is not None:
                return reason
            if self._spec is not None and self._spec.match_file(_relative(within)):
                return "is left out by the settings"
        return None

    def _within(self, path: Path) -> PurePath:
        """The path from the innermost folder on, that folder's own name included."""
        holding = [root for root in self._roots if path.is_relative_to(root)]
        if not holding:
            return path
        root = max(holding, key=lambda one: len(one.parts))
        return PurePath(root.name or root.anchor) / path.relative_to(root)


def _relative(within: PurePath) -> str:
    return PurePath(*within.parts[1:]).as_posix()


def _spec(globs: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    good = []
    for glob in globs:
        try:
            GitIgnoreSpec.from_lines([glob])
        except ValueError as error:
            log.warning("a glob of the settings is not understood: %s", error)
        else:
            good.append(glob)
    return GitIgnoreSpec.from_lines(good)
