"""A file's content changed in one step: at every moment it has the old bytes or the new ones.

Owns the temporary file beside it, what is flushed and when, and the removal of temporary files that
a killed process left behind. Knows no text and no rule about which file may be written.

Invariant: whatever happens, the path holds one of the two contents in full; mode and, where
allowed, owner of an existing file stay.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX, _SUFFIX = ".sspec-assist-", ".tmp"
_STALE_SECONDS = 600.0
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def replace(path: Path, data: bytes, *, mode: int) -> None:
    """Put `data` in the place of an existing file and give it `mode` (permission bits).

    Raises OSError; then the old content is still there.
    """
    owner = path.lstat()
    with _temporary(path.parent, data, 0o600) as temporary:
        now = temporary.lstat()
        if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (owner.st_uid, owner.st_gid):
            with contextlib.suppress(PermissionError):
                os.chown(temporary, owner.st_uid, owner.st_gid)
        temporary.chmod(mode)
        temporary.replace(path)
    _flush_folder(path.parent)


def create(path: Path, data: bytes) -> None:
    """Make a new file with `data`, never in the place of one that is there.

    Raises FileExistsError and other OSErrors; then nothing was made.
    """
    with _temporary(path.parent, data, 0o666) as temporary:
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            temporary.replace(path)
    _flush_folder(path.parent)


def remove(path: Path) -> None:
    """Take the file away for good."""
    path.unlink()
    _flush_folder(path.parent)


@contextlib.contextmanager
def _temporary(folder: Path, data: bytes, mode: int) -> Iterator[Path]:
    """A flushed file with `data` in the folder; gone afterwards unless it was renamed.

    `mode` is narrowed by the user's mask.
    """
    _remove_stale(folder)
    path = folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _remove_stale(folder: Path) -> None:
    """Take away temporary files of processes that were killed long ago."""
    for leftover in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            found = leftover.lstat()
            if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > _STALE_SECONDS:
                leftover.unlink()


def _flush_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
