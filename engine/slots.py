"""Which cache row a request gets, and how much of its prompt is already there.

A row keeps its tokens after an answer, so the next turn of the same conversation, or the next
keystroke in the same file, prefills only what is new. An unrelated request never pushes a
conversation out while a less recently used row is free to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from engine.cache import KVCache


class Slots:
    """The rows of one cache and the tokens each holds."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self._held: list[list[int]] = [[] for _ in range(cache.rows)]
        self._free: list[int] = list(range(cache.rows))
        """Least recently used first."""

    def can_take(self) -> bool:
        """Whether any row is free."""
        return bool(self._free)

    def take(
        self,
        tokens: Sequence[int],  # the whole prompt; its last token stays pending
    ) -> tuple[int, int]:
        """Claim a row for a prompt; returns it and how many of the prompt's tokens it holds.

        When the best match would lose more than it shares, its shared prefix is copied to the
        least recently used row instead.
        """
        assert self.can_take(), "a request is admitted only while a row is free"
        shared = {row: self._shared(row, tokens) for row in self._free}
        best = max(self._free, key=lambda row: shared[row])
        row, common = best, shared[best]
        if common * 2 < len(self._held[best]):
            row = min(self._free, key=lambda free: (bool(self._held[free]), self._free.index(free)))
        if row != best:
            self.cache.rollback(row, 0)
            self.cache.fork(best, row, common)
        self.cache.rollback(row, common)
        self._free.remove(row)
        return row, common

    def give_back(self, row: int, tokens: Sequence[int]) -> None:
        """End a claim; the row keeps what the cache holds of `tokens`."""
        self.cache.rollback(row, min(self.cache.lengths[row], len(tokens)))
        self._held[row] = list(tokens[: self.cache.lengths[row]])
        self._free.append(row)

    def forget(self) -> None:
        """Empty every free row."""
        for row in self._free:
            self._held[row] = []
            self.cache.rollback(row, 0)

    def _shared(self, row: int, tokens: Sequence[int]) -> int:
        pairs = zip(self._held[row], tokens[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
