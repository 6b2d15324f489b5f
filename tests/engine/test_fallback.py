"""The forecast of where drafting stops paying, against costs and records that are made by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.acceptance import Acceptance, Prior
from engine.costs import BucketCosts, CostTable, bucket_of, bucket_tokens
from engine.draft_length import MIN_GAIN
from engine.fallback import fallback_tokens
from engine.protocol import Route, SamplingParams

from .tiny_session import answered, ask, tiny_session

COPY: tuple[Route, int] = ("copy", 0)
SKIP: tuple[Route, int] = ("layer_skip", 0)


def bucket(pass_step: float, draft: float = 0.5) -> BucketCosts:
    ratio = [1 + pass_step * rows for rows in range(33)]
    return BucketCosts(
        unit_ms=1.0,
        passes=ratio,
        drafts={"layer_skip": [draft * k for k in range(1, 33)]},
        rests={"layer_skip": list(ratio)},
    )


def table(steps: dict[int, float]) -> CostTable:
    """Bucket → what each further row of a pass costs there."""
    return CostTable(buckets={at: bucket(step) for at, step in steps.items()})


def record(rate: float, *, tried: bool = True) -> Acceptance:
    """Of what was tested a share of `rate` was kept."""
    made = Acceptance(Prior(rates=(rate, rate, rate), worth=1e9))
    if tried:
        made.test(0, kept=True)
    return made


def forecast(costs: CostTable, rate: float, limit: int = 16_384) -> int | None:
    return fallback_tokens(costs, {COPY: record(rate)}, max_k=8, limit=limit)


def test_what_pays_everywhere_has_no_end() -> None:
    assert forecast(table({0: 0.05}), 0.7) is None


def test_what_pays_nowhere_has_no_beginning() -> None:
    assert forecast(table({0: 0.9}), 0.2) == 0


def test_it_ends_where_the_passes_get_too_wide() -> None:
    costs = table({0: 0.05, 3: 0.1, 5: 0.95})
    # Buckets take their costs from the nearest that was measured, the lower one of two.
    assert forecast(costs, 0.7) == bucket_tokens(5) == 4096


def test_it_is_none_when_the_end_lies_beyond_the_context() -> None:
    assert forecast(table({0: 0.05, 5: 0.95}), 0.7, limit=1000) is None


def test_where_it_pays_again_later_it_has_not_ended() -> None:
    assert forecast(table({0: 0.05, 2: 0.95, 4: 0.05}), 0.7) is None


def test_untested_routes_promise_nothing() -> None:
    def found(*, copy: bool, skip: bool) -> int | None:
        records = {COPY: record(0.95, tried=copy), SKIP: record(0.1, tried=skip)}
        return fallback_tokens(table({0: 0.3}), records, max_k=8, limit=4096)

    assert found(copy=False, skip=False) is None
    assert found(copy=False, skip=True) == 0
    assert found(copy=True, skip=True) is None


def test_drafting_by_layers_costs_its_drafts_too() -> None:
    costs = table({0: 0.05})
    assert fallback_tokens(costs, {COPY: record(0.6)}, max_k=8, limit=4096) is None
    assert fallback_tokens(costs, {SKIP: record(0.3)}, max_k=8, limit=4096) == 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    steps=st.dictionaries(st.integers(0, 7), st.floats(0.0, 1.5), min_size=1),
    rate=st.floats(0.05, 0.95),
    max_k=st.integers(1, 8),
    limit=st.integers(64, 20_000),
)
def test_it_is_the_least_context_behind_which_nothing_pays(
    steps: dict[int, float], rate: float, max_k: int, limit: int
) -> None:
    """Against the definition, context by context; and looking leaves the table as it was."""
    costs = table(steps)
    before = msgspec.json.encode(costs)
    found = fallback_tokens(costs, {COPY: record(rate)}, max_k=max_k, limit=limit)
    assert msgspec.json.encode(costs) == before
    pays = [
        max(
            sum(rate**n for n in range(k + 1))
            / table(steps).round_ratio(bucket_tokens(at), route="copy", k=k)
            for k in range(1, max_k + 1)
        )
        >= MIN_GAIN
        for at in range(bucket_of(limit) + 1)
    ]
    last = max((at for at, does in enumerate(pays) if does), default=-1)
    wanted = None if last == len(pays) - 1 else bucket_tokens(last + 1)
    assert found == wanted


def test_a_session_knows_nothing_before_it_drafted() -> None:
    session = tiny_session()
    assert session.fallback_tokens() is None
    answered(session, ask(route="plain"))
    answered(session, ask(route="layer_skip", k=3))
    assert session.fallback_tokens() is None
    drafts = SamplingParams(max_tokens=40, repetition_penalty=0.5)
    answered(session, ask("a b a b a b a b", sampling=drafts))
    session.costs.buckets[0] = bucket(5.0)
    assert session.fallback_tokens() == 0


@pytest.mark.parametrize("rounds", [0, 1])
def test_looking_at_a_session_changes_nothing(rounds: int) -> None:
    session = tiny_session()
    for _ in range(rounds):
        answered(session, ask())
    before = msgspec.json.encode(session.costs)
    session.fallback_tokens()
    session.plain_tokens_per_s()
    assert msgspec.json.encode(session.costs) == before
