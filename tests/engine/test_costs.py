"""What a round is predicted to cost, by context and route, and how measured rounds move it."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.costs import (
    OUTLIER,
    RATIO_WEIGHT,
    REACH,
    SAME_MOMENT,
    UNIT_WEIGHT,
    BucketCosts,
    CostTable,
    Pairing,
    between,
    bucket_of,
    bucket_tokens,
)
from engine.protocol import Route

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)
LAYERS: Route = "layer_skip"


def flat(unit_ms: float = 20.0, draft: float = 0.4) -> BucketCosts:
    return BucketCosts(
        unit_ms=unit_ms,
        passes=[1 + 0.1 * rows for rows in range(33)],
        drafts={LAYERS: [draft * k for k in range(1, 33)]},
        rests={LAYERS: [0.8 + 0.05 * rows for rows in range(33)]},
    )


def table(**buckets: BucketCosts) -> CostTable:
    """Buckets by name: b0=…, b3=…"""
    return CostTable(buckets={int(name[1:]): costs for name, costs in buckets.items()})


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


@pytest.mark.parametrize("k", range(1, 33))
def test_a_copied_round_costs_its_pass_alone(k: int) -> None:
    assert table(b0=flat()).round_ratio(10, route="copy", k=k) == pytest.approx(1 + 0.1 * k)


@pytest.mark.parametrize("k", range(1, 33))
def test_a_round_drafted_by_layers_costs_k_steps_and_what_they_leave(k: int) -> None:
    ratio = table(b0=flat(draft=0.37)).round_ratio(10, route=LAYERS, k=k)
    assert ratio == pytest.approx(k * 0.37 + 0.8 + 0.05 * k)


def test_past_what_is_known_costs_grow_in_proportion() -> None:
    costs = BucketCosts(unit_ms=1.0, passes=[1.0, 1.5], drafts={LAYERS: [0.2]})
    assert costs.rest_ratio("copy", 4) == pytest.approx(3.0)
    assert costs.draft_ratio(LAYERS, 3) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [
        ({1: 1.0, 2: 1.1, 4: 1.3}, [1.0, 1.1, 1.2, 1.3, 1.625, 1.95]),
        ({2: 0.9, 4: 1.1}, [0.9, 0.9, 1.0, 1.1, 1.375, 1.65]),
        ({3: 1.5}, [1.5, 1.5, 1.5, 2.0, 2.5, 3.0]),
    ],
)
def test_what_was_not_measured_lies_between_what_was(
    measured: dict[int, float], wanted: list[float]
) -> None:
    assert between(measured, 6) == pytest.approx(wanted)


def test_buckets_are_kept_apart() -> None:
    costs = table(b0=flat(unit_ms=20.0), b3=flat(unit_ms=50.0))
    costs.observe_plain(100, 40.0)
    for route in (LAYERS, "copy"):
        costs.observe_draft(100, route=route, k=3, draft=4.0, rest=4.0)
    assert costs.nearest(3) == flat(unit_ms=50.0)
    assert costs.nearest(0) != flat(unit_ms=20.0)


def test_a_new_bucket_starts_as_a_copy_of_the_nearest() -> None:
    costs = table(b0=flat(unit_ms=20.0), b5=flat(unit_ms=80.0))
    assert costs.unit_ms(400) == 20.0  # bucket 1
    assert costs.unit_ms(2100) == 80.0  # bucket 4
    costs.observe_plain(400, 30.0)
    for route in (LAYERS, "copy"):
        costs.observe_draft(400, route=route, k=1, draft=0.9, rest=4.0)
    assert costs.nearest(0) == flat(unit_ms=20.0)
    assert costs.unit_ms(400) > 20.0


def test_of_two_buckets_equally_near_the_shorter_context_counts() -> None:
    costs = table(b0=flat(unit_ms=20.0), b2=flat(unit_ms=80.0))
    assert costs.unit_ms(256) == 20.0


def test_looking_adds_no_bucket() -> None:
    costs = table(b0=flat())
    costs.round_ratio(5000, route="copy", k=3)
    assert costs.plain_tokens_per_s(5000) == 50.0
    assert list(costs.buckets) == [0]


def test_plain_rounds_move_the_one_row_pass() -> None:
    costs = table(b0=flat(unit_ms=20.0))
    costs.observe_plain(0, 30.0)
    assert costs.unit_ms(0) == pytest.approx(20 + UNIT_WEIGHT * 10)
    for _ in range(200):
        costs.observe_plain(0, 30.0)
    assert costs.unit_ms(0) == pytest.approx(30.0, abs=1e-3)


def test_an_interrupted_round_counts_as_twice_its_prediction() -> None:
    patient, cut = table(b0=flat()), table(b0=flat())
    patient.observe_plain(0, OUTLIER * 20.0)
    cut.observe_plain(0, 1e6)
    assert patient == cut
    patient.observe_draft(0, route="copy", k=3, draft=0.0, rest=OUTLIER * 1.3)
    cut.observe_draft(0, route="copy", k=3, draft=0.0, rest=1e6)
    assert patient == cut
    cut.observe_draft(0, route="copy", k=3, draft=0.0, rest=0.0)
    assert cut.round_ratio(0, route="copy", k=3) > 0.9


def test_a_copied_round_moves_its_row_count_and_a_little_its_neighbours() -> None:
    costs = table(b0=flat())
    costs.observe_draft(0, route="copy", k=9, draft=0.1, rest=2.3)
    before, after = flat().passes, costs.nearest(0).passes
    factor = (1.9 + RATIO_WEIGHT * (2.4 - 1.9)) / 1.9
    assert after[9] == pytest.approx(before[9] * factor)
    moved = [new / old - 1 for new, old in zip(after, before, strict=True)]
    assert moved[9] > moved[10] > moved[11] > moved[12] > 0
    assert moved[8] == pytest.approx(moved[10])
    assert not any(moved[10 + REACH :])
    assert (costs.nearest(0).drafts, costs.nearest(0).rests) == (flat().drafts, flat().rests)


def test_the_plain_round_stays_the_unit() -> None:
    costs = table(b0=flat())
    costs.observe_draft(0, route="copy", k=1, draft=0.0, rest=9.0)
    assert costs.nearest(0).passes[0] == 1.0


def test_a_layer_round_moves_the_draft_step_and_the_rest() -> None:
    costs = table(b0=flat(draft=0.4))
    costs.observe_draft(0, route=LAYERS, k=4, draft=2.0, rest=1.5)
    found = costs.nearest(0)
    factor = (1.6 + RATIO_WEIGHT * (2.0 - 1.6)) / 1.6
    assert found.drafts[LAYERS] == pytest.approx([0.4 * k * factor for k in range(1, 33)])
    assert found.rests[LAYERS][4] == pytest.approx(1.0 + RATIO_WEIGHT * (1.5 - 1.0))
    assert found.passes == flat().passes


def test_a_round_is_measured_by_the_plain_one_beside_it() -> None:
    """However slow the moment: both sides of the ratio are slowed."""
    costs = table(b0=flat())
    pairing = Pairing(costs)
    for slow in (1.0, 3.0, 0.5, 2.0):
        pairing.see(0, route="plain", k=0, draft_ms=0.0, round_ms=20.0 * slow)
        pairing.see(0, route="copy", k=3, draft_ms=0.0, round_ms=26.0 * slow)
    assert costs.nearest(0).passes == pytest.approx(flat().passes)


def test_a_plain_round_measures_those_just_before_it_too() -> None:
    costs = table(b0=flat())
    pairing = Pairing(costs)
    for _ in range(20):
        pairing.see(0, route="copy", k=3, draft_ms=0.0, round_ms=40.0)
    assert costs.nearest(0) == flat()
    pairing.see(0, route="plain", k=0, draft_ms=0.0, round_ms=20.0)
    one_by_one = table(b0=flat())
    for _ in range(SAME_MOMENT):
        one_by_one.observe_draft(0, route="copy", k=3, draft=0.0, rest=2.0)
    assert costs.nearest(0).passes == pytest.approx(one_by_one.nearest(0).passes)


def test_a_plain_round_long_past_measures_nothing() -> None:
    costs = table(b0=flat())
    pairing = Pairing(costs)
    pairing.see(0, route="plain", k=0, draft_ms=0.0, round_ms=20.0)
    for _ in range(SAME_MOMENT):
        pairing.see(0, route="copy", k=3, draft_ms=0.0, round_ms=26.0)
    for _ in range(50):
        pairing.see(0, route="copy", k=3, draft_ms=0.0, round_ms=100.0)
    assert costs.nearest(0).passes == pytest.approx(flat().passes)


@MODERATE
@given(
    rounds=st.lists(
        st.tuples(
            st.integers(0, 32),
            st.floats(0, 1e4),
            st.floats(0, 1e4),
            st.sampled_from(["copy", "layer_skip"]),
        ),
        max_size=60,
    )
)
def test_whatever_is_seen_every_cost_stays_positive_and_finite(
    rounds: list[tuple[int, float, float, Route]],
) -> None:
    costs = table(b0=flat())
    pairing = Pairing(costs)
    for k, draft_ms, rest_ms, route in rounds:
        pairing.see(0, route=route, k=k, draft_ms=draft_ms, round_ms=draft_ms + rest_ms)
    for k in range(1, 33):
        for route in ("copy", LAYERS):
            assert 0 < costs.round_ratio(0, route=route, k=k) < 1e12
    assert 0 < costs.plain_tokens_per_s(0) < 1e12


def test_a_table_survives_the_disk() -> None:
    costs = CostTable(key="model, 2 threads", shapes={LAYERS: "3"}, buckets={0: flat(), 3: flat()})
    assert msgspec.json.decode(msgspec.json.encode(costs), type=CostTable) == costs


DAMAGE: dict[str, dict[str, object]] = {
    "no time": {"unit_ms": 0.0},
    "less than none": {"unit_ms": -5.0},
    "ages": {"unit_ms": 1e300},
    "no passes": {"passes": []},
    "passes for nothing": {"passes": [0.0] * 33},
    "endless passes": {"passes": [1e308] * 33},
    "drafts that give time back": {"drafts": {LAYERS: [-1.0] * 32}},
    "no drafts": {"drafts": {LAYERS: []}},
    "rests for nothing": {"rests": {LAYERS: [0.0] * 33}},
    "no rests": {"rests": {LAYERS: []}},
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_kept_table_that_nobody_measured_is_refused(change: dict[str, object]) -> None:
    written = json.loads(msgspec.json.encode(table(b0=flat())))
    written["buckets"]["0"] |= change
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(written), type=CostTable)


@pytest.mark.parametrize("bucket", ["-1", "1000000000"])
def test_a_kept_table_of_no_context_length_is_refused(bucket: str) -> None:
    written = json.loads(msgspec.json.encode(table(b0=flat())))
    written["buckets"] = {bucket: written["buckets"]["0"]}
    with pytest.raises(msgspec.ValidationError, match="no bucket"):
        msgspec.json.decode(json.dumps(written), type=CostTable)


def test_a_free_draft_is_none_of_that() -> None:
    free = table(b0=flat(draft=0.0))
    assert msgspec.json.decode(msgspec.json.encode(free), type=CostTable) == free
