"""The editor of the keystroke benchmark: one document, its text kept in step with the server's.

Types with the habits of an editor: closes brackets and quotes by itself where the trace says so,
types over them, and puts a suggestion in the place of its range. Columns are counted in UTF-16, as
most editors do. Knows no typist and measures nothing.

Invariant: what was sent to the server, change by change, makes of its text the text here.
"""

from __future__ import annotations

import re
from typing import Any

from app.editor_wire import EditorWire
from app.trace_judge import Item, State
from app.traces import Trace
from lsp.document import Document
from lsp.positions import ClientPosition, client_position, offset_of

_CLOSER = {"(": ")", "[": "]"}
_STATES = 12


class TraceEditor:
    """One trace's document."""

    def __init__(self, wire: EditorWire, trace: Trace, uri: str) -> None:
        before, after = trace.written(trace.before), trace.written("\n" + trace.after)
        self.goal = before + trace.written(trace.types) + after
        self.cursor = len(before)
        self.states: list[State] = []
        """What the document was of late; the newest last."""
        self._wire = wire
        self._pairs = trace.pairs
        self._open: list[str] = []
        """Closers that the editor has put in, innermost last; empty for a bracket without one."""
        self._document = Document(uri, before + after, version=1)
        self._uri = uri
        item = {"uri": uri, "languageId": trace.language, "version": 1}
        wire.notify("textDocument/didOpen", {"textDocument": item | {"text": before + after}})

    @property
    def text(self) -> str:
        """The document."""
        return self._document.text

    def note(self, now: float) -> State:
        """Keep the state that the document is in now."""
        state = State(at=now, text=self.text, cursor=self.cursor)
        self.states = [*self.states[-_STATES:], state]
        return state

    def type(self, text: str) -> None:
        """Type a key, or a line end with its indentation."""
        behind = self.text[self.cursor : self.cursor + 1]
        if not self._pairs:
            self._replace(self.cursor, self.cursor, text)
        elif text in (")", "]") and self._open:
            over = self._open.pop() == text == behind
            self._replace(self.cursor, self.cursor + over, text)
        elif text in _CLOSER:
            self._open.append(_CLOSER[text])
            self._replace(self.cursor, self.cursor, text + _CLOSER[text], back=1)
        elif text == '"' and self._open[-1:] == ['"'] and behind == '"':
            self._open.pop()
            self._replace(self.cursor, self.cursor + 1, text)
        elif text == '"' and not re.search(r"\w$", self.text[: self.cursor]):
            self._open.append('"')
            self._replace(self.cursor, self.cursor, '""', back=1)
        else:
            self._replace(self.cursor, self.cursor, text)

    def delete(self) -> None:
        """Take the last character back."""
        self._replace(self.cursor - 1, self.cursor, "")

    def accept(self, item: Item, taken: str) -> None:
        """Put a suggestion in, or the first word of it."""
        whole = item.text[self.cursor - item.start :] == taken
        for mark in taken:
            if mark in _CLOSER:
                self._open.append("")
            elif mark in (")", "]") and self._open:
                self._open.pop()
        if whole:
            self._replace(item.start, item.end, item.text)
        else:
            self._replace(self.cursor, self.cursor, taken)

    def wish(self, *, explicit: bool = False) -> dict[str, Any]:
        """Parameters of a request at the cursor."""
        return {
            "textDocument": {"uri": self._uri},
            "position": self._place(self.cursor),
            "context": {"triggerKind": 1 if explicit else 2},
        }

    def item(self, told: dict[str, Any]) -> Item:
        """A suggestion in offsets."""
        start, end = (self._offset(told["range"][side]) for side in ("start", "end"))
        return Item(start=start, end=end, text=told["insertText"])

    def close(self) -> None:
        """Close the document."""
        self._wire.notify("textDocument/didClose", {"textDocument": {"uri": self._uri}})

    def _replace(self, start: int, end: int, text: str, *, back: int = 0) -> None:
        places = {"start": self._place(start), "end": self._place(end)}
        self._document.replace(start, end, text)
        self._document.version += 1
        self.cursor = start + len(text) - back
        self._wire.notify(
            "textDocument/didChange",
            {
                "textDocument": {"uri": self._uri, "version": self._document.version},
                "contentChanges": [{"range": places, "text": text}],
            },
        )

    def _place(self, offset: int) -> dict[str, int]:
        place = client_position(self._document, offset, "utf-16")
        return {"line": place.line, "character": place.character}

    def _offset(self, place: dict[str, int]) -> int:
        return offset_of(self._document, ClientPosition(**place), "utf-16")
