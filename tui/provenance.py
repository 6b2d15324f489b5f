"""Where each token of an answer came from: kept compactly, told as spans of the answer's text.

Owns the record of one answer's tokens (which kind, how many characters), its bytes for the history
and the words, marks and styles the kinds are shown with. Textual-free; knows no widget and no text,
only lengths.

Invariant: the record and the text it came with have the same number of characters, however the
text was cut into deltas; text that no token was told for has no kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from engine.protocol import TextDelta, TokenKind

_VERSION = 1
_CODES: tuple[TokenKind | None, ...] = (None, "plain", "accepted", "recovered", "bonus")
"""A kind's number in the bytes is its place here; None is text that no token was told for."""
_CODE_OF = {kind: code for code, kind in enumerate(_CODES)}
_BASE = 8
"""An entry is length × 8 + kind, as a base-128 number of least significant digits first."""


class KindLook(Struct, frozen=True, kw_only=True):
    """How a kind is told apart, with colour and without."""

    word: str
    style: str
    """A Textual style; its text attribute alone already tells the kind."""


LOOKS: dict[TokenKind, KindLook] = {
    "accepted": KindLook(word="accepted", style="underline $text-success"),
    "recovered": KindLook(word="corrected", style="reverse $text-warning"),
    "bonus": KindLook(word="bonus", style="bold $text-primary"),
    "plain": KindLook(word="plain", style="dim"),
}
"""Underlined, reversed, bold, dim."""


class Span(Struct, frozen=True, kw_only=True):
    """Characters of the answer that one token brought."""

    start: int
    end: int
    kind: TokenKind | None


class Provenance:
    """The kinds of one answer's tokens, about a byte for each."""

    def __init__(self) -> None:
        self.length = 0
        """Characters told of so far."""
        self.counts: Counter[TokenKind] = Counter()
        """Tokens of each kind."""
        self._done = bytearray()
        self._last: tuple[int, int] | None = None
        """Code and length of the latest entry, which held-back text may still lengthen."""

    def add(self, delta: TextDelta) -> None:
        """Take in a delta; text beyond its spans goes to the token told last."""
        for kind, length in zip(delta.kinds, delta.spans, strict=True):
            self.counts[kind] += 1
            self._push(_CODE_OF[kind], length)
        self._lengthen(len(delta.text) - sum(delta.spans))

    def pad(self, length: int) -> None:
        """Add text that no token was told for."""
        if length > 0:
            self._push(0, length)

    def spans(self, start: int = 0, skip_entries: int = 0) -> Iterator[Span]:
        """The spans in the order of the text, those of no length left out.

        To go on where an earlier reading stopped, `start` and `skip_entries` are what `mark` was
        at that time.
        """
        for code, length in _entries(memoryview(self.encode())[1 + skip_entries :]):
            if length:
                yield Span(start=start, end=start + length, kind=_CODES[code])
            start += length

    @property
    def mark(self) -> tuple[int, int]:
        """Characters and bytes that no further delta can change."""
        return self.length - (self._last[1] if self._last else 0), len(self._done)

    def encode(self) -> bytes:
        """The record as bytes; `decode` gives it back."""
        record = bytearray([_VERSION]) + self._done
        if self._last is not None:
            _write(record, *self._last)
        return bytes(record)

    @classmethod
    def decode(cls, data: bytes) -> Provenance:
        """The record again. Bytes of an unknown version or cut short give what can be read: a
        lost kind must never keep an old answer from being shown."""
        record = cls()
        if data[:1] != bytes([_VERSION]):
            return record
        for code, length in _entries(memoryview(data)[1:]):
            kind = _CODES[code]
            if kind is not None:
                record.counts[kind] += 1
            record._push(code, length)
        return record

    def _push(self, code: int, length: int) -> None:
        if self._last is not None:
            _write(self._done, *self._last)
        self._last = (code, length)
        self.length += length

    def _lengthen(self, beyond: int) -> None:
        if beyond <= 0:
            return
        code, length = self._last or (0, 0)
        self._last = (code, length + beyond)
        self.length += beyond


def _write(record: bytearray, code: int, length: int) -> None:
    number = length * _BASE + code
    while number >= 128:
        record.append(number & 127 | 128)
        number >>= 7
    record.append(number)


def _entries(record: memoryview) -> Iterator[tuple[int, int]]:
    """The (code, length) pairs; an unfinished or unknown one ends them."""
    number = shift = 0
    for byte in record:
        number |= (byte & 127) << shift
        shift += 7
        if byte & 128:
            continue
        length, code = divmod(number, _BASE)
        if code >= len(_CODES):
            return
        yield code, length
        number = shift = 0
