"""One open document: its text, its lines, and the changes it goes through.

Places are offsets or line and column, in code points; what a client counts in is `positions`'
business. It knows nothing of clients, of files on disk or of what is to be completed.

Invariant: text and lines agree, also where a change splits or joins a `\\r\\n`; the text holds no
lone surrogates, which nothing that follows could encode. A `Snapshot` never changes.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from lsp.line_starts import LineStarts

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Position(Struct, frozen=True, kw_only=True, order=True):
    """A place between two code points, both counted from 0."""

    line: int
    column: int


class Edit(Struct, frozen=True, kw_only=True):
    """The text from `start` to `end`, offsets before the edit, has become `text`."""

    start: int
    end: int
    text: str


class Snapshot(Struct, frozen=True, kw_only=True):
    """A document at one moment, and the place in it that matters."""

    uri: str
    version: int
    language: str
    """The client's name for it: `python`, `typescriptreact`; empty if it gave none."""
    path: Path | None
    """The file, for a notebook's cell that of the notebook; None if it was never saved."""
    name: str = ""
    """The path within the workspace folder that holds it, with `/`; else the file's name."""
    text: str
    """As the client has it: a byte order mark and the document's own line ends included."""
    offset: int
    """Of the cursor in `text`, in code points."""
    newline: str = "\n"
    before: str = ""
    """The earlier cells of a notebook in the same language, each ended by a newline."""

    @property
    def prefix(self) -> str:
        """All of the document's own text before the cursor."""
        return self.text[: self.offset]

    @property
    def suffix(self) -> str:
        """All of the document's own text behind the cursor."""
        return self.text[self.offset :]


class Document:
    """One document that a client has open."""

    __slots__ = ("_starts", "language", "name", "path", "text", "uri", "version")

    def __init__(
        self,
        uri: str,
        text: str,
        *,
        version: int = 0,
        language: str = "",
        path: Path | None = None,
        name: str = "",
    ) -> None:
        self.uri = uri
        self.version = version
        self.language = language
        self.path = path
        self.name = name
        self.text = without_surrogates(text)
        self._starts = LineStarts(self.text)

    @property
    def line_count(self) -> int:
        """At least 1: an empty text has one empty line, and so has what follows a last newline."""
        return len(self._starts)

    @property
    def newline(self) -> str:
        """What ends the first line; `\\n` in a text of one line."""
        if self.line_count == 1:
            return "\n"
        end = self._starts.start(1)
        return "\r\n" if self.text[max(end - 2, 0) : end] == "\r\n" else self.text[end - 1]

    def bounds(self, line: int) -> tuple[int, int]:
        """Offsets of a line's start and of its end, before what ends it."""
        start = self._starts.start(line)
        if line + 1 == self.line_count:
            return start, len(self.text)
        end = self._starts.start(line + 1)
        crlf = end - start > 1 and self.text[end - 2] == "\r" and self.text[end - 1] == "\n"
        return start, end - (2 if crlf else 1)

    def line(self, line: int) -> str:
        """The text of a line, without what ends it."""
        start, end = self.bounds(line)
        return self.text[start:end]

    def lines(self) -> list[str]:
        """All lines, without what ends them."""
        return [self.line(line) for line in range(self.line_count)]

    def offset(self, position: Position) -> int:
        """The offset of a position; one outside the text counts as the nearest inside it."""
        if position.line < 0:
            return 0
        if position.line >= self.line_count:
            return len(self.text)
        start, end = self.bounds(position.line)
        return min(start + max(position.column, 0), end)

    def position(self, offset: int) -> Position:
        """The position of an offset; one that splits a `\\r\\n` counts as the line's end."""
        inside = min(max(offset, 0), len(self.text))
        line = self._starts.line_at(inside)
        start, end = self.bounds(line)
        return Position(line=line, column=min(inside, end) - start)

    def replace(self, start: int, end: int, text: str) -> Edit:
        """Put `text` in the place of what is between two offsets, and tell what was done."""
        start = min(max(start, 0), len(self.text))
        edit = Edit(
            start=start,
            end=min(max(end, start), len(self.text)),
            text=without_surrogates(text),
        )
        self.text = self.text[:start] + edit.text + self.text[edit.end :]
        self._starts.edited(self.text, start, edit.end, len(edit.text))
        return edit

    def snapshot(self, offset: int, *, before: str = "") -> Snapshot:
        """The document as it is now, looked at from `offset`."""
        return Snapshot(
            uri=self.uri,
            version=self.version,
            language=self.language,
            path=self.path,
            name=self.name,
            text=self.text,
            offset=min(max(offset, 0), len(self.text)),
            newline=self.newline,
            before=before,
        )


def without_surrogates(text: str) -> str:
    """The same with U+FFFD for each half of a pair that lacks the other. It is as long as the half
    in code points and in every encoding, so that no place moves."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
