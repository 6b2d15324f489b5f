"""How counts of completions are worded: every share with what it is a share of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.editor_counts import COUNTED
from tui.editor_statistics import EditorStatistics, rows


def test_every_row_says_what_it_is_a_share_of() -> None:
    assert dict(rows(COUNTED)) == {
        "accepted": "45 % of 400 seen, 150 whole, 30 in part, 20 typed out by hand, 90 gone unread",
        "kept": "97 % after 30 s (160), 91 % after 2 min (150), 100 % after 10 min (96)",
        "memory": "65 % of 1,000 answers needed no model",
        "latency": "p50 12 ms, p90 540 ms",
        "  model": "p50 380 ms, p90 1.3 s, 350 answers",
        "  memory": "p50 2 ms, p90 6 ms, 600 answers",
        "  prefetch": "p50 3 ms, p90 8 ms, 50 answers",
        "cancelled": "120, 30 tokens computed after, 0.25 each",
        "drafting": "α 0.75 of 2,000 tested",
        "  copy": "α 0.75, 800 rounds",
        "  plain": "400 rounds",
    }


def test_what_was_not_measured_is_a_dash() -> None:
    assert dict(rows(EditorStatistics())) == {
        "accepted": "– % of 0 seen",
        "kept": "–",
        "latency": "–",
        "memory": "– % of 0 answers needed no model",
        "cancelled": "0, 0 tokens computed after, – each",
        "drafting": "α – of 0 tested",
    }


def test_empty_is_when_nothing_was_counted() -> None:
    assert EditorStatistics(days=3).is_empty
    assert not EditorStatistics(empty=1).is_empty
    assert not EditorStatistics(unseen=1).is_empty
    assert not COUNTED.is_empty


COUNTS = st.integers(0, 10_000)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_shares_are_shares(accepted: int, partial: int, typed: int, rejected: int) -> None:
    counted = EditorStatistics(accepted=accepted, partial=partial, typed=typed, rejected=rejected)
    if counted.seen:
        assert counted.acceptance == pytest.approx((accepted + partial) / counted.seen)
        assert 0 <= (counted.acceptance or 0) <= 1
    else:
        assert counted.acceptance is None
