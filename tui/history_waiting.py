"""Questions that wait for the engine: kept until they are asked, and left asked by a dead window.

Owns the table of them. A question is asked in one step with its removal here; one whose window is
gone becomes a message at the place it was meant for, below what was asked before it, with an empty
answer, as if the window had died right after asking. It must not know the engine or the screen.

Invariant: a question is in this table or among the messages, never in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from engine.protocol import Snippet
from tui import history_records as records
from tui.history_search import storable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from tui.history_schema import SearchIndex

_ADD = """
INSERT INTO waiting (owner, conversation, parent, system, content, snippets, created)
VALUES (:owner, :conversation, :parent, :system, :content, :snippets, :created)
"""
_OF_OWNER = """
SELECT conversation, parent, system, content, snippets, created
FROM waiting WHERE owner = ? ORDER BY id
"""
_PLACE = "SELECT conversation, parent FROM waiting WHERE id = ?"
_MOVE = """
UPDATE waiting SET conversation = ?, parent = ?
WHERE owner = ? AND conversation IS ? AND parent IS ?
"""
_BEGIN = "INSERT INTO conversations (system, created, updated) VALUES (?, ?, ?)"


class Waits(Struct, frozen=True, kw_only=True):
    """A question that can't be asked yet."""

    conversation: int | None
    """None where it is to begin one, under `system`."""
    parent: int | None
    """The message it is to stand below."""
    system: str
    content: str
    snippets: tuple[Snippet, ...] = ()


class Waiting:
    """The waiting questions of one store. Calls that write belong inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, index: SearchIndex, owner: str) -> None:
        self._connection = connection
        self._index = index
        self._owner = owner

    def add(self, question: Waits, now: float) -> int:
        """Keep a question of this window; returns its number."""
        row = records.row_of(storable(question.content), now, {"snippets": question.snippets})
        row |= {
            "owner": self._owner,
            "conversation": question.conversation,
            "parent": question.parent,
            "system": storable(question.system),
        }
        return int(self._connection.execute(_ADD, row).lastrowid or 0)

    def remove(self, question: int) -> None:
        """It is taken back."""
        self._connection.execute("DELETE FROM waiting WHERE id = ?", (question,))

    def said(
        self, conversation: int, parent: int | None, message: int, question: int | None
    ) -> None:
        """Something was said below `parent`, perhaps the `question` that waited: what waits in
        this window for the same place is to be said below it."""
        meant = self._connection.execute(_PLACE, (question,)).fetchone()
        if question is not None:
            self.remove(question)
        for place in {(conversation, parent), meant or (conversation, parent)}:
            self._connection.execute(_MOVE, (conversation, message, self._owner, *place))

    def settle_own(self) -> None:
        """Ask what still waits in this window."""
        self._settle(self._owner)

    def settle_dead(self, is_alive: Callable[[str], bool]) -> None:
        """Ask what waited in windows that are gone."""
        owners = self._connection.execute("SELECT DISTINCT owner FROM waiting").fetchall()
        for (owner,) in owners:
            if owner != self._owner and not is_alive(owner):
                self._settle(owner)

    def _settle(self, owner: str) -> None:
        places: dict[tuple[int | None, int | None], tuple[int, int | None]] = {}
        """Where a question meant for a place goes: below the one that waited before it."""
        for conversation, parent, system, content, snippets, created in self._connection.execute(
            _OF_OWNER, (owner,)
        ).fetchall():
            meant = conversation, parent
            if meant not in places:
                if conversation is None:
                    begun = self._connection.execute(_BEGIN, (system, created, created))
                    conversation = int(begun.lastrowid or 0)
                places[meant] = conversation, parent
            question = self._say(places[meant], "user", content, snippets, created)
            places[meant] = places[meant][0], question
        for place in places.values():
            self._say(place, "assistant", "", None, created)
        self._connection.execute("DELETE FROM waiting WHERE owner = ?", (owner,))

    def _say(
        self,
        place: tuple[int, int | None],
        role: str,
        content: str,
        snippets: bytes | None,
        created: float,
    ) -> int:
        conversation, parent = place
        row = records.row_of(content, created, {"state": "whole" if content else "partial"})
        row |= {"conversation": conversation, "parent": parent, "role": role, "snippets": snippets}
        message = int(self._connection.execute(records.ADD, row).lastrowid or 0)
        self._connection.execute(records.MOVE_LEAF, (message, created, conversation))
        if role == "user":
            title = records.title_of(content)
            self._connection.execute(records.GIVE_TITLE, (title, conversation))
        self._index.add(message)
        return message
