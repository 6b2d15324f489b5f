"""Where the last few tokens of a text were seen before: hash chains over its n-grams.

A growing text is indexed by its runs of `SIZES` tokens; each run knows the place before it where
the same run ended. Taking in a token costs one table entry per size, looking for a suffix a bounded
number of comparisons: O(1) per token, and any text can be looked up in any other. It names several
occurrences where a suffix automaton names one.

Invariant: `text` only grows, and everything but its last `len(text) - len(self)` tokens is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

SIZES: Final = (8, 4, 2, 1)
"""Run lengths that are looked up, longest first; the shortest is the shortest match."""
TRIED: Final = 8
"""Occurrences of a run that are compared, newest first."""
LONGEST: Final = 32
"""Matches are not measured beyond this."""
END: Final = -1
"""Stands behind each of several texts that are one source; no token, so nothing agrees with it."""


class NgramIndex:
    """The n-grams of one growing text."""

    def __init__(self, text: list[int]) -> None:
        """`text` belongs to the caller, who appends to it; nothing of it is known before
        `catch_up`."""
        self.text = text
        self._known = 0
        self._newest: tuple[dict[int, int], ...] = tuple({} for _ in SIZES)
        self._before: tuple[list[int], ...] = tuple([] for _ in SIZES)

    def __len__(self) -> int:
        """Tokens taken in so far."""
        return self._known

    def catch_up(self) -> None:
        """Take in what was appended to the text."""
        text, start = self.text, self._known
        for size, newest, before in zip(SIZES, self._newest, self._before, strict=True):
            for end in range(start + 1, len(text) + 1):
                if end < size:
                    before.append(-1)
                    continue
                run = hash(tuple(text[end - size : end]))
                before.append(newest.get(run, -1))
                newest[run] = end
        self._known = len(text)

    def own_suffix(self) -> tuple[int, int] | None:
        """The longest earlier occurrence of the text's own end, the newest of equals: its length
        and the position after it. None below the shortest of `SIZES`."""
        ends = (before[-1] if before else -1 for before in self._before)
        return self._longest(self.text, list(ends))

    def find(self, suffix: Sequence[int]) -> tuple[int, int] | None:
        """The same for the end of another text."""
        ends = [
            newest.get(hash(tuple(suffix[-size:])), -1) if len(suffix) >= size else -1
            for size, newest in zip(SIZES, self._newest, strict=True)
        ]
        return self._longest(suffix, ends)

    def _longest(self, suffix: Sequence[int], ends: Sequence[int]) -> tuple[int, int] | None:
        for size, before, end in zip(SIZES, self._before, ends, strict=True):
            best = (0, -1)
            for candidate in _chain(before, end):
                length = common_suffix(self.text, candidate, suffix, len(suffix))
                if length > best[0]:
                    best = (length, candidate)
            if best[0] >= size:  # less: two runs of one hash
                return best
        return None


def _chain(before: Sequence[int], end: int) -> Iterator[int]:
    for _ in range(TRIED):
        if end < 0:
            return
        yield end
        end = before[end - 1]


def common_suffix(
    one: Sequence[int], one_end: int, other: Sequence[int], other_end: int, most: int = LONGEST
) -> int:
    """How many tokens before the two ends are equal, `most` at most."""
    limit = min(one_end, other_end, most)
    for length in range(limit):
        if one[one_end - 1 - length] != other[other_end - 1 - length]:
            return length
    return limit
