"""Opening the store: the order in which a file becomes something to work with.

Owns that order only: refuse what is newer before touching it, make it private, look for damage and
set it aside, bring it up to date, take this window's lock. One window opens at a time, so that two
that start together neither migrate twice nor set aside each other's new file.

Invariant: it returns a store that is whole and of today's version, or raises and leaves the file
as it found it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from msgspec import Struct

from tui import history_file as files
from tui.history_schema import SCHEMA_VERSION, migrate, version
from tui.history_windows import WindowLock, alone, clear_dead

if TYPE_CHECKING:
    from pathlib import Path

OPENING_TIMEOUT_S = 10.0


class Opened(Struct, frozen=True, kw_only=True):
    """An open store. `notice` is a sentence if a damaged file was set aside for it."""

    path: Path
    connection: sqlite3.Connection
    window: WindowLock
    folder: Path
    """Where the locks of all windows are."""
    notice: str


def open_store(path: Path) -> Opened:
    """Open or begin the store at `path`. Raises `HistoryError`."""
    folder = path.with_suffix(".windows")
    with files.told_as_sentences(path):
        _refuse_newer(files.header_version(path), path)
        files.make_private(path)
        with alone(path.with_name(path.name + ".opening"), OPENING_TIMEOUT_S):
            connection, notice = _connect_or_begin_anew(path)
            try:
                window = WindowLock(folder)
            except OSError:
                connection.close()
                raise
            clear_dead(folder)
    return Opened(path=path, connection=connection, window=window, folder=folder, notice=notice)


def open_memory() -> sqlite3.Connection:
    """An empty store that lives as long as its connection."""
    connection = files.connect(":memory:")
    migrate(connection)
    return connection


def _connect_or_begin_anew(path: Path) -> tuple[sqlite3.Connection, str]:
    try:
        return _connect(path), ""
    except sqlite3.DatabaseError as error:
        if not files.is_damaged(error):
            raise
        kept = files.set_aside(path)
        files.make_private(path)
        notice = (
            f"The file of your conversations was damaged ({error}). It is kept as {kept.name} in "
            f"{kept.parent}; a new one was begun."
        )
        return _connect(path), notice


def _connect(path: Path) -> sqlite3.Connection:
    connection = files.connect(path)
    try:
        # The log may hold a newer version than the header of the file tells.
        _refuse_newer(version(connection), path)
        files.check(connection, path)
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_newer(found: int, path: Path) -> None:
    if found > SCHEMA_VERSION:
        raise files.HistoryError(
            "history_newer",
            f"{path} was written by a newer sspec-assist: version {found} of the store, this one "
            f"knows up to {SCHEMA_VERSION}",
            "Update sspec-assist, or set SSPEC_ASSIST_DATA to another folder; the file was not "
            "touched.",
        )
