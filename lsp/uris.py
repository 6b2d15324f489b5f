"""What a document's address says about files: its path, and its name within a workspace folder.

Pure; it looks at no disk. Schemes that stand for a file of this machine give its path: `file`, the
cells of its notebook, and an `untitled` document that has a name already. Everything else (virtual
and remote file systems, diffs, terminals) has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOCAL = ("file", "vscode-notebook-cell", "untitled")
_DRIVE = re.compile(r"/[A-Za-z]:(/|$)")


def path_of(uri: str) -> Path | None:
    """The file that a URI stands for, or None if it stands for none of this machine."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme not in _LOCAL or not path.startswith("/") or "\0" in path:
        return None
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        return Path(f"//{unquote(parts.netloc)}{path}")
    return Path(path[1:] if _DRIVE.match(path) else path)


def name_within(path: Path | None, folders: Iterable[Path]) -> str:
    """A path as seen from the innermost folder that holds it; else the file's own name."""
    if path is None:
        return ""
    holding = [folder for folder in folders if path.is_relative_to(folder)]
    if not holding:
        return path.name
    return path.relative_to(max(holding, key=lambda folder: len(folder.parts))).as_posix()


def notebook_of(uri: str) -> str:
    """The part of a cell's URI that all cells of its notebook share; empty for no cell."""
    base, mark, _ = uri.partition("#")
    return base if mark else ""
