"""Medians, the intervals around them and geometric means, of a handful of measured numbers.

The interval is the distribution-free one of order statistics: between the i-th smallest and the
i-th largest of n values lies the true median with a probability that follows from n coin tosses
alone. Plain numbers, no assumption about how times scatter. Invariant: no interval is narrower than
its stated coverage allows; where n is too small for what was wanted, the range is given with the
coverage that it has.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from msgspec import Struct

WANTED = 0.95
"""Coverage that an interval should have."""


class Interval(Struct, frozen=True, kw_only=True):
    """A median and what it lies between."""

    median: float
    low: float
    high: float
    coverage: float
    """Probability that the true median lies between `low` and `high`; 0 for a single value."""


def interval(values: Sequence[float]) -> Interval:
    """The median of `values`, at least one, with the narrowest interval of `WANTED` coverage."""
    ordered = sorted(values)
    rank, coverage = rank_of(len(ordered))
    return Interval(
        median=statistics.median(ordered),
        low=ordered[rank],
        high=ordered[-1 - rank],
        coverage=coverage,
    )


def rank_of(count: int) -> tuple[int, float]:
    """How many values to leave out at each end of `count`, and the coverage that the rest has."""
    best, tail = (0, max(0.0, 1 - 2 * 0.5**count)), 0.0
    for rank in range((count - 1) // 2 + 1):
        tail += math.comb(count, rank) * 0.5**count
        if rank and 1 - 2 * tail < WANTED:
            break
        best = rank, max(0.0, 1 - 2 * tail)
    return best


def geometric_mean(values: Sequence[float]) -> float:
    """The factor that stands for all of `values`, at least one and each above 0."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))
