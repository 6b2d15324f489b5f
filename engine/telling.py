"""Tokens in, `TextDelta` out: which characters each token completed, and where it came from.

Knows no model and no cache. Invariant: the texts of all deltas joined are the answer's text; each
token is told at most once, in order, and the spans of a delta never exceed its text.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import TextDelta, TokenKind
from engine.stream_text import StreamText


class Telling:
    """The text of one answer as it is told."""

    def __init__(self, stream: StreamText, stop_ids: frozenset[int]) -> None:
        self._stream = stream
        self._stop_ids = stop_ids
        self._told: list[str] = []
        self._untold: list[tuple[TokenKind, int]] = []
        """Tokens whose text is held back so far, and the characters each completed."""

    @property
    def text(self) -> str:
        """All text that was told."""
        return "".join(self._told)

    @property
    def stopped(self) -> bool:
        """Whether a stop string came up; nothing is told after it."""
        return self._stream.stopped is not None

    def say(self, tokens: Sequence[int], kinds: Sequence[TokenKind]) -> TextDelta | None:
        """What a round's tokens made final; None where that is nothing.

        A stop token has no text, and those behind a stop string are not part of the answer.
        """
        pieces: list[str] = []
        for token, kind in zip(tokens, kinds, strict=True):
            if token in self._stop_ids or self.stopped:
                break
            pieces.append(self._stream.push([token]))
            self._untold.append((kind, len(pieces[-1])))
        return self._delta("".join(pieces))

    def rest(self) -> TextDelta | None:
        """What was held back, once no more tokens come."""
        return self._delta(self._stream.flush())

    def _delta(self, text: str) -> TextDelta | None:
        if not text:
            return None
        self._told.append(text)
        told, self._untold = self._untold, []
        return TextDelta(
            text=text,
            kinds=tuple(kind for kind, _ in told),
            spans=tuple(characters for _, characters in told),
        )
