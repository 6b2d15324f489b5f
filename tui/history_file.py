"""The store as a file: made private, opened, refused, or set aside when it is damaged.

Owns permissions, pragmas, what SQLite's error codes mean to a user, and the fate of a file that
can't be read. It must not know the tables. A damaged file is renamed and kept, with its log, never
deleted; a file written by a newer version is not even opened.

Invariant: whatever `connect` returns has foreign keys on, waits 5 s for other writers, and erases
what is deleted.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from engine.protocol import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_TIMEOUT_MS = 5_000
_MAGIC = b"SQLite format 3\x00"
_VERSION_AT = 60
"""Where the file header keeps `user_version`, 4 bytes, big-endian."""
_PARTS = ("-wal", "-shm", "-journal", "")
"""A store's files, in the order to rename them in: a log that outlived its store for a moment would
be played into the new one."""
_CHECKED_BYTES = 32 * 2**20
"""Larger stores are looked through at opening only after an error: a check reads the whole file,
about 1 ms a MiB, and the first paint waits for it."""


class HistoryError(EngineError):
    """Conversations can't be kept or read as asked."""


def gone(what: str) -> HistoryError:
    """What to say of a conversation or a message that is no longer there."""
    return HistoryError(
        "history_gone",
        f"that {what} is not in the store any more",
        "Another window may have deleted it; open or begin another conversation.",
    )


def make_private(path: Path) -> None:
    """Make folder and file for this user alone: 0700 and 0600. Raises `OSError`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close_to_others(path.parent)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    _close_to_others(path)


def _close_to_others(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        with suppress(OSError):
            path.chmod(mode & 0o700)


def header_version(path: Path) -> int:
    """`user_version` as the file itself tells it, without opening the store; 0 if it can't."""
    try:
        with path.open("rb") as file:
            header = file.read(_VERSION_AT + 4)
    except FileNotFoundError:
        return 0
    if len(header) < _VERSION_AT + 4 or not header.startswith(_MAGIC):
        return 0
    return int.from_bytes(header[_VERSION_AT:], "big")


def connect(target: Path | str) -> sqlite3.Connection:
    """Open a store, ready for use from any thread one at a time. Raises `sqlite3.Error`.

    `synchronous = NORMAL`: a commit then waits for no disk, so that a journal entry never holds up
    a key press. A killed process loses nothing by it, since the pages are with the system already;
    a power cut loses at most what the system had not written yet, and never the file.
    """
    connection = sqlite3.connect(
        target,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether an error means that the file's content is wrong, rather than that it can't be had."""
    return _primary(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _primary(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Look for damage where that is quick or there is cause. Raises `sqlite3.DatabaseError`."""
    suspect = _mark_of(path)
    if path.stat().st_size > _CHECKED_BYTES and not suspect.exists():
        return
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        error = sqlite3.DatabaseError(verdict)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    suspect.unlink(missing_ok=True)


def mark_suspect(path: Path) -> None:
    """Have the next opening look through the whole file."""
    with suppress(OSError):
        _mark_of(path).touch(mode=0o600)


def _mark_of(path: Path) -> Path:
    return path.with_name(path.name + ".suspect")


def set_aside(path: Path) -> Path:
    """Rename a damaged store, its log with it, and return its new name. Raises `OSError`."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        target = path.with_name(f"{path.stem}.corrupt-{stamp}{suffix}{path.suffix}")
        if not target.exists():
            break
    for part in _PARTS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + part).rename(target.with_name(target.name + part))
    _mark_of(path).unlink(missing_ok=True)
    return target


_SENTENCES: dict[int, tuple[str, str, str]] = {
    sqlite3.SQLITE_FULL: (
        "history_full",
        "the disk that holds {path} is full",
        "The conversation goes on, but what is new is kept only until this window is closed.",
    ),
    sqlite3.SQLITE_READONLY: (
        "history_readonly",
        "{path} can't be written to",
        "Make the file and its folder writable, or set SSPEC_ASSIST_DATA to a folder that is.",
    ),
    sqlite3.SQLITE_BUSY: (
        "history_busy",
        "another window has kept {path} locked for more than 5 seconds",
        "Try again; if it stays so, close the other windows.",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "history_damaged",
        "{path} is damaged",
        "Start the chat again: the file is then set aside, not deleted, and a new one begun.",
    ),
}
_SAME = {
    sqlite3.SQLITE_NOTADB: sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_LOCKED: sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_PERM: sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN: sqlite3.SQLITE_READONLY,
}
_SYSTEM_CODES = {
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
    errno.EACCES: sqlite3.SQLITE_READONLY,
    errno.EPERM: sqlite3.SQLITE_READONLY,
    errno.EROFS: sqlite3.SQLITE_READONLY,
}


def sentence(error: sqlite3.Error | OSError, path: Path | str) -> HistoryError:
    """The error as something a user can act on."""
    if isinstance(error, TimeoutError):
        code = sqlite3.SQLITE_BUSY
    elif isinstance(error, OSError):
        code = _SYSTEM_CODES.get(error.errno or 0, sqlite3.SQLITE_IOERR)
    else:
        code = _primary(error)
    known = _SENTENCES.get(_SAME.get(code, code))
    if known is None:
        return HistoryError(
            "history_failed",
            f"{path} could not be used: {error}",
            "The conversation goes on, but what is new may not be kept.",
        )
    name, message, hint = known
    return HistoryError(name, message.format(path=path), hint)


@contextmanager
def told_as_sentences(path: Path | str) -> Iterator[None]:
    """Turn whatever SQLite or the system refuses into a `HistoryError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise sentence(error, path) from error
