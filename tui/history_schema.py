"""The tables of the conversation store, and how an older store becomes one of today.

Owns every statement that defines something, the version in `user_version`, and the full-text index.
It must not know messages as structs, nor windows. The steps in `MIGRATIONS` are never edited once
released: step n turns version n into n + 1, in one transaction.

Invariant: after `migrate`, `user_version == SCHEMA_VERSION`; a failed step leaves the store at the
version it had. The index has every row of `messages` with its present text, or is marked stale.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # AUTOINCREMENT: the id of something deleted must never come to mean something else, since
        # another window may still hold it.
        """
        CREATE TABLE conversations (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL DEFAULT '',
            system TEXT NOT NULL DEFAULT '',
            created REAL NOT NULL,
            updated REAL NOT NULL,
            leaf INTEGER,
            FOREIGN KEY (id, leaf) REFERENCES messages (conversation, id)
                DEFERRABLE INITIALLY DEFERRED
        )
        """,
        # The pair (conversation, parent) keeps a branch from reaching into another conversation.
        # No ON DELETE CASCADE along parents: SQLite follows it by recursion, 1,000 deep at most.
        """
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation INTEGER NOT NULL REFERENCES conversations (id),
            parent INTEGER,
            role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
            content TEXT NOT NULL,
            snippets BLOB,
            state TEXT NOT NULL CHECK (state IN ('whole', 'partial', 'failed')),
            created REAL NOT NULL,
            kinds BLOB NOT NULL DEFAULT x'',
            usage BLOB,
            greedy INTEGER NOT NULL DEFAULT 0,
            owner TEXT,
            UNIQUE (conversation, id),
            FOREIGN KEY (conversation, parent) REFERENCES messages (conversation, id)
                DEFERRABLE INITIALLY DEFERRED
        )
        """,
        "CREATE INDEX messages_by_parent ON messages (conversation, parent)",
        "CREATE INDEX messages_in_progress ON messages (owner) WHERE owner IS NOT NULL",
        "CREATE INDEX conversations_by_age ON conversations (updated DESC)",
        """
        CREATE TABLE journal (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
            text_at INTEGER NOT NULL,
            text TEXT NOT NULL,
            kinds_at INTEGER NOT NULL,
            kinds BLOB NOT NULL
        )
        """,
        "CREATE INDEX journal_by_message ON journal (message)",
    ),
    (
        "ALTER TABLE messages ADD COLUMN model TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE messages ADD COLUMN sampling BLOB",
        "CREATE TABLE search_state (stale INTEGER NOT NULL, unerased INTEGER NOT NULL)",
        "INSERT INTO search_state VALUES (1, 0)",
    ),
    (
        """
        CREATE TABLE waiting (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            owner TEXT NOT NULL,
            conversation INTEGER REFERENCES conversations (id) ON DELETE CASCADE,
            parent INTEGER,
            system TEXT NOT NULL,
            content TEXT NOT NULL,
            snippets BLOB,
            created REAL NOT NULL
        )
        """,
    ),
)
SCHEMA_VERSION = len(MIGRATIONS)

# Trigrams find parts of identifiers, and words of scripts that put no spaces between them.
_INDEX = """
CREATE VIRTUAL TABLE IF NOT EXISTS message_index
USING fts5 (content, content='messages', content_rowid='id', tokenize='trigram')
"""
_TRIGRAM_SINCE = (3, 34)
_ERASE_PAGES = 64


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; takes the write lock at once, so that it can't fail half-way for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After a full disk SQLite has rolled back by itself already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def version(connection: sqlite3.Connection) -> int:
    """The version a store was last written with; 0 for a new file."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    return int(found)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the store to `SCHEMA_VERSION`, step by step. Raises `sqlite3.Error`."""
    for step in range(version(connection), SCHEMA_VERSION):
        with transaction(connection):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step + 1}")


def has_full_text(connection: sqlite3.Connection) -> bool:
    """Whether this Python's SQLite can keep and read the index."""
    if sqlite3.sqlite_version_info < _TRIGRAM_SINCE:
        return False
    found = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone()
    return found is not None


class SearchIndex:
    """The full-text index over `messages.content`, kept by these calls inside a transaction.

    Not by triggers: those would make every write fail where SQLite lacks FTS5. There, writes mark
    the index stale instead, and the next window that has FTS5 builds it again.
    """

    def __init__(self, connection: sqlite3.Connection, *, usable: bool) -> None:
        self._connection = connection
        self.usable = usable

    def prepare(self) -> None:
        """Make the index if there is none, and build it again if it is stale."""
        if not self.usable:
            return
        (stale,) = self._connection.execute("SELECT stale FROM search_state").fetchone()
        if stale:
            with transaction(self._connection):
                self._connection.execute(_INDEX)
                self._command("rebuild")
                self._connection.execute("UPDATE search_state SET stale = 0")

    def add(self, message: int) -> None:
        """Index a message as it now is."""
        if not self._usable_or_stale():
            return
        self._connection.execute(
            "INSERT INTO message_index (rowid, content) "
            "SELECT id, content FROM messages WHERE id = ?",
            (message,),
        )

    def remove(self, message: int) -> None:
        """Take a message out; to be called while its row still has the text that was indexed."""
        if not self._usable_or_stale():
            return
        self._connection.execute(
            "INSERT INTO message_index (message_index, rowid, content) "
            "SELECT 'delete', id, content FROM messages WHERE id = ?",
            (message,),
        )

    def remove_conversation(self, conversation: int) -> None:
        """Take a conversation's messages out; what they said is in the file until `erase_step`."""
        self._connection.execute("UPDATE search_state SET unerased = 1")
        if not self._usable_or_stale():
            return
        self._connection.execute(
            "INSERT INTO message_index (message_index, rowid, content) "
            "SELECT 'delete', id, content FROM messages WHERE conversation = ?",
            (conversation,),
        )

    def is_erased(self) -> bool:
        """Whether nothing that was removed is left in the index."""
        (unerased,) = self._connection.execute("SELECT unerased FROM search_state").fetchone()
        return not unerased

    def erase_step(self, *, first: bool) -> None:
        """Do a few milliseconds of the work that drops removed terms from the index.

        FTS5 only notes a removal; the terms go when the older segments are merged with the note.
        Merging all at once would hold up every window for about 20 ms a MiB of the index.
        """
        before = self._connection.total_changes
        if self.usable:
            pages = -_ERASE_PAGES if first else _ERASE_PAGES
            self._connection.execute(
                "INSERT INTO message_index (message_index, rank) VALUES ('merge', ?)", (pages,)
            )
        # The command itself counts as one change.
        if self._connection.total_changes - before < 2:
            self._connection.execute("UPDATE search_state SET unerased = 0")

    def check(self) -> None:
        """Raise `sqlite3.DatabaseError` if the index and the messages disagree."""
        self._connection.execute(
            "INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)"
        )

    def _command(self, command: str) -> None:
        self._connection.execute("INSERT INTO message_index (message_index) VALUES (?)", (command,))

    def _usable_or_stale(self) -> bool:
        if not self.usable:
            self._connection.execute("UPDATE search_state SET stale = 1 WHERE stale = 0")
        return self.usable
