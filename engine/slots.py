"""Which cache row a request gets, how much of its prompt is already there, and who had to go.

A row keeps its tokens after an answer, so the next turn of the same conversation, or the next
keystroke in the same file, prefills only what is new. The last row is for fills, the others are for
chats, and neither pushes the other out; only a cache of one row is shared by both.

Invariants: a conversation loses its row to another one only when every row of its kind is taken,
the least recently used first; that is counted, logged and told to the next request of the one that
lost it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from torch import Tensor

from engine.cache import KVCache
from engine.protocol import Held, Priority

logger = logging.getLogger(__name__)

REMEMBERED = 256
"""Conversations whose eviction is still to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """The state before the tapped layer that a prefill left: what the first draft starts from."""

    state: Tensor  # (1, D)
    after: int
    """Tokens that the cache held then; the state is that of the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A row that a request holds until it gives it back."""

    row: int
    cached: int
    """Tokens of the prompt that the row held already."""
    evicted: int
    """Tokens that the conversation had lost before, and that are not there now."""
    tap: Tap | None = None
    """What was tapped at the last of the `cached` tokens, if it is known."""


@dataclass(slots=True, kw_only=True)
class _Kept:
    """What the last answer left in a row."""

    tokens: list[int] = field(default_factory=list)
    """Prompt and answer; the cache holds all of them or a prefix."""
    conversation: str | None = None
    tap: Tap | None = None
    """Of the last prompt's end: an answer asked for again finds its whole prompt here, so no
    prefill would show it."""


class Slots:
    """The rows of one cache, the tokens each holds and whose they are."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.evictions = 0
        self._kept = [_Kept() for _ in range(cache.rows)]
        self._free: list[int] = list(range(cache.rows))
        """Least recently used first."""
        self._evicted: dict[str, int] = {}

    @property
    def one_for_all(self) -> bool:
        """Whether chats and fills have to share a single row."""
        return self.cache.rows == 1

    def take(
        self,
        tokens: Sequence[int],  # the whole prompt; its last token stays pending
        conversation: str | None = None,
        priority: Priority = "chat",
    ) -> Claim:
        """Claim a row for a prompt.

        A prefix that lies in a row which is to stay as it is gets copied.
        """
        free = self._free_for(priority)
        assert free, "a request is admitted only while a row is free"
        shared = {row: self._shared(row, tokens) for row in free}
        row = self._choose(free, shared, conversation)
        self._hand_over(row, conversation, kept=shared[row])
        source = max(free, key=lambda other: (shared[other], other == row))
        if source != row:
            self.cache.rollback(row, 0)
            self.cache.fork(source, row, shared[source])
        self.cache.rollback(row, shared[source])
        self._free.remove(row)
        cached = shared[source]
        lost = 0 if conversation is None else self._evicted.pop(conversation, 0)
        tap = self._kept[source].tap
        known = tap if tap is not None and tap.after == cached else None
        return Claim(row=row, cached=cached, evicted=max(0, lost - cached), tap=known)

    def give_back(
        self, row: int, tokens: Sequence[int], pending: Sequence[int] = (), tap: Tap | None = None
    ) -> None:
        """End a claim; the row keeps what the cache holds of `tokens`, which `pending` follow, and
        what was tapped."""
        self.cache.rollback(row, min(self.cache.lengths[row], len(tokens)))
        whole = self.cache.lengths[row] == len(tokens)
        self._kept[row].tokens = [*tokens, *pending] if whole else list(tokens)
        self._kept[row].tap = tap
        self._free.append(row)

    def forget(self) -> None:
        """Empty every free row and give its memory back."""
        for row in self._free:
            self._hand_over(row, None, kept=0)
            self._kept[row].tokens, self._kept[row].tap = [], None
            self.cache.release(row)

    def held(self) -> tuple[Held, ...]:
        """The conversations whose KV is kept, and how much of it."""
        tokens = {
            kept.conversation: length
            for kept, length in zip(self._kept, self.cache.lengths, strict=True)
            if kept.conversation is not None and length
        }
        return tuple(Held(conversation=name, tokens=count) for name, count in tokens.items())

    def after(self, tokens: Sequence[int]) -> Iterator[Sequence[int]]:
        """What followed `tokens` in each free row whose text began with them."""
        count = len(tokens)
        for row in self._free:
            kept = self._kept[row].tokens
            if len(kept) > count and kept[:count] == list(tokens):
                yield kept[count:]

    def _free_for(self, priority: Priority) -> list[int]:
        if self.one_for_all:
            return list(self._free)
        last = self.cache.rows - 1
        return [row for row in self._free if (row == last) == (priority != "chat")]

    def _choose(self, free: Sequence[int], shared: dict[int, int], conversation: str | None) -> int:
        """The conversation's own row; else one that nobody would miss; else the oldest."""
        own = [row for row in free if self._kept[row].conversation == conversation]
        if conversation is not None and own:
            return max(own, key=lambda row: shared[row])
        best = max(free, key=lambda row: shared[row])
        loses_little = shared[best] * 2 >= self.cache.lengths[best] > 0
        if loses_little and self._kept[best].conversation is None:
            return best
        return min(free, key=lambda row: (self.cache.lengths[row] > 0, free.index(row)))

    def _hand_over(self, row: int, conversation: str | None, *, kept: int) -> None:
        """Make `conversation` the owner of a row of which `kept` tokens stay."""
        before, self._kept[row].conversation = self._kept[row].conversation, conversation
        held = self.cache.lengths[row]
        if before is None or before == conversation or not held:
            return
        while len(self._evicted) >= REMEMBERED:
            del self._evicted[next(iter(self._evicted))]
        self._evicted[before] = held
        if kept < held:
            self.evictions += 1
            logger.info("%d cached tokens of conversation %s were pushed out", held - kept, before)

    def _shared(self, row: int, tokens: Sequence[int]) -> int:
        held = self._kept[row].tokens[: self.cache.lengths[row]]
        pairs = zip(held, tokens[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
