"""The file in which completions are counted: one SQLite store for all editors of a user.

Owns the tables, how the file is opened, and one thread that writes. Numbers only: no code, no path;
a suggestion's own text is kept where the user asked for it. Nothing here ever fails towards who
counts: what can't be written is logged once and lost.

Invariant: the file is for its owner alone (0600); several processes may write at once; what is
older than `KEPT_DAYS` goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

VERSION = 1
KEPT_DAYS = 90
BUSY_S = 5.0
_TRIES = 20
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    at REAL NOT NULL, source TEXT, latency_ms REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS suggestions (
    key TEXT PRIMARY KEY, at REAL NOT NULL, language TEXT NOT NULL, source TEXT NOT NULL,
    chars INTEGER NOT NULL, lines INTEGER NOT NULL, outcome TEXT NOT NULL,
    accepted_chars INTEGER NOT NULL, typed_chars INTEGER NOT NULL, seconds REAL NOT NULL,
    kept_30 REAL, kept_120 REAL, kept_600 REAL, code TEXT
);
CREATE TABLE IF NOT EXISTS decoded (
    at REAL NOT NULL, route TEXT NOT NULL, rounds INTEGER NOT NULL, drafted INTEGER NOT NULL,
    tested INTEGER NOT NULL, accepted INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS cancels (at REAL NOT NULL, tokens_after INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS answers_at ON answers (at);
CREATE INDEX IF NOT EXISTS suggestions_at ON suggestions (at);
CREATE INDEX IF NOT EXISTS decoded_at ON decoded (at);
CREATE INDEX IF NOT EXISTS cancels_at ON cancels (at);
"""
TABLES = ("answers", "suggestions", "decoded", "cancels")

log = logging.getLogger(__name__)


class LearningStore:
    """Writes rows, in the order in which it is given them, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._complaints: set[str] = set()
        self._closed = False

    def add(self, table: str, row: Mapping[str, object]) -> None:
        """Write a row."""
        names, places = ", ".join(row), ", ".join("?" * len(row))
        self._write(
            f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({places})", tuple(row.values())
        )

    def update(self, key: str, change: Callable[[], Mapping[str, object]]) -> None:
        """Change a suggestion's row; `change` is called in the thread."""

        def write() -> None:
            row = change()
            names = ", ".join(f"{name} = ?" for name in row)
            self._execute(f"UPDATE suggestions SET {names} WHERE key = ?", (*row.values(), key))

        self._submit(write)

    async def close(self) -> None:
        """Write what is left, and end the thread."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown()

    def _write(self, statement: str, values: Sequence[object]) -> None:
        self._submit(lambda: self._execute(statement, values))

    def _submit(self, work: Callable[[], None]) -> None:
        if self._closed:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="learning")
        self._thread.submit(self._guarded, work)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (sqlite3.Error, OSError) as error:
            self._complain(error)
        except Exception:
            log.exception("a count was lost")

    def _complain(self, error: Exception) -> None:
        if str(error) not in self._complaints:
            self._complaints.add(str(error))
            log.warning("completions can't be counted in %s: %s", self._path, error)

    def _execute(self, statement: str, values: Sequence[object]) -> None:
        if self._connection is None:
            self._connection = open_store(self._path)
        self._connection.execute(statement, values)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def open_store(path: Path) -> sqlite3.Connection:
    """Open or begin the store. A damaged one is renamed and kept; one of a newer version is
    refused. Raises `sqlite3.Error` and `OSError`."""
    _make_private(path)
    try:
        return _connected(path)
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
    for part in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            old = path.with_name(path.name + part)
            old.rename(path.with_name(f"{path.name}.damaged-{time.time_ns()}{part}"))
    _make_private(path)
    return _connected(path)


def open_to_read(path: Path) -> sqlite3.Connection | None:
    """The store for reading, or None if nothing was ever counted. Raises `sqlite3.Error`."""
    if not path.exists():
        return None
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        found = _version(connection)
    except BaseException:
        connection.close()
        raise
    if found:
        return connection
    connection.close()
    return None


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        _version(connection)
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        oldest = time.time() - KEPT_DAYS * 86_400
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE at < ?", (oldest,))
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    """The store's version, 0 for one just begun. Raises `sqlite3.Error` if it is a newer one."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        raise sqlite3.OperationalError(f"it was written by a newer sspec-assist (version {found})")
    return int(found)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Two that begin at once can get in each other's way, whatever the timeout."""
    for tries_left in reversed(range(_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if not tries_left:
                raise
            time.sleep(0.05)
        else:
            return
