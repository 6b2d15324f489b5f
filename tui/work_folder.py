"""Which file a written path means, if it is one that may be edited.

Owns containment: a path leads to a regular file, or to no file yet, inside the working folder,
through real folders only. Knows no content.

Invariant: no symbolic link below the folder is ever followed, and nothing is created here.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePath

from engine.project_files.secrets import is_version_control, secret_reason
from tui.edit_refused import EditRefused
from tui.safe_text import visible

_ELSEWHERE = "Only files in the working folder are edited."
_DRIVE = re.compile(r"^(?:[A-Za-z]:|\\\\)")


def find(root: Path, target: str) -> Path:
    """The absolute path of the target inside `root`; the file itself need not be there.

    Refuses what is outside, hidden behind a link, secret, a version control's, or no plain file.
    """
    root = root.resolve()
    relative = _relative(root, target)
    if is_version_control(relative):
        raise EditRefused(
            "control_folder",
            f"{relative.as_posix()} belongs to the version control",
            "Change it with the version control's own commands.",
        )
    if reason := secret_reason(relative):
        raise EditRefused(
            "secret",
            f"{relative.as_posix()} {reason}",
            "Edit it yourself, outside the chat.",
        )
    _walk(root, relative)
    return root / relative


def _relative(root: Path, target: str) -> PurePath:
    """The target below the root, by its letters alone."""
    if not target:
        raise EditRefused("path", "the block names no file", "Say which file it is for.")
    plain = visible(target) == target and not re.search(r"[\n\t]", target)
    if target != target.strip() or not plain:
        raise EditRefused(
            "path",
            f"{visible(target)!r} is not a usable path",
            "Say which file is meant, as a path inside the working folder.",
        )
    if "\\" in target and os.sep != "\\":
        raise EditRefused("path", f"{target} has backslashes", "Write the path with /.")
    path = PurePath(target)
    if path.is_absolute() and path.is_relative_to(root):
        path = path.relative_to(root)
    outside = path.is_absolute() or _DRIVE.match(target) or target.startswith("~")
    if outside or ".." in path.parts:
        raise EditRefused("outside", f"{target} is outside {root}", _ELSEWHERE)
    if not path.parts or target.endswith(("/", os.sep)):
        raise EditRefused("folder", f"{target} is a folder", "Name a file.")
    return path


def _walk(root: Path, relative: PurePath) -> None:
    """Look at every part that is there, without following any."""
    here = root
    for depth, part in enumerate(relative.parts, start=1):
        here = here / part
        try:
            mode = here.lstat().st_mode
        except FileNotFoundError:
            return
        except OSError as error:
            raise EditRefused(
                "path", f"{here} cannot be looked at: {error.strerror}", "Check the path."
            ) from error
        is_last = depth == len(relative.parts)
        if stat.S_ISLNK(mode):
            raise EditRefused(
                "link",
                f"{here} is a symbolic link",
                "Edit the file it points to, by its own name, from its own folder.",
            )
        if is_last and stat.S_ISDIR(mode):
            raise EditRefused("folder", f"{here} is a folder", "Name a file.")
        if not is_last and not stat.S_ISDIR(mode):
            raise EditRefused("path", f"{here} is a file, not a folder", "Check the path.")
        if is_last and not stat.S_ISREG(mode):
            raise EditRefused("special", f"{here} is a device, pipe or socket", "Name a file.")
