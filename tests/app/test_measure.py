"""How `verify` tells its results, and which of the shipped cases a command runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.measure import chosen_cases, comparison_line, verdict_line
from engine.cases import KINDS
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


def test_a_comparison_is_one_line_with_its_verdict() -> None:
    line = comparison_line(SAME)
    assert line.endswith("identical")
    assert "α 0.75 (30/40)" in line
    other = comparison_line(replace(SAME, differs_at=0, k=None, tested=0, accepted=0))
    assert other.endswith("DIFFERS from output token 1 on")
    assert "k auto" in other
    assert "none drafted" in other


def test_one_difference_is_enough() -> None:
    assert verdict_line([SAME, SAME]) == "2 runs, 128 tokens: all identical to plain decoding"
    assert verdict_line([SAME, replace(SAME, differs_at=9)]).startswith("1 of 2 runs differ")


def test_cases_are_chosen_by_name() -> None:
    everything = [case.name for case in chosen_cases(())]
    assert len(everything) == len(set(everything)) >= 48
    picked = chosen_cases((everything[2], everything[0], everything[2]))
    assert [case.name for case in picked] == [everything[2], everything[0]]
    with pytest.raises(RequestError, match=f"Did you mean {everything[0]}"):
        chosen_cases((everything[0] + "x",))


def test_cases_are_chosen_by_kind() -> None:
    fills = chosen_cases((), ("fill",))
    assert len(fills) >= 8
    assert {case.kind for case in fills} == {"fill"}
    both = chosen_cases(("json",), ("fill",))
    assert both[0].name == "json"
    assert both[1:] == fills
    with pytest.raises(RequestError, match="Did you mean fill"):
        chosen_cases((), ("fills",))


def test_a_few_of_each_kind_stand_for_it() -> None:
    for most in (1, 2):
        kinds = [case.kind for case in chosen_cases((), most=most)]
        assert sorted(kinds) == sorted([*KINDS] * most)
