"""Answers in progress: kept as they come, in pieces, and folded into their message at the end.

Owns the journal table and who is writing which answer. An entry says "from character `text_at` on,
the text is this", so that keeping what came in a second costs the same at the end of a long answer
as at its beginning. It must not know conversations.

Invariant: a message with an `owner` has its true text in `content` followed by its entries in
order; a message without one has no entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, AnyStr

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from tui.history_schema import SearchIndex


class Journal:
    """The answers in progress of one store. Calls that write belong inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, index: SearchIndex, owner: str) -> None:
        self._connection = connection
        self._index = index
        self._owner = owner
        self._kept: dict[int, tuple[str, bytes]] = {}
        """What is on disk of each answer that this window is writing."""

    def claim(self, message: int) -> None:
        """Make this window the one that writes a message."""
        self._connection.execute(
            "UPDATE messages SET owner = ?, state = 'partial' WHERE id = ?", (self._owner, message)
        )

    def track(self, message: int, content: str, kinds: bytes) -> None:
        """Remember what is on disk of a message: to be called once the transaction is through."""
        self._kept[message] = (content, kinds)

    def is_own(self, message: int) -> bool:
        """Whether this window is writing that message."""
        return message in self._kept

    def append(self, message: int, content: str, kinds: bytes) -> None:
        """Write what is new since `track` was last told."""
        kept_content, kept_kinds = self._kept[message]
        if content == kept_content and kinds == kept_kinds:
            return
        self._connection.execute(
            "INSERT INTO journal (message, text_at, text, kinds_at, kinds) VALUES (?, ?, ?, ?, ?)",
            (message, *_piece(kept_content, content), *_piece(kept_kinds, kinds)),
        )

    def as_kept(self, row: Sequence[Any]) -> tuple[str, bytes]:
        """Text and kinds of a row of `MESSAGE_COLUMNS`, its entries applied."""
        content, kinds, owner = row[4], row[8], row[13]
        return (content, kinds) if owner is None else self.read(row[0], content, kinds)

    def read(self, message: int, content: str, kinds: bytes) -> tuple[str, bytes]:
        """A message as its entries leave it, given what its row holds."""
        entries = self._connection.execute(
            "SELECT text_at, text, kinds_at, kinds FROM journal WHERE message = ? ORDER BY seq",
            (message,),
        )
        pieces: list[str] = [content]
        length = len(content)
        for text_at, text, kinds_at, more in entries:
            if text_at != length:
                pieces = ["".join(pieces)[:text_at]]
                length = len(pieces[0])
            pieces.append(text)
            length += len(text)
            kinds = kinds[:kinds_at] + more
        return "".join(pieces), kinds

    def settle(self, message: int, content: str, kinds: bytes) -> None:
        """End a message with this text: no owner, no entries, findable."""
        self._index.remove(message)
        self._connection.execute(
            "UPDATE messages SET content = ?, kinds = ?, owner = NULL WHERE id = ?",
            (content, kinds, message),
        )
        self._connection.execute("DELETE FROM journal WHERE message = ?", (message,))
        self._index.add(message)

    def forget(self, message: int) -> None:
        """Let go of a message that is settled or gone."""
        self._kept.pop(message, None)

    def settle_own(self) -> None:
        """End every answer that this window has not finished; each stays partial."""
        self._settle_all(self._owner)
        self._kept.clear()

    def settle_dead(self, is_alive: Callable[[str], bool]) -> None:
        """End the answers of windows that are gone, and leave those of living ones alone."""
        owners = self._connection.execute(
            "SELECT DISTINCT owner FROM messages WHERE owner IS NOT NULL"
        ).fetchall()
        for (owner,) in owners:
            if owner != self._owner and not is_alive(owner):
                self._settle_all(owner)

    def _settle_all(self, owner: str) -> None:
        rows = self._connection.execute(
            "SELECT id, content, kinds FROM messages WHERE owner = ?", (owner,)
        ).fetchall()
        for message, content, kinds in rows:
            self.settle(message, *self.read(message, content, kinds))


def _piece(before: AnyStr, now: AnyStr) -> tuple[int, AnyStr]:
    """Where `now` departs from what was kept, and how it goes on from there."""
    same = _same(before, now)
    return same, now[same:]


def _same(before: AnyStr, now: AnyStr) -> int:
    if now.startswith(before):
        return len(before)
    # The last few bytes of `kinds` may change when more comes, so this is the common case for them.
    low, high = 0, min(len(before), len(now))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == now[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
