"""Edits of files from an answer's code blocks: planned, shown, applied and undone.

Owns what a block would do to a file and the checks before it does so. A block is a unified diff,
SEARCH/REPLACE blocks, or else the file's whole content. Knows nothing of Textual; blocking, so run
it off the event loop.

Invariant: an edit is exact or refused (`EditRefused`), never a guess. A file that changed since it
was read or planned is left alone, and undoing restores the bytes and the mode.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tui import atomic_file, diff_text, patches
from tui.code_blocks import CodeBlock
from tui.edit_refused import EditRefused
from tui.text_file import Line, TextFile, decode, encode, finished, retexted, split
from tui.work_folder import find

__all__ = ["Edit", "EditRefused", "Undo", "apply_edit", "digest_of", "plan_edit", "undo_edit"]

MAX_BYTES = 4 * 1024 * 1024
"""A larger file is refused: it is hardly written by hand."""
_READ_AGAIN = "Read it again (attach it anew), then ask for the change once more."
_LEFT_OUT = re.compile(
    r"""^\s*(?:\#|//|--|/\*|<!--|\{/\*|;|%)+\s*(?:
        (?:\.\.\.|…).*
        | \(?(?:the\ )?(?:rest|remainder)\ of\ (?:the|your)
          \ (?:code|file|class|function|implementation|module|script|content|imports|methods)\b.*
        | \(?(?:the\ |your\ )?(?:existing|previous|other|remaining)
          \ (?:code|content|imports|methods|functions)
          (?:\ (?:here|unchanged|as\ before|remains?\b.*|stays?\b.*))?[)\s.…]*(?:\*/|-->)?\s*
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
"""A comment that stands for code the model did not repeat."""


class Edit(Struct, frozen=True, kw_only=True):
    """What would be written where; nothing has been written yet."""

    root: Path
    path: Path
    before: bytes | None
    """None where the file does not exist yet."""
    after: bytes
    digest: str
    """Of `before`; empty where there is none."""
    kind: Literal["create", "replace", "patch"]
    diff: str
    """Unified diff of the text, for the eye; line ends are not part of it."""

    @property
    def name(self) -> str:
        """The path below the working folder."""
        return self.path.relative_to(self.root).as_posix()


class Undo(Struct, frozen=True, kw_only=True):
    """What it takes to undo one applied edit."""

    root: Path
    path: Path
    before: bytes | None
    mode: int
    """Permission bits the file had; of no meaning where it was created."""
    digest: str
    """Of the bytes the edit wrote."""
    folders: tuple[Path, ...] = ()
    """Folders made for the file, outermost first."""


def digest_of(data: bytes) -> str:
    """What `read_digest` is compared with: SHA-256 of the file's bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def plan_edit(root: Path, target: str, block: CodeBlock, *, read_digest: str | None = None) -> Edit:
    """The edit the block asks for; `target` may be empty where a diff names its file.

    `read_digest` is that of the bytes the model was shown. Raises EditRefused.
    """
    if not block.closed:
        raise EditRefused(
            "cut_off", "the block was cut off before its end", "Let the answer go on first."
        )
    patch = patches.read(block.language, block.code)
    if patch is not None and target.endswith((".diff", ".patch")):
        patch = None  # the target is a file of diffs, the block its content
    path = _the_file(root, target, patch)
    root = root.resolve()
    name = path.relative_to(root).as_posix()
    before = _content(path)
    if read_digest is not None and (before is None or digest_of(before) != read_digest):
        raise EditRefused("changed", f"{name} has changed since it was read", _READ_AGAIN)
    file = decode(name, before or b"")
    if patch is None:
        lines = _whole(name, file, block.code, before)
    else:
        _check_creation(name, patch, before)
        lines = patches.placed(name, file, patch.hunks)
    after = encode(name, file, lines)
    if after == before:
        raise EditRefused("nothing", f"{name} is so already", "There is nothing to change.")
    return Edit(
        root=root,
        path=path,
        before=before,
        after=after,
        digest="" if before is None else digest_of(before),
        kind="create" if before is None else "replace" if patch is None else "patch",
        diff=diff_text.write(name, None if before is None else file.lines, lines),
    )


def apply_edit(edit: Edit) -> Undo:
    """Write the edit, atomically, if the file still is as it was at the plan.

    Raises EditRefused; then nothing was changed.
    """
    _find_again(edit.root, edit.path)
    current = _content(edit.path)
    if current != edit.before:
        raise EditRefused("changed", f"{edit.name} has changed since the preview", _READ_AGAIN)
    folders: list[Path] = []
    mode = 0
    try:
        if current is None:
            for folder in _missing_folders(edit.path):
                folder.mkdir()
                folders.append(folder)
            atomic_file.create(edit.path, edit.after)
        else:
            mode = stat.S_IMODE(edit.path.lstat().st_mode)
            atomic_file.replace(edit.path, edit.after, mode=mode)
    except OSError as error:
        _remove_empty(folders)
        raise _not_written(edit.name, error) from error
    return Undo(
        root=edit.root,
        path=edit.path,
        before=edit.before,
        mode=mode,
        digest=digest_of(edit.after),
        folders=tuple(folders),
    )


def undo_edit(undo: Undo) -> None:
    """Restore what was there before the edit, if nothing else was written since.

    Raises EditRefused.
    """
    name = undo.path.relative_to(undo.root).as_posix()
    _find_again(undo.root, undo.path)
    current = _content(undo.path)
    if current is None or digest_of(current) != undo.digest:
        raise EditRefused(
            "changed",
            f"{name} has changed since the edit",
            "Undo the edit by hand, so that what came later is not lost.",
        )
    try:
        if undo.before is None:
            atomic_file.remove(undo.path)
            _remove_empty(undo.folders)
        else:
            atomic_file.replace(undo.path, undo.before, mode=undo.mode)
    except OSError as error:
        raise _not_written(name, error) from error


def _the_file(root: Path, target: str, patch: patches.Patch | None) -> Path:
    """The one file the target and the block agree on."""
    named = patch.paths if patch is not None else ()
    if len(named) > 1:
        raise EditRefused(
            "several_files",
            f"the block changes {len(named)} files ({', '.join(named)})",
            "Ask for one block per file.",
        )
    if not named:
        return find(root, target)
    path = find(root, named[0])
    if target and find(root, target) != path:
        raise EditRefused(
            "other_file",
            f"the block is for {named[0]}, not for {target}",
            f"Apply it to {named[0]}, or ask again.",
        )
    return path


def _content(path: Path) -> bytes | None:
    """The file's bytes, None where there is no file; refuses what could not be written back."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EditRefused(
            "unreadable", f"{path} can't be read: {error.strerror}", "Check its permissions."
        ) from error
    if len(data) > MAX_BYTES:
        raise EditRefused(
            "too_large",
            f"{path} is larger than {MAX_BYTES // 2**20} MiB",
            "Edit it with another tool.",
        )
    if not found.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK):
        raise EditRefused("read_only", f"{path} is read-only", "Make it writable first.")
    return data


