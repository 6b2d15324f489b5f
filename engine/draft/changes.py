"""What an answer has put in place of what its source says, so that the next one is foreseen.

A rule is a short stretch of the source and the tokens that stood for it in the answer: a renamed
identifier, a parameter put in before a parenthesis. What became of a stretch is kept per
surroundings, the last outcome counting, unchanged ones too: `total` may turn into `sum` in front
of `_cents` and stay itself elsewhere. Knows sequences of tokens only, never where they come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.draft.ngrams import END

Stretch = tuple[int, ...]

LONGEST_OLD: Final = 12
LONGEST_NEW: Final = 48
MOST_RULES: Final = 256
"""Stretches remembered; the oldest goes first."""
MOST_REPLACEMENTS: Final = 4


class Changes:
    """The rules of one answer."""

    def __init__(self) -> None:
        self._by_first: dict[int, list[Stretch]] = {}
        self._replacements: dict[Stretch, list[Stretch]] = {}
        """All that ever stood for a stretch, the last one in front."""
        self._outcomes: dict[tuple[int, Stretch, int], Stretch | None] = {}

    def learn(self, source: Sequence[int], start: int, stop: int, new: Sequence[int]) -> None:
        """`source[start:stop]` was replaced by `new`; what was put in is tied to the token it was
        put in front of; where that is the end of a text, there is nothing to learn."""
        if start == stop:
            if stop >= len(source) or source[stop] == END:
                return
            stop, new = stop + 1, [*new, source[stop]]
        old, said = tuple(source[start:stop]), tuple(new)
        if len(old) > LONGEST_OLD or len(said) > LONGEST_NEW:
            return
        if old not in self._replacements:
            if len(self._replacements) >= MOST_RULES:
                self._forget(next(iter(self._replacements)))
            stretches = self._by_first.setdefault(old[0], [])
            stretches.append(old)
            stretches.sort(key=len, reverse=True)
        others = [new for new in self._replacements.get(old, ()) if new != said]
        self._replacements[old] = [said, *others][:MOST_REPLACEMENTS]
        self._note(source, start, old, said)

    def kept(self, source: Sequence[int], start: int) -> None:
        """The token at `start` was left as it is: so was every known stretch that begins there."""
        for old in self._starting(source, start):
            self._note(source, start, old, None)

    def foreseen(self, source: Sequence[int], start: int) -> tuple[int, Stretch] | None:
        """How many tokens of the source from `start` on will be replaced, and by what."""
        for old in self._starting(source, start):
            new = self._outcome(source, start, old)
            if new is not None:
                return len(old), new
        return None

    def begun(
        self, source: Sequence[int], start: int, said: Sequence[int]
    ) -> tuple[int, Stretch] | None:
        """The same for a replacement of which the answer has `said` the beginning already."""
        for old in self._starting(source, start):
            for new in self._replacements[old]:
                if new[: len(said)] == tuple(said):
                    return len(old), new
        return None

    def _starting(self, source: Sequence[int], start: int) -> Iterator[Stretch]:
        stretches = self._by_first.get(source[start]) if start < len(source) else None
        for old in stretches or ():
            if tuple(source[start : start + len(old)]) == old:
                yield old

    def _outcome(self, source: Sequence[int], start: int, old: Stretch) -> Stretch | None:
        for key in _surroundings(source, start, old):
            if key in self._outcomes:
                return self._outcomes[key]
        return None

    def _note(self, source: Sequence[int], start: int, old: Stretch, new: Stretch | None) -> None:
        for key in _surroundings(source, start, old):
            self._outcomes[key] = new

    def _forget(self, old: Stretch) -> None:
        del self._replacements[old]
        self._by_first[old[0]].remove(old)
        self._outcomes = {key: new for key, new in self._outcomes.items() if key[1] != old}


def _surroundings(
    source: Sequence[int], start: int, old: Stretch
) -> Iterator[tuple[int, Stretch, int]]:
    """A stretch with both neighbours, with one of them, alone: the closest first."""
    before = source[start - 1] if start else -1
    stop = start + len(old)
    after = source[stop] if stop < len(source) else -1
    yield before, old, after
    yield -1, old, after
    yield before, old, -1
    yield -1, old, -1
