"""Intervals of medians: what coin tosses promise, and what they can't."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.intervals import WANTED, geometric_mean, interval, rank_of


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    # From tables of the binomial law with p = 1/2.
    [(1, 0, 0.0), (2, 0, 0.5), (5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.9609), (20, 5, 0.9586)],
)
def test_the_ranks_are_those_of_the_binomial_law(count: int, rank: int, coverage: float) -> None:
    assert rank_of(count)[0] == rank
    assert rank_of(count)[1] == pytest.approx(coverage, abs=1e-4)


def test_of_five_runs_it_is_the_range() -> None:
    found = interval([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (found.median, found.low, found.high) == (3.0, 1.0, 5.0)


def test_the_true_median_is_held_as_often_as_said() -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(2000):
        found = interval([chance.expovariate(1.0) for _ in range(9)])
        held += found.low <= 0.6931 <= found.high
    assert held / 2000 == pytest.approx(rank_of(9)[1], abs=0.015)


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=40))
def test_an_interval_holds_its_median(values: list[float]) -> None:
    found = interval(values)
    assert found.low <= found.median <= found.high
    assert found.coverage >= WANTED or (found.low, found.high) == (min(values), max(values))


def test_the_geometric_mean_of_a_gain_and_its_loss_is_none() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
