"""The edge to what clients count in: units of utf-8, utf-16 or utf-32, never mixed in a session.

Only this file knows that a column may mean something else than code points. Each change of a
message is counted in the text that the change before it left, so converting and applying go
together here. Nothing is refused: a place outside the text, or within a character, counts as the
nearest one before it, as the protocol has it.

Invariant: `client_position` of an offset, converted back, is that offset, in every encoding, unless
it splits a `\\r\\n`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from msgspec import Struct

from lsp.document import Document, Edit, Position

Encoding = Literal["utf-8", "utf-16", "utf-32"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
DEFAULT: Encoding = "utf-16"


class ClientPosition(Struct, frozen=True, kw_only=True):
    """A place as a client names it, in units of the session's encoding."""

    line: int
    character: int


class ClientRange(Struct, frozen=True, kw_only=True):
    """From a place to a later one."""

    start: ClientPosition
    end: ClientPosition


class Change(Struct, frozen=True, kw_only=True):
    """One change of a message; without a range, `text` is the whole document."""

    text: str
    range: ClientRange | None = None


def chosen(offered: Sequence[str]) -> Encoding:
    """The first encoding offered that is known; the protocol's default if there is none."""
    for name in offered:
        if name in ENCODINGS:
            return name
    return DEFAULT


def offset_of(document: Document, place: ClientPosition, encoding: Encoding) -> int:
    """The offset of a client's place."""
    line = place.line
    if not 0 <= line < document.line_count or document.text.isascii() or encoding == "utf-32":
        return document.offset(Position(line=line, column=place.character))
    start, _ = document.bounds(line)
    return start + _column(document.line(line), place.character, encoding)


def client_position(document: Document, offset: int, encoding: Encoding) -> ClientPosition:
    """An offset as the client counts it."""
    position = document.position(offset)
    if document.text.isascii() or encoding == "utf-32":
        return ClientPosition(line=position.line, character=position.column)
    start, _ = document.bounds(position.line)
    before = document.text[start : start + position.column]
    return ClientPosition(line=position.line, character=units(before, encoding))


def apply_changes(
    document: Document, changes: Sequence[Change], encoding: Encoding
) -> tuple[Edit, ...]:
    """Apply the changes one after the other, and tell what each did."""
    edits = []
    for change in changes:
        start, end = 0, len(document.text)
        if change.range is not None:
            start = offset_of(document, change.range.start, encoding)
            end = offset_of(document, change.range.end, encoding)
        edits.append(document.replace(start, end, change.text))
    return tuple(edits)


def units(text: str, encoding: Encoding) -> int:
    """How long a text is in an encoding's units."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode())
    return len(text.encode("utf-16-le")) // 2


def _column(line: str, wanted: int, encoding: Encoding) -> int:
    """How many code points of a line fit into `wanted` units.

    Halves the line again and again, so that even a line of a megabyte is measured once only.
    """
    if line.isascii():
        return min(max(wanted, 0), len(line))
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        length = units(line[low:middle], encoding)
        if length <= wanted:
            wanted -= length
            low = middle
        else:
            high = middle - 1
    return low
