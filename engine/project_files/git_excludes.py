"""Where git keeps the rules that no `.gitignore` holds: the user's own file and the repository's.

Owns how the two are found: `core.excludesFile` (its usual place where git can't be asked), and
`info/exclude` of the repository that a worktree or a submodule belongs to. Reads no rule.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 2.0
_POINTER = "gitdir:"


def exclude_files(top: Path) -> tuple[Path, ...]:
    """The files whose rules hold in the working tree `top`, outermost first; not all exist."""
    return _users_own(top), _common_folder(top / ".git") / "info" / "exclude"


def _users_own(top: Path) -> Path:
    asked = ["git", "-C", os.fspath(top), "config", "--type=path", "--get", "core.excludesFile"]
    with suppress(OSError, subprocess.TimeoutExpired):  # no git here, or none that answers
        said = subprocess.run(
            asked, input=b"", capture_output=True, timeout=PATIENCE_S, check=False,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )  # fmt: skip
        if said.returncode == 0:  # an empty name is none
            return top / os.fsdecode(said.stdout.removesuffix(b"\n").removesuffix(b"\r"))
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "git" / "ignore"


def _common_folder(entry: Path) -> Path:
    """What `.git` is or points to; of a worktree, the folder that it shares with the others."""
    folder = entry
    if (told := _line_of(entry)).startswith(_POINTER):
        folder = entry.parent / told.removeprefix(_POINTER).strip()
    shared = _line_of(folder / "commondir")
    return folder / shared if shared else folder


def _line_of(file: Path) -> str:
    if not file.is_file():
        return ""
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as lines:
            return lines.readline(4096).strip()
    except OSError:
        return ""
