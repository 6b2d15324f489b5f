"""What measured times are taken to stand for."""

from __future__ import annotations

import pytest

from engine.cost_arms import Arm, summed_up


def test_what_does_less_never_counts_as_dearer() -> None:
    fastest: dict[Arm, float] = {("pass", 1): 24.0, ("pass", 2): 19.0, ("pass", 4): 20.0}
    costs = summed_up(fastest, {})
    assert costs.unit_ms == 19.0
    assert costs.passes[:4] == pytest.approx([1.0, 1.0, 39 / 38, 20 / 19])
