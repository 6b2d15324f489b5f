"""What measured times are taken to stand for."""

from __future__ import annotations

from engine.cost_arms import Arm, fastest_of


def test_what_does_less_never_counts_as_dearer() -> None:
    times: dict[Arm, list[float]] = {
        ("pass", 1): [24.0, 30.0],
        ("pass", 2): [25.0, 19.0],
        ("pass", 4): [20.0, 20.5],
        ("draft x", 1): [7.0, 6.0],
    }
    assert fastest_of(times) == {
        ("pass", 1): 19.0,
        ("pass", 2): 19.0,
        ("pass", 4): 20.0,
        ("draft x", 1): 6.0,
    }
