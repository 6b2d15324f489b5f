"""How `verify` and `bench` tell their results, and which cases they run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.measure import chosen_cases, comparison_line, result_line, verdict_line
from engine.bench import ArmResult
from engine.protocol import RequestError
from engine.selfcheck import Comparison

SAME = Comparison(
    case="fill",
    prompt_tokens=510,
    route="copy",
    k=3,
    tokens=64,
    tested=40,
    accepted=30,
    differs_at=None,
)
RESULT = ArmResult(
    case="fill",
    kind="fill",
    arm="auto",
    prompt_tokens=510,
    output_tokens=64,
    tokens_per_s=81.25,
    slowest_tokens_per_s=80.0,
    fastest_tokens_per_s=82.0,
    times_plain=1.256,
    tested=40,
    accepted=30,
    tokens_per_round=1.75,
    same_text=True,
)


def test_a_comparison_is_one_line_with_its_verdict() -> None:
    line = comparison_line(SAME)
    assert line.endswith("identical")
    assert "α 0.75 (30/40)" in line
    other = comparison_line(replace(SAME, differs_at=0, k=None, tested=0, accepted=0))
    assert other.endswith("DIFFERS from output token 1 on")
    assert "k auto" in other
    assert "nothing drafted" in other


def test_one_difference_is_enough() -> None:
    assert verdict_line([SAME, SAME]) == "2 runs, 128 tokens: all identical to plain decoding"
    assert verdict_line([SAME, replace(SAME, differs_at=9)]).startswith("1 of 2 runs differ")


def test_an_arm_is_one_line() -> None:
    words = result_line(RESULT).split()
    assert words[:7] == ["fill", "auto", "510", "64", "81.2", "1.26", "1.75"]
    assert result_line(RESULT).endswith("as plain")
    assert result_line(replace(RESULT, same_text=False)).endswith("differs from plain")


def test_cases_are_chosen_by_name() -> None:
    everything = [case.name for case in chosen_cases(())]
    assert len(everything) == len(set(everything)) >= 4
    picked = chosen_cases((everything[2], everything[0], everything[2]))
    assert [case.name for case in picked] == [everything[2], everything[0]]
    with pytest.raises(RequestError, match=f"Did you mean {everything[0]}"):
        chosen_cases((everything[0] + "x",))
