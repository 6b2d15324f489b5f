"""The answers that a session has given, to copy from: bounded, in memory only.

Two halves, each an index of its own; when the younger one is full the older one is dropped, so
that forgetting costs nothing per token. Each answer ends with `END`, which is no token.

Invariant: never more than `EARLIER_TOKENS` tokens, and a half never changes but by growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.draft.ngrams import END, NgramIndex

EARLIER_TOKENS: Final = 65_536
SHORTEST: Final = 4
"""An answer shorter than this is not worth a place."""


class Earlier:
    """What the session has said so far."""

    def __init__(self, most: int = EARLIER_TOKENS) -> None:
        self._half = max(1, most // 2)
        self._halves = [NgramIndex([])]

    def __len__(self) -> int:
        """Tokens held, the ends of answers included."""
        return sum(len(half.text) for half in self._halves)

    def add(self, answer: Sequence[int]) -> None:
        """Take in a finished answer, its last tokens only if it is longer than a half."""
        if len(answer) < SHORTEST:
            return
        said = [*answer, END][-self._half :]
        if len(self._halves[0].text) + len(said) > self._half:
            self._halves = [NgramIndex([]), self._halves[0]]
        self._halves[0].text += said
        self._halves[0].catch_up()

    def forget(self) -> None:
        """Drop everything."""
        self._halves = [NgramIndex([])]

    def find(self, suffix: Sequence[int]) -> tuple[Sequence[int], int, int] | None:
        """The longest place where the end of `suffix` was said before: the text, the position
        behind it and the length that agrees."""
        found = [
            (half.text, end, length)
            for half in self._halves
            for length, end in [half.find(suffix) or (0, 0)]
            if length
        ]
        return max(found, key=lambda match: match[2], default=None)