def _whole(name: str, file: TextFile, code: str, before: bytes | None) -> list[Line]:
    """The lines of a file whose whole content is the block's code."""
    lines = list(split(code))
    if before is None:
        return lines
    known = set(file.texts)
    for number, line in enumerate(lines, start=1):
        if _LEFT_OUT.match(line.text) and line.text not in known:
            raise EditRefused(
                "left_out",
                f"line {number} of the block leaves part of {name} out ({line.text.strip()})",
                "Ask for the whole file, or for a diff.",
            )
    texts = [line.text for line in lines]
    return finished(file, retexted(file, file.lines, texts), ends_open=file.ends_open)


def _check_creation(name: str, patch: patches.Patch, before: bytes | None) -> None:
    if before is None and any(hunk.old for hunk in patch.hunks):
        raise EditRefused(
            "no_file", f"the block changes {name}, which does not exist", "Check the path."
        )
    if before and patch.creates:
        raise EditRefused(
            "exists", f"the diff creates {name}, which exists", "Ask for a diff against it."
        )


def _find_again(root: Path, path: Path) -> None:
    """Refuse if since the plan a link or a folder has taken the place of a part of the path."""
    find(root, path.relative_to(root).as_posix())


def _missing_folders(path: Path) -> tuple[Path, ...]:
    return tuple(folder for folder in reversed(path.parents) if not folder.exists())


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _not_written(name: str, error: OSError) -> EditRefused:
    return EditRefused(
        "not_written",
        f"{name} can't be written: {error.strerror or error}",
        "Nothing was changed. Check the folder's permissions and the free space.",
    )
