"""What a round is predicted to cost, by context length, and how a measured round moves it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.costs import (
    OUTLIER,
    RATIO_WEIGHT,
    UNIT_WEIGHT,
    BucketCosts,
    CostTable,
    bucket_of,
    bucket_tokens,
)

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)


def flat(unit_ms: float = 20.0, draft: float = 0.4) -> BucketCosts:
    return BucketCosts(
        unit_ms=unit_ms,
        pass_ratio={1: 1.0, 2: 1.1, 4: 1.3, 8: 2.5},
        draft_ratio=draft,
        tail_ratio={2: 0.9, 5: 1.2},
    )


def table(**buckets: BucketCosts) -> CostTable:
    """Buckets by name: b0=…, b3=…"""
    return CostTable(
        exit_layer=3, layers=4, buckets={int(name[1:]): costs for name, costs in buckets.items()}
    )


@pytest.mark.parametrize(
    ("tokens", "bucket"),
    [(0, 0), (255, 0), (256, 1), (511, 1), (512, 2), (1023, 2), (1024, 3), (4096, 5), (16384, 7)],
)
def test_a_bucket_begins_at_every_doubling(tokens: int, bucket: int) -> None:
    assert bucket_of(tokens) == bucket


@MODERATE
@given(tokens=st.integers(0, 1 << 20))
def test_a_bucket_holds_its_tokens(tokens: int) -> None:
    bucket = bucket_of(tokens)
    assert bucket_tokens(bucket) <= tokens < bucket_tokens(bucket + 1)
    assert bucket_of(bucket_tokens(bucket)) == bucket


@pytest.mark.parametrize("k", range(1, 9))
def test_a_copied_round_costs_its_pass_alone(k: int) -> None:
    costs = flat()
    costs.pass_ratio = {w: 1 + 0.01 * w * w for w in range(1, 10)}
    ratio = table(b0=costs).round_ratio(10, k=k, drafted_by_layers=False)
    assert ratio == costs.pass_ratio[k + 1]


@pytest.mark.parametrize("k", range(1, 9))
def test_a_layer_draft_costs_k_steps_and_the_tail(k: int) -> None:
    costs = flat(draft=0.37)
    costs.tail_ratio = {w: 0.5 + 0.02 * w for w in range(2, 10)}
    ratio = table(b0=costs).round_ratio(10, k=k, drafted_by_layers=True)
    assert ratio == pytest.approx(k * 0.37 + costs.tail_ratio[k + 1])


@pytest.mark.parametrize(
    ("rows", "ratio"),
    [(2, 1.1), (3, 1.2), (4, 1.3), (5, 1.6), (6, 1.9), (8, 2.5), (16, 5.0)],
)
def test_rows_that_were_not_measured_lie_between_those_that_were(rows: int, ratio: float) -> None:
    found = table(b0=flat()).round_ratio(0, k=rows - 1, drafted_by_layers=False)
    assert found == pytest.approx(ratio)


def test_fewer_rows_than_any_measured_cost_as_much_as_the_fewest() -> None:
    costs = flat()
    costs.pass_ratio = {3: 1.4, 5: 1.8}
    assert table(b0=costs).round_ratio(0, k=1, drafted_by_layers=False) == 1.4


def test_buckets_are_kept_apart() -> None:
    costs = table(b0=flat(unit_ms=20.0), b3=flat(unit_ms=50.0))
    costs.observe_plain(100, 40.0)
    costs.observe_draft(100, k=3, draft_ms=90.0, rest_ms=90.0, by_layers=True)
    costs.observe_draft(100, k=3, draft_ms=0.0, rest_ms=90.0, by_layers=False)
    assert costs.at(2000) == flat(unit_ms=50.0)
    assert costs.at(100) != flat(unit_ms=20.0)


def test_a_new_bucket_starts_as_a_copy_of_the_nearest() -> None:
    costs = table(b0=flat(unit_ms=20.0), b5=flat(unit_ms=80.0))
    assert costs.at(400).unit_ms == 20.0  # bucket 1
    assert costs.at(2100).unit_ms == 80.0  # bucket 4
    costs.observe_plain(400, 30.0)
    for by_layers in (False, True):
        costs.observe_draft(400, k=1, draft_ms=8.0, rest_ms=99.0, by_layers=by_layers)
    assert costs.at(0) == flat(unit_ms=20.0)


def test_of_two_buckets_equally_near_the_shorter_context_counts() -> None:
    costs = table(b0=flat(unit_ms=20.0), b2=flat(unit_ms=80.0))
    assert costs.at(256).unit_ms == 20.0


def test_the_plain_speed_is_that_of_the_bucket() -> None:
    costs = table(b0=flat(unit_ms=20.0), b3=flat(unit_ms=50.0))
    assert costs.plain_tokens_per_s(0) == 50.0
    assert costs.plain_tokens_per_s(1500) == 20.0


def test_plain_rounds_move_the_one_row_pass() -> None:
    costs = table(b0=flat(unit_ms=20.0))
    costs.observe_plain(0, 30.0)
    assert costs.at(0).unit_ms == pytest.approx(20 + UNIT_WEIGHT * 10)
    for _ in range(200):
        costs.observe_plain(0, 30.0)
    assert costs.at(0).unit_ms == pytest.approx(30.0, abs=1e-3)


def test_an_interrupted_round_counts_as_twice_its_prediction() -> None:
    patient, cut = table(b0=flat()), table(b0=flat())
    patient.observe_plain(0, OUTLIER * 20.0)
    cut.observe_plain(0, 1e6)
    assert patient == cut
    twice = OUTLIER * 1.3 * patient.at(0).unit_ms
    patient.observe_draft(0, k=3, draft_ms=0.0, rest_ms=twice, by_layers=False)
    cut.observe_draft(0, k=3, draft_ms=0.0, rest_ms=1e6, by_layers=False)
    assert patient.at(0).pass_ratio == pytest.approx(cut.at(0).pass_ratio)
    cut.observe_draft(0, k=3, draft_ms=0.0, rest_ms=0.0, by_layers=False)
    assert cut.at(0).pass_ratio[4] > 0.9


def test_a_copied_round_moves_its_own_row_count_alone() -> None:
    costs = table(b0=flat())
    costs.observe_draft(0, k=3, draft_ms=2.0, rest_ms=30.0, by_layers=False)
    moved = 1.3 + RATIO_WEIGHT * (32.0 / 20.0 - 1.3)
    assert costs.at(0) == msgspec.structs.replace(
        flat(), pass_ratio={1: 1.0, 2: 1.1, 4: pytest.approx(moved), 8: 2.5}
    )


def test_a_layer_round_moves_the_draft_step_and_the_tail() -> None:
    costs = table(b0=flat(draft=0.4))
    costs.observe_draft(0, k=4, draft_ms=40.0, rest_ms=30.0, by_layers=True)
    assert costs.at(0).draft_ratio == pytest.approx(0.4 + RATIO_WEIGHT * (0.5 - 0.4))
    assert costs.at(0).tail_ratio[5] == pytest.approx(1.2 + RATIO_WEIGHT * (1.5 - 1.2))
    assert costs.at(0).pass_ratio == flat().pass_ratio


def test_a_measured_round_of_new_width_starts_from_the_prediction() -> None:
    costs = table(b0=flat())
    costs.observe_draft(0, k=2, draft_ms=0.0, rest_ms=24.0, by_layers=False)
    assert costs.at(0).pass_ratio[3] == pytest.approx(1.2)


@MODERATE
@given(
    rounds=st.lists(
        st.tuples(st.integers(0, 8), st.floats(0, 1e4), st.floats(0, 1e4), st.booleans()),
        max_size=40,
    )
)
def test_whatever_is_observed_every_cost_stays_positive_and_finite(
    rounds: list[tuple[int, float, float, bool]],
) -> None:
    costs = table(b0=flat())
    for k, draft_ms, rest_ms, by_layers in rounds:
        if k:
            costs.observe_draft(0, k=k, draft_ms=draft_ms, rest_ms=rest_ms, by_layers=by_layers)
        else:
            costs.observe_plain(0, rest_ms)
    for k in range(1, 12):
        for by_layers in (False, True):
            assert 0 < costs.round_ratio(0, k=k, drafted_by_layers=by_layers) < 1e12
    assert 0 < costs.plain_tokens_per_s(0) < 1e12


def test_a_table_survives_the_disk() -> None:
    costs = table(b0=flat(), b3=flat(unit_ms=50.0))
    assert msgspec.json.decode(msgspec.json.encode(costs), type=CostTable) == costs
