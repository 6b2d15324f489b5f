"""Conversations on disk: trees of messages, one SQLite file that several windows share.

Owns the store and its rules; synchronous and free of Textual. Any thread may call it, one call at a
time. It must not know how a conversation is shown, nor what `kinds` encodes. Whatever the disk or
SQLite refuses comes out as `HistoryError`; the caller goes on, and may ask for `go_on_in_memory`.

Invariant: every message but a first one has its parent in the same conversation, the leaf is one of
the conversation's messages, and a call either took effect whole or not at all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec
from msgspec.structs import replace

from engine.protocol import Role, Usage
from tui import history_records as records
from tui.history_file import HistoryError, gone
from tui.history_open import Opened, open_store
from tui.history_records import Conversation, Details, Message, State
from tui.history_search import excerpt, match_expression, parse_query, storable
from tui.history_store import Store

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tui.history_waiting import Waits

__all__ = ["Conversation", "History", "HistoryError", "Message"]

_TAKES_NO_MORE = ("history_full", "history_readonly", "history_failed")


class History:
    """The conversations of one user. `notice` is a sentence if something had to be put right."""

    def __init__(
        self,
        opened: Opened | None = None,
        *,
        full_text: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without an opened store: one in memory. Without `full_text`: as if SQLite had no FTS5."""
        self.notice = opened.notice if opened else ""
        self._clock = clock
        self._store = Store(opened, full_text=full_text)

    @classmethod
    def open(
        cls, path: Path, *, full_text: bool = True, clock: Callable[[], float] = time.time
    ) -> History:
        """Open or begin the store; answers that dead windows left unfinished become partial.

        Raises `HistoryError` where it can't be had, or was written by a newer version; in that case
        nothing is touched.
        """
        opened = open_store(path)
        try:
            return cls(opened, full_text=full_text, clock=clock)
        except BaseException:
            opened.connection.close()
            opened.window.release()
            raise

    @classmethod
    def open_or_in_memory(cls, path: Path) -> History:
        """The store at `path`, or one in memory whose `notice` says why."""
        try:
            return cls.open(path)
        except HistoryError as error:
            history = cls()
            history.notice = f"Conversations are not kept: {error}"
            return history

    def close(self) -> None:
        """End this window's unfinished answers as they are. Calling it twice is harmless."""
        self._store.close()

    def go_on_in_memory(self) -> None:
        """Leave the file as it is and keep everything from here on in memory, with the same ids."""
        self._store.go_on_in_memory()

    def go_on_without_file(self, error: HistoryError) -> bool:
        """Go on in memory if `error` says that the file takes no more; tells whether it did."""
        if takes_no_more := error.code in _TAKES_NO_MORE:
            self.go_on_in_memory()
        return takes_no_more

    def create(self, system: str = "") -> Conversation:
        """Begin a conversation; it is listed once something was said in it."""
        now = self._clock()
        with self._store.writing():
            made = self._do(
                "INSERT INTO conversations (system, created, updated) VALUES (?, ?, ?)",
                (storable(system), now, now),
            )
        return self.conversation(int(made.lastrowid or 0))

    def conversation(self, conversation: int) -> Conversation:
        """One conversation. Raises `HistoryError` if it is gone."""
        found = self._rows(records.CONVERSATIONS + " WHERE c.id = ?", (conversation,))
        if not found:
            raise gone("conversation")
        return records.conversation_of(found[0])

    def conversations(self, query: str = "", limit: int = 50) -> list[Conversation]:
        """Those with something said in them, the latest first; with a query, those whose title or
        one of whose messages has all its words, with an excerpt of that message."""
        asked = parse_query(query)
        if not asked.words:
            rows = self._rows(records.CONVERSATIONS + records.SAID, (limit,))
            return [records.conversation_of(row) for row in rows]
        usable = self._store.index.usable
        indexed = asked.indexed if usable else ()
        exact = asked.exact if usable else asked.words
        matching = (match_expression(indexed),) if indexed else ()
        hits = records.HITS.format(records.MATCHING if indexed else "1")
        rows = self._rows(hits, (*matching, "\n".join(exact), "\n".join(asked.words), limit))
        return [
            replace(records.conversation_of(row), excerpt=excerpt(row[6] or "", asked.words))
            for row in rows
        ]

    def add(
        self,
        conversation: int,
        parent: int | None,
        role: Role,
        content: str,
        **details: Unpack[Details],
    ) -> Message:
        """Say something below `parent` (None: at the beginning), and make it the leaf.

        An answer added as `partial` is this window's to write: see `journal` and `finish`. The
        first thing a user says becomes the title of a conversation without one.
        """
        content, now = storable(content), self._clock()
        values = records.row_of(content, now, details)
        in_progress = role == "assistant" and values["state"] == "partial"
        with self._store.writing():
            self._must_have(conversation, parent)
            place = {"conversation": conversation, "parent": parent, "role": role}
            message = int(self._do(records.ADD, values | place).lastrowid or 0)
            self._do(records.MOVE_LEAF, (message, now, conversation))
            self._store.waiting.said(conversation, parent, message, details.get("waited"))
            if role == "user":
                self._do(records.GIVE_TITLE, (records.title_of(content), conversation))
            if in_progress:
                self._store.journal.claim(message)
            self._store.index.add(message)
        if in_progress:
            self._store.journal.track(message, content, b"")
        return self.message(message)

    def wait(self, question: Waits) -> int:
        """Keep a question under a number until `add` or `take_back`; closing the window asks it."""
        with self._store.writing():
            return self._store.waiting.add(question, self._clock())

    def take_back(self, waiting: int) -> None:
        """A question that waited is not to be asked."""
        with self._store.writing():
            self._store.waiting.remove(waiting)

    def journal(self, message: int, content: str, kinds: bytes) -> None:
        """Keep an answer in progress: `content` and `kinds` are all there is so far.

        Costs what is new since the last call. An answer that was finished before is opened again.
        """
        content = storable(content)
        with self._store.lock:
            self._store.hold(message)
            with self._store.writing():
                self._store.must_hold(message)
                self._store.journal.append(message, content, kinds)
            self._store.journal.track(message, content, kinds)

    def finish(
        self, message: int, content: str, state: State, usage: Usage | None, kinds: bytes
    ) -> None:
        """End an answer with its text as it finally is."""
        content = storable(content)
        told = msgspec.json.encode(usage) if usage is not None else None
        with self._store.lock:
            self._store.hold(message)
            with self._store.writing():
                self._store.must_hold(message)
                self._store.journal.settle(message, content, kinds)
                self._do(records.END, (state, told, message))
                self._do(records.TOUCH, (self._clock(), message))
            self._store.journal.forget(message)

    def message(self, message: int) -> Message:
        """One message, an answer in progress as far as it is kept. Raises `HistoryError`."""
        return self._messages(records.ONE_MESSAGE, message, at_least_one=True)[0]

    def thread(self, leaf: int) -> list[Message]:
        """The messages from the first one down to `leaf`. Raises `HistoryError` if it is gone."""
        return self._messages(records.THREAD, leaf, at_least_one=True)

    def siblings(self, message: int) -> list[Message]:
        """A message and what was said in its place, in the order in which it was said."""
        return self._messages(records.SIBLINGS, message)

    def tip(self, message: int) -> int:
        """Where one comes to by following the newest branch down from a message."""
        found = self._rows(records.TIP, (message,))
        if not found:
            raise gone("message")
        return int(found[0][0])

    def leaf(self, conversation: int) -> int | None:
        """Where the conversation was left. Raises `HistoryError` if it is gone."""
        found = self._rows("SELECT leaf FROM conversations WHERE id = ?", (conversation,))
        if not found:
            raise gone("conversation")
        return cast("int | None", found[0][0])

    def set_leaf(self, conversation: int, leaf: int | None) -> None:
        """Leave the conversation at a message of its own; None for before the first one."""
        with self._store.writing():
            self._must_have(conversation, leaf)
            self._do("UPDATE conversations SET leaf = ? WHERE id = ?", (leaf, conversation))

    def rename(self, conversation: int, title: str) -> None:
        """Give a conversation another title, on one line."""
        with self._store.writing():
            self._must_have(conversation, None)
            line = " ".join(storable(title).split())
            self._do("UPDATE conversations SET title = ? WHERE id = ?", (line, conversation))

    def system(self, conversation: int, text: str) -> None:
        """Set what the model is told before everything else."""
        with self._store.writing():
            self._must_have(conversation, None)
            self._do(
                "UPDATE conversations SET system = ? WHERE id = ?", (storable(text), conversation)
            )

    def delete(self, conversation: int) -> None:
        """Remove a conversation; its text leaves the file within moments (`wait_for_erasing`).

        Raises `HistoryError` while a living window is writing an answer in it.
        """
        with self._store.writing():
            self._must_have(conversation, None)
            self._store.settle_dead()
            if self._do(records.IN_PROGRESS, (conversation,)).fetchone():
                raise HistoryError(
                    "history_in_use",
                    "an answer is being written in that conversation",
                    "Stop it, or wait until it is over, and delete the conversation then.",
                )
            self._store.index.remove_conversation(conversation)
            for statement in records.DELETE:
                self._do(statement, (conversation,))
        self._store.begin_erasing()

    def wait_for_erasing(self) -> None:
        """Wait until nothing that was deleted is left in the file."""
        self._store.wait_for_erasing()

    def recent_prompts(self, limit: int) -> list[str]:
        """What users asked last, each text once, the oldest of them first."""
        found: dict[str, None] = {}
        with self._store.using():
            for (content,) in self._do(records.PROMPTS):
                if len(found) == limit:
                    break
                found.setdefault(content)
        return list(reversed(found))

    def _do(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        return self._store.connection.execute(statement, values)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._store.using():
            return self._do(statement, values).fetchall()

    def _messages(
        self, statement: str, message: int, *, at_least_one: bool = False
    ) -> list[Message]:
        with self._store.using():
            rows = self._do(statement, (message,)).fetchall()
            found = [records.message_of(row, *self._store.journal.as_kept(row)) for row in rows]
        if at_least_one and not found:
            raise gone("message")
        return found

    def _must_have(self, conversation: int, message: int | None) -> None:
        if not self._do("SELECT 1 FROM conversations WHERE id = ?", (conversation,)).fetchone():
            raise gone("conversation")
        if message is not None and not self._do(records.PLACED, (conversation, message)).fetchone():
            raise gone("message")
