"""One open store: its connection, who may use it now, and what becomes of it when the disk fails.

Owns the lock around the connection, the transactions, the window's life and the move into memory.
It must not know what is asked of the tables.

Invariant: inside `using` and `writing` the calling thread has the connection to itself, and nothing
but `HistoryError` comes out of them for what the disk or SQLite refuses.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tui import history_file as files
from tui.history_journal import Journal
from tui.history_open import Opened, open_memory
from tui.history_schema import SearchIndex, has_full_text, transaction
from tui.history_search import has_words
from tui.history_waiting import Waiting
from tui.history_windows import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MEMORY = "memory"
_ERASE_PAUSE_S = 0.01
"""Between two steps, so that others get their turn."""


class Store:
    """The connection with everything that hangs on it; without `opened`, one in memory."""

    connection: sqlite3.Connection
    index: SearchIndex
    journal: Journal
    waiting: Waiting

    def __init__(self, opened: Opened | None, *, full_text: bool) -> None:
        self.lock = threading.RLock()
        self._opened = opened
        self._full_text = full_text
        self._closing = threading.Event()
        self._eraser: threading.Thread | None = None
        self._deletions = 0
        self._place: Path | str = opened.path if opened else _MEMORY
        self._take(opened.connection if opened else open_memory())
        if opened is not None:
            self._settle_at_opening()
            if not self.index.is_erased():
                self.begin_erasing()

    @property
    def window(self) -> str:
        """The name this window writes under."""
        return self._opened.window.name if self._opened else _MEMORY

    @contextmanager
    def using(self) -> Iterator[None]:
        """Have the connection for oneself."""
        with self.lock:
            try:
                with files.told_as_sentences(self._place):
                    yield
            except files.HistoryError as error:
                if error.code == "history_damaged" and self._opened is not None:
                    files.mark_suspect(self._opened.path)
                raise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have the connection for oneself, inside a transaction."""
        with self.using(), transaction(self.connection):
            yield

    def hold(self, message: int) -> None:
        """Make this window the one that writes an answer, unless it is so already.

        Raises `HistoryError` if the message is gone or a living window is writing it.
        """
        if self.journal.is_own(message):
            return
        with self.writing():
            self.settle_dead()
            content, kinds = self._free_to(message)
            self.journal.claim(message)
        self.journal.track(message, content, kinds)

    def must_hold(self, message: int) -> None:
        """Raise `HistoryError` if an answer was deleted since this window began to write it."""
        self._free_to(message)

    def settle_dead(self) -> None:
        """End the answers of windows that are gone, and ask what waited there; to be called inside
        `writing`."""
        if self._opened is not None:
            folder = self._opened.folder
            for part in (self.journal, self.waiting):
                part.settle_dead(lambda name: is_alive(folder, name))

    def begin_erasing(self) -> None:
        """Get what was deleted out of the index and the log, in the background and in steps.

        What a closing window leaves undone, the next one does.
        """
        with self.lock:
            self._deletions += 1
            if self._eraser is None or not self._eraser.is_alive():
                self._eraser = threading.Thread(
                    target=self._erase, name="history-eraser", daemon=True
                )
                self._eraser.start()

    def wait_for_erasing(self) -> None:
        """Wait until nothing that was deleted is left in the file."""
        eraser = self._eraser
        if eraser is not None:
            eraser.join()

    def go_on_in_memory(self) -> None:
        """Copy what can be read into memory and leave the file as it is."""
        with self.lock:
            memory = files.connect(":memory:")
            try:
                self.connection.backup(memory)
            except sqlite3.Error:
                memory.close()
                memory = open_memory()
            self.connection.close()
            self._place = _MEMORY
            self._take(memory)

    def close(self) -> None:
        """End this window's unfinished answers as they are. Calling it twice is harmless."""
        self._closing.set()
        self.wait_for_erasing()
        with self.lock:
            with suppress(sqlite3.Error), transaction(self.connection):
                self.journal.settle_own()
                self.waiting.settle_own()
            self.connection.close()
            if self._opened is not None:
                self._opened.window.release()

    def _erase(self) -> None:
        seen = -1
        with suppress(files.HistoryError):
            while not self._closing.wait(_ERASE_PAUSE_S):
                with self.writing():
                    first = seen != self._deletions
                    seen = self._deletions
                    self.index.erase_step(first=first)
                with self.using():
                    if seen == self._deletions and self.index.is_erased():
                        # Where another window reads just now, a later deletion empties the log.
                        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                        self._eraser = None
                        return

    def _settle_at_opening(self) -> None:
        try:
            with self.writing():
                self.settle_dead()
        except files.HistoryError as error:
            # No reason to do without the store: what is unsettled reads the same, journal and all.
            if error.code not in ("history_full", "history_busy"):
                raise

    def _take(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        with files.told_as_sentences(self._place):
            connection.create_function("has_words", 2, has_words, deterministic=True)
            usable = self._full_text and has_full_text(connection)
            self.index = SearchIndex(connection, usable=usable)
            self.index.prepare()
        self.journal = Journal(connection, self.index, self.window)
        self.waiting = Waiting(connection, self.index, self.window)

    def _free_to(self, message: int) -> tuple[str, bytes]:
        row = self.connection.execute(
            "SELECT content, kinds, owner FROM messages WHERE id = ?", (message,)
        ).fetchone()
        if row is None:
            raise files.gone("message")
        content, kinds, owner = row
        if owner not in (None, self.window):
            raise files.HistoryError(
                "history_in_use",
                "another window is writing that answer",
                "Wait until it is over there, or ask again here.",
            )
        return content, kinds
