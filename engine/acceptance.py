"""How often drafted tokens are kept: what was learned of a route, and what one request shows.

A token is *tested* when all before it in its draft were kept. Records are kept by route, by class
of evidence and by position in the draft (1st, 2nd, all later). A request starts from the shared
record and soon believes its own text: the weight of the start is what requests differ by, other
classes of the same route lift or lower it, and a streak that the record calls unlikely makes it
forget most of what it knew. Plain numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

POSITIONS = 3
SHARED_MEMORY = (1024, 1024, 1024)
LIVE_MEMORY = (64, 64, 192)
"""Tests after which one weighs e times less, between requests and inside of one, by position: a
round may bring many tests of later ones."""
SURPRISE = 0.02
"""A streak less likely than this is a change of the text, not chance."""
SHORTEST_RUN = 1.5
"""One outcome alone proves nothing, whatever its chance."""
KEPT_AT_SURPRISE = 0.25
KIN_WORTH = 4.0
"""Tests of other classes or earlier positions that it takes to move one half as far as they."""
GOING_ON_WORTH = 4.0


class Prior(Struct, frozen=True, kw_only=True):
    """What is assumed of a draft before anything was tested."""

    rates: tuple[float, float, float]
    """Probability that the 1st, the 2nd, any later token is kept when those before it were."""
    worth: float
    """How many tests of one request it outweighs: few where requests differ much."""


class Outlook(Struct, frozen=True, kw_only=True):
    """What a draft promises in the next round."""

    rates: tuple[float, float, float]
    going_on: tuple[float, float] = (1.0, 1.0)
    """Probability that a draft of one token goes on to a second, a longer one to the next."""

    def kept(self, position: int) -> float:
        """Probability that the token at `position` (from 0) is kept, those before it being so."""
        return self.rates[min(position, POSITIONS - 1)]

    def goes_on(self, drafted: int) -> float:
        """Probability that a draft of `drafted` tokens does not stop there by itself."""
        return self.going_on[min(drafted - 1, 1)]


class Tally:
    """Decayed counts of the tests at one position."""

    __slots__ = (
        "_chance",
        "_decay",
        "_last",
        "_run",
        "_run_promised",
        "kept",
        "promised",
        "tested",
    )

    def __init__(self, memory: int) -> None:
        self._decay = 1 - 1 / memory
        self.tested = self.kept = 0.0
        self.promised = 0.0
        """How many of the tested ones another record had promised to be kept."""
        self._last: bool | None = None
        self._run = self._run_promised = 0.0
        """The part of `tested` and `promised` since the last outcome of the other kind,"""
        self._chance = 1.0
        """and how likely so long a run was."""

    def add(self, kept: bool, promised: float = 0.0) -> None:
        """Count one test."""
        if kept != self._last:
            self._last, self._chance = kept, 1.0
            self._run = self._run_promised = 0.0
        decay = self._decay
        self.tested = self.tested * decay + 1
        self.kept = self.kept * decay + kept
        self.promised = self.promised * decay + promised
        self._run = self._run * decay + 1
        self._run_promised = self._run_promised * decay + promised

    def is_surprised(self, likely: float) -> bool:
        """Whether the run that the last test began or prolonged is too unlikely to be chance;
        `likely` was the probability to be kept."""
        self._chance *= likely if self._last else 1 - likely
        return self._chance < SURPRISE and self._run >= SHORTEST_RUN

    def forget(self) -> None:
        """Forget most of what was known before the present run."""
        share = 1 - KEPT_AT_SURPRISE
        self.tested -= share * (self.tested - self._run)
        self.kept -= share * (self.kept - self._run * bool(self._last))
        self.promised -= share * (self.promised - self._run_promised)
        self._chance = 1.0

    def clear(self) -> None:
        """Forget all."""
        self.tested = self.kept = self.promised = self._run = self._run_promised = 0.0
        self._last, self._chance = None, 1.0


def _tallies(memory: tuple[int, ...]) -> tuple[Tally, ...]:
    return tuple(Tally(tests) for tests in memory)


class Acceptance:
    """What all requests showed of one route and class of evidence."""

    def __init__(self, prior: Prior) -> None:
        self.prior = prior
        self._tests = _tallies(SHARED_MEMORY)
        self._going_on = _tallies(SHARED_MEMORY[:2])

    @property
    def tried(self) -> bool:
        """Whether any draft was tested, so that the figures are more than an assumption."""
        return self._tests[0].tested > 0

    def rate(self, at: int) -> float:
        """The kept share at position `at` (0, 1, 2 for all later ones)."""
        worth = self.prior.worth
        tests = self._tests[at]
        return (self.prior.rates[at] * worth + tests.kept) / (worth + tests.tested)

    def outlook(self) -> Outlook:
        """What a request of which nothing is known yet may expect."""
        return Outlook(
            rates=(self.rate(0), self.rate(1), self.rate(2)),
            going_on=(self.going_on(0), self.going_on(1)),
        )

    def going_on(self, at: int) -> float:
        """Share of drafts that went on past their first (0) or a later (1) token when allowed."""
        counted = self._going_on[at]
        return (GOING_ON_WORTH + counted.kept) / (GOING_ON_WORTH + counted.tested)

    def test(self, position: int, kept: bool) -> None:
        """Count one tested token."""
        self._tests[min(position, POSITIONS - 1)].add(kept)

    def end(self, drafted: int, allowed: int) -> None:
        """Count where a draft of at most `allowed` tokens stopped by itself."""
        for done in range(1, min(drafted + 1, allowed)):
            self._going_on[min(done - 1, 1)].add(done < drafted)


class LiveAcceptance:
    """The same for one request: what it showed itself on top of what the others did."""

    def __init__(self, shared: Acceptance) -> None:
        self.shared = shared
        self.tests = _tallies(LIVE_MEMORY)
        self.changes = 0
        """How often anything was counted: while it stays, so does the outlook."""

    def outlook(self, siblings: Iterable[LiveAcceptance]) -> Outlook:
        """What its next draft promises; `siblings` are the route's other classes."""
        others = [other.tests for other in siblings if other.changes]
        first, second, later = (self._rate(at, others) for at in range(POSITIONS))
        shared = self.shared
        return Outlook(
            rates=(first, second, later), going_on=(shared.going_on(0), shared.going_on(1))
        )

    def test(self, position: int, kept: bool) -> None:
        """Count one tested token, here and in the shared record."""
        self.changes += 1
        at = min(position, POSITIONS - 1)
        likely = self._rate(at, [])
        self.tests[at].add(kept, self.shared.rate(at))
        if self.tests[at].is_surprised(likely):
            self.tests[at].forget()
            for tally in self.tests[at + 1 :]:
                tally.clear()  # seldom tested now, and of another text
        self.shared.test(position, kept)

    def end(self, drafted: int, allowed: int) -> None:
        """Count where a draft of at most `allowed` tokens stopped by itself."""
        self.changes += 1
        self.shared.end(drafted, allowed)

    def _rate(self, at: int, others: list[tuple[Tally, ...]]) -> float:
        """The shared rate, moved as the other classes and this one's earlier positions moved, and
        then by its own tests."""
        kin = [*self.tests[:at], *(other[at] for other in others)]
        worth, start, mine = self.shared.prior.worth, self.shared.rate(at), self.tests[at]
        tested = sum(tally.tested for tally in kin)
        if tested:
            kept = sum(tally.kept for tally in kin)
            promised = sum(tally.promised for tally in kin)
            start = _lifted(start, tested, kept, promised)
        return (start * worth + mine.kept) / (worth + mine.tested)


def _lifted(rate: float, tested: float, kept: float, promised: float) -> float:
    """`rate` moved in odds as the `kept` of `tested` others moved from what was `promised`."""
    mean = min(max(promised / tested, 0.01), 0.99)
    found = (kept + KIN_WORTH * mean) / (tested + KIN_WORTH)
    odds = _odds(found) / _odds(mean) * _odds(rate)
    return odds / (1 + odds)


def _odds(rate: float) -> float:
    bounded = min(max(rate, 0.005), 0.995)
    return bounded / (1 - bounded)
