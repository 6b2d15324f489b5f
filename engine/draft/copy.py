"""Draft by copying: find the longest suffix of the text so far that occurred before, and propose
what followed it (prompt lookup, Saxena 2023; suffix automaton, Blumer et al. 1985).

The automaton answers for prompt and output together, in constant amortised time per token. The
draft is deterministic, so q is 1 at each token. Where the copy reaches the end of the text it goes
on into itself: a period repeats. Example: after `a b c d a b` the suffix `a b` occurred before,
followed by `c d`; k = 3 proposes `c d a`.
"""

from __future__ import annotations

from typing import Final

import torch

from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.protocol import Route
from engine.row import Row

MIN_MATCH = 2
"""A longer minimum costs more than it saves (reference/measured.md: what copying is worth)."""
EVIDENCE_FROM: Final = (2, 3, 4, 6, 10, 20)
"""Match lengths at which a class of its own begins."""
FRESH_ANCESTORS = 12
"""How many shorter suffixes are told of each new occurrence; the others keep an older one."""


class SuffixAutomaton:
    """All substrings of a growing token sequence, and where each was last seen to end."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._ends_at = [-1]  # index of the last token of a known occurrence
        self._last = 0
        self._size = 0
        self.match_length = 0
        self.match_end = -1

    def __len__(self) -> int:
        """Tokens taken in so far."""
        return self._size

    def append(self, token: int) -> None:
        """Take in one token and find the longest suffix that occurred before it."""
        state = self._new_state(self._length[self._last] + 1, self._size)
        at = self._last
        while at >= 0 and token not in self._next[at]:
            self._next[at][token] = state
            at = self._link[at]
        if at < 0:
            self._link[state] = 0
        else:
            self._link[state] = self._split(at, token)
        self._last = state
        self._remember_match(self._link[state])
        self._size += 1

    def _split(self, at: int, token: int) -> int:
        """The state of exactly `length(at) + 1`, cloned out of a longer one if need be."""
        target = self._next[at][token]
        if self._length[target] == self._length[at] + 1:
            return target
        clone = self._new_state(self._length[at] + 1, self._ends_at[target])
        self._next[clone] = dict(self._next[target])
        self._link[clone] = self._link[target]
        self._link[target] = clone
        while at >= 0 and self._next[at].get(token) == target:
            self._next[at][token] = clone
            at = self._link[at]
        return clone

    def _remember_match(self, state: int) -> None:
        self.match_length, self.match_end = self._length[state], self._ends_at[state]
        for _ in range(FRESH_ANCESTORS):
            if state <= 0:
                break
            self._ends_at[state] = self._size
            state = self._link[state]

    def _new_state(self, length: int, ends_at: int) -> int:
        self._next.append({})
        self._link.append(-1)
        self._length.append(length)
        self._ends_at.append(ends_at)
        return len(self._length) - 1


class CopyDrafter:
    """Proposes the continuation of the longest earlier occurrence."""

    route: Route = "copy"
    reusable_layers = 0

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._automaton = SuffixAutomaton()

    def evidence(self, row: Row) -> int | None:
        """The class of the match's length; None below `MIN_MATCH`."""
        for token in row.tokens[len(self._automaton) :]:
            self._automaton.append(token)
        return evidence_class(self._automaton.match_length)

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """The k tokens that followed the match."""
        source = self._automaton.match_end + 1
        text = row.tokens
        copied: list[int] = []
        for at in range(source, source + k):
            copied.append(text[at] if at < len(text) else copied[at - len(text)])
        tokens = torch.tensor(copied, device=self._device)
        return Draft(tokens=tokens, probs=None, hidden=None)


def evidence_class(match_length: int) -> int | None:
    """0 for the shortest usable match, more for longer ones, None for none."""
    if match_length < MIN_MATCH:
        return None
    return sum(match_length >= start for start in EVIDENCE_FROM) - 1
