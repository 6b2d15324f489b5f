"""What the store hands out, and the statements that fetch and write it.

Owns the two structs, their way from and to a row, and the SQL of `tui.history`. Pure: it holds no
connection.

Invariant: the columns of a statement and the fields read from its rows stand in this file alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec
from msgspec import Struct

from engine.protocol import Role, SamplingParams, Snippet, Usage
from tui.history_search import storable

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal["whole", "partial", "failed"]
TITLE_LENGTH = 60


class Message(Struct, frozen=True, kw_only=True):
    """One thing that was said, at its place in the tree."""

    id: int
    conversation: int
    parent: int | None
    role: Role
    content: str
    snippets: tuple[Snippet, ...] = ()
    state: State = "whole"
    """`partial` while an answer is written and after it was stopped or its window died."""
    created: float
    """Seconds since the epoch."""
    kinds: bytes = b""
    """Where its tokens came from, as the chat encodes it; opaque here."""
    usage: Usage | None = None
    greedy: bool = False
    model: str = ""
    sampling: SamplingParams | None = None


class Conversation(Struct, frozen=True, kw_only=True):
    """A tree of messages with a name."""

    id: int
    title: str
    system: str
    created: float
    updated: float
    """When something was last said; seconds since the epoch, as `created`."""
    messages: int
    """How many there are in the whole tree."""
    excerpt: str = ""
    """After a search: the newest message that was hit, around the first word."""


class Details(TypedDict, total=False):
    """What a message may be given besides who said what."""

    snippets: tuple[Snippet, ...]
    state: State
    """`partial` for an answer that is about to be written by this window."""
    greedy: bool
    """Follows from `sampling` if only that is given."""
    model: str
    sampling: SamplingParams | None
    waited: int | None
    """The number that a question had while it waited."""


_LISTED = """
c.id, c.title, c.system, c.created, c.updated,
(SELECT count(*) FROM messages m WHERE m.conversation = c.id) AS said
"""
_MESSAGE = (
    "m.id, m.conversation, m.parent, m.role, m.content, m.snippets, m.state, m.created, m.kinds, "
    "m.usage, m.greedy, m.model, m.sampling, m.owner"
)
_LATEST_FIRST = "ORDER BY c.updated DESC, c.id DESC LIMIT ?"

CONVERSATIONS = f"SELECT {_LISTED} FROM conversations c"
SAID = f" WHERE said > 0 {_LATEST_FIRST}"
MATCHING = "id IN (SELECT rowid FROM message_index WHERE message_index MATCH ?)"
HITS = f"""
WITH hits AS (
    SELECT conversation, max(id) AS message FROM messages
    WHERE {{}} AND has_words(content, ?) GROUP BY conversation
)
SELECT {_LISTED}, found.content FROM conversations c
LEFT JOIN hits ON hits.conversation = c.id
LEFT JOIN messages found ON found.id = hits.message
WHERE said > 0 AND (hits.message IS NOT NULL OR has_words(c.title, ?))
{_LATEST_FIRST}
"""
PLACED = "SELECT 1 FROM messages WHERE conversation = ? AND id = ?"
IN_PROGRESS = "SELECT 1 FROM messages WHERE conversation = ? AND owner IS NOT NULL"
ONE_MESSAGE = f"SELECT {_MESSAGE} FROM messages m WHERE m.id = ?"
THREAD = f"""
WITH RECURSIVE above (id, depth) AS (
    SELECT ?, 0
    UNION ALL
    SELECT p.parent, depth + 1 FROM above JOIN messages p USING (id) WHERE p.parent IS NOT NULL
)
SELECT {_MESSAGE} FROM above JOIN messages m USING (id) ORDER BY depth DESC
"""
SIBLINGS = f"""
SELECT {_MESSAGE} FROM messages m JOIN messages s
ON m.conversation = s.conversation AND m.parent IS s.parent WHERE s.id = ? ORDER BY m.id
"""
TIP = """
WITH RECURSIVE down (id, conversation) AS (
    SELECT id, conversation FROM messages WHERE id = ?
    UNION ALL
    SELECT (SELECT max(c.id) FROM messages c
            WHERE c.conversation = down.conversation AND c.parent = down.id), conversation
    FROM down WHERE down.id IS NOT NULL
)
SELECT max(id) FROM down HAVING max(id) IS NOT NULL
"""
ADD = """
INSERT INTO messages
    (conversation, parent, role, content, snippets, state, created, greedy, model, sampling)
VALUES (:conversation, :parent, :role, :content, :snippets, :state, :created, :greedy, :model,
        :sampling)
"""
END = "UPDATE messages SET state = ?, usage = ? WHERE id = ?"
TOUCH = """
UPDATE conversations SET updated = ? WHERE id = (SELECT conversation FROM messages WHERE id = ?)
"""
MOVE_LEAF = "UPDATE conversations SET leaf = ?, updated = ? WHERE id = ?"
GIVE_TITLE = "UPDATE conversations SET title = ? WHERE id = ? AND title = ''"
DELETE = (
    "UPDATE conversations SET leaf = NULL WHERE id = ?",
    "DELETE FROM messages WHERE conversation = ?",
    "DELETE FROM conversations WHERE id = ?",
)
PROMPTS = "SELECT content FROM messages WHERE role = 'user' AND content <> '' ORDER BY id DESC"


def conversation_of(row: Sequence[Any]) -> Conversation:
    """A row of `CONVERSATIONS` or `HITS`; columns beyond the sixth are not looked at."""
    identity, title, system, created, updated, messages = row[:6]
    return Conversation(
        id=identity,
        title=title,
        system=system,
        created=created,
        updated=updated,
        messages=messages,
    )


def message_of(row: Sequence[Any], content: str, kinds: bytes) -> Message:
    """A row of `MESSAGE_COLUMNS` with the text and kinds that its journal leaves it with."""
    identity, conversation, parent, role, _, snippets, state, created = row[:8]
    usage, greedy, model, sampling = row[9:13]
    return Message(
        id=identity,
        conversation=conversation,
        parent=parent,
        role=role,
        content=content,
        snippets=msgspec.json.decode(snippets, type=tuple[Snippet, ...]) if snippets else (),
        state=state,
        created=created,
        kinds=kinds,
        usage=msgspec.json.decode(usage, type=Usage) if usage else None,
        greedy=bool(greedy),
        model=model,
        sampling=msgspec.json.decode(sampling, type=SamplingParams) if sampling else None,
    )


def row_of(content: str, created: float, details: Details) -> dict[str, Any]:
    """The values of `ADD`, less those that place the message."""
    sampling = details.get("sampling")
    snippets = tuple(
        Snippet(path=storable(given.path), text=storable(given.text))
        for given in details.get("snippets", ())
    )
    return {
        "content": content,
        "snippets": msgspec.json.encode(snippets) if snippets else None,
        "state": details.get("state", "whole"),
        "created": created,
        "greedy": details.get("greedy", sampling is not None and sampling.temperature == 0),
        "model": storable(details.get("model", "")),
        "sampling": msgspec.json.encode(sampling) if sampling is not None else None,
    }


def title_of(text: str) -> str:
    """The first line with something on it, cut to a title."""
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"
