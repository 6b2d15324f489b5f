"""Records of acceptance: decayed means, what a request believes of its own text, and surprises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.acceptance import (
    GOING_ON_WORTH,
    LIVE_MEMORY,
    SHARED_MEMORY,
    Acceptance,
    LiveAcceptance,
    Prior,
)

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)
rates = st.floats(0.01, 0.99)


def flat(rate: float, worth: float = 6.0) -> Prior:
    return Prior(rates=(rate, rate, rate), worth=worth)


@MODERATE
@given(seen=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=40))
def test_a_shared_record_is_a_decayed_mean(seen: list[tuple[int, bool]]) -> None:
    record = Acceptance(flat(0.25, worth=3.0))
    for position, kept in seen:
        record.test(position, kept)
    for at in range(3):
        mine = [kept for position, kept in seen if min(position, 2) == at]
        decay = 1 - 1 / SHARED_MEMORY[at]
        weights = [decay ** (len(mine) - 1 - i) for i in range(len(mine))]
        held = sum(w for w, kept in zip(weights, mine, strict=True) if kept)
        assert record.rate(at) == pytest.approx((0.25 * 3 + held) / (3 + sum(weights)))
    assert record.tried == any(position == 0 for position, _ in seen)


def test_a_request_starts_from_what_the_others_learned() -> None:
    shared = Acceptance(flat(0.5))
    for _ in range(200):
        shared.test(0, kept=True)
    assert LiveAcceptance(shared).outlook([]).rates[0] == pytest.approx(shared.rate(0))
    assert shared.rate(0) > 0.95


def test_a_request_soon_believes_its_own_text() -> None:
    """After texts in which nothing held, one in which all holds is found out within a few tests."""
    shared = Acceptance(flat(0.5, worth=3.0))
    for _ in range(500):
        shared.test(0, kept=False)
    live = LiveAcceptance(shared)
    assert live.outlook([]).rates[0] < 0.02
    for _ in range(4):
        live.test(0, kept=True)
    assert live.outlook([]).rates[0] > 0.5


def test_what_a_request_learns_is_kept_for_the_next() -> None:
    shared = Acceptance(flat(0.5))
    LiveAcceptance(shared).test(0, kept=True)
    assert shared.rate(0) > 0.5


@pytest.mark.parametrize("kept", [True, False])
def test_one_class_tells_of_the_others(kept: bool) -> None:
    tested, other = (LiveAcceptance(Acceptance(flat(0.5))) for _ in range(2))
    for _ in range(6):
        tested.test(0, kept=kept)
    moved = other.outlook([tested]).rates[0]
    assert (moved > 0.6) if kept else (moved < 0.4)
    assert other.outlook([]).rates[0] == 0.5


def test_the_first_position_tells_of_the_later_ones_and_not_the_other_way() -> None:
    live = LiveAcceptance(Acceptance(Prior(rates=(0.5, 0.4, 0.3), worth=6.0)))
    for _ in range(8):
        live.test(0, kept=True)
    _, second, later = live.outlook([]).rates
    assert second > 0.45
    assert later > 0.35
    back = LiveAcceptance(Acceptance(flat(0.5)))
    for _ in range(8):
        back.test(2, kept=True)
    assert back.outlook([]).rates[0] == 0.5


@pytest.mark.parametrize(("before", "within"), [(True, 12), (False, 12)])
def test_a_change_of_the_text_is_noticed_within_a_dozen_tests(before: bool, within: int) -> None:
    """After any number of tests: a plain mean over 64 would need forty."""
    live = LiveAcceptance(Acceptance(flat(0.5)))
    for _ in range(300):
        live.test(0, kept=before)
    for _ in range(within):
        live.test(0, kept=not before)
    changed = live.outlook([]).rates[0]
    assert (changed < 0.5) if before else (changed > 0.5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_steady_text_is_no_surprise(share: float) -> None:
    """The rate stays near what it is, whatever streaks chance brings."""
    live = LiveAcceptance(Acceptance(flat(0.5)))
    done, seen = 0.0, []
    for test in range(600):
        kept = share * (test + 1) - done >= 1 if test % 3 else share * (test + 1) - done >= 0.7
        done += kept
        live.test(0, kept=kept)
        if test > 100:
            seen.append(live.outlook([]).rates[0])
    assert all(found == pytest.approx(share, abs=0.15) for found in seen)


def test_a_request_weighs_its_last_tests_most() -> None:
    live = LiveAcceptance(Acceptance(flat(0.5, worth=1e-6)))
    for _ in range(LIVE_MEMORY[2]):
        live.tests[2].add(kept=True)
    for _ in range(LIVE_MEMORY[2]):
        live.tests[2].add(kept=False)
    assert live.outlook([]).rates[2] == pytest.approx(1 / (1 + 2.718), abs=0.01)


def test_where_drafts_stop_is_counted() -> None:
    """Of ten drafts that could have had four tokens half stopped at the first, the rest at the
    third."""
    record = Acceptance(flat(0.5))
    for _ in range(5):
        record.end(1, 4)
        record.end(3, 4)
    assert record.going_on(0) == pytest.approx((GOING_ON_WORTH + 5) / (GOING_ON_WORTH + 10), 0.01)
    assert record.going_on(1) == pytest.approx((GOING_ON_WORTH + 5) / (GOING_ON_WORTH + 10), 0.01)


def test_a_draft_as_long_as_allowed_did_not_stop() -> None:
    record = Acceptance(flat(0.5))
    for k in (1, 2, 5):
        record.end(k, k)
    assert (record.going_on(0), record.going_on(1)) == (1.0, 1.0)
