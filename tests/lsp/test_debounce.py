"""What is waited for before the engine is asked."""

from __future__ import annotations

import pytest

from lsp.debounce import MOST_S, Pace


def typed(gap_s: float, *, keys: int = 6, latency_s: float | None = None) -> Pace:
    pace = Pace()
    for key in range(keys):
        pace.key(key * gap_s)
    if latency_s is not None:
        pace.answered(latency_s)
    return pace


def wait(pace: Pace, gap_s: float, keys: int = 6, **more: object) -> float:
    options = {"setting_ms": None, "explicit": False} | more
    return pace.wait_s((keys - 1) * gap_s, **options)  # type: ignore[arg-type]


def test_at_first_nobody_waits() -> None:
    assert wait(Pace(), 0.1) == 0
    assert wait(typed(0.1), 0.1) == 0


def test_an_engine_that_answers_between_two_keys_is_asked_at_once() -> None:
    assert wait(typed(0.15, latency_s=0.1), 0.15) == 0


def test_an_engine_that_cant_is_asked_when_the_burst_is_over() -> None:
    assert wait(typed(0.1, latency_s=0.5), 0.1) == pytest.approx(0.15)
    assert wait(typed(0.5, latency_s=2.0), 0.5) == MOST_S


def test_one_key_after_a_rest_is_no_burst() -> None:
    pace = typed(0.1, latency_s=0.5)
    pace.key(10.0)
    assert pace.wait_s(10.0, setting_ms=None, explicit=False) == 0


def test_time_since_the_key_counts() -> None:
    """Clients wait by themselves before they ask."""
    pace = typed(0.1, latency_s=0.5)
    assert pace.wait_s(0.6, setting_ms=None, explicit=False) == pytest.approx(0.05)
    assert pace.wait_s(0.7, setting_ms=None, explicit=False) == 0
    assert pace.wait_s(0.7, setting_ms=300, explicit=False) == pytest.approx(0.1)


def test_a_setting_holds_and_who_asks_explicitly_never_waits() -> None:
    pace = typed(0.1, latency_s=0.5)
    assert wait(pace, 0.1, setting_ms=0) == 0
    assert wait(pace, 0.1, setting_ms=400) == pytest.approx(0.4)
    assert wait(pace, 0.1, setting_ms=400, explicit=True) == 0


def test_a_measurement_follows_the_machine() -> None:
    pace = Pace()
    pace.prefilled(8, 0.001)
    assert pace.prefill_tokens_per_s is None
    for _ in range(20):
        pace.prefilled(100, 0.1)
    assert pace.prefill_tokens_per_s == pytest.approx(1000)
    pace.prefilled(100, 0.2)
    assert pace.prefill_tokens_per_s == pytest.approx(850)
