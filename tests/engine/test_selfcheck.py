"""The self-check finds a text that differs, and says what it did not look at."""

from __future__ import annotations

from engine.cases import Case, LeftOut, built_in_cases
from engine.protocol import ChatPrompt, Turn
from engine.selfcheck import ROUTES, Comparison, check
from tests.engine.tiny_session import tiny_session

SHORT = Case(
    name="short",
    kind="chat-code",
    prompt=ChatPrompt(turns=(Turn(role="user", content="one two one two one two"),)),
)


def told_of(cases: tuple[Case, ...], tokens: int) -> tuple[bool, list[Comparison | LeftOut]]:
    told: list[Comparison | LeftOut] = []
    same = check(tiny_session(), cases, tokens=tokens, ks=(1, 3), report=told.append)
    return same, told


def test_every_route_at_every_k_and_auto_is_compared() -> None:
    same, told = told_of((SHORT,), tokens=12)
    assert same
    compared = [(one.route, one.k) for one in told if isinstance(one, Comparison)]
    assert compared[-1] == ("auto", None)
    lacking = [one.arm for one in told if isinstance(one, LeftOut)]
    assert "exit_head" in lacking  # this model has no head
    usable = [route for route in ROUTES if route not in lacking]
    assert {"copy", "layer_skip"} <= {*usable}
    assert compared[:-1] == [(route, k) for route in usable for k in (1, 3)]


def test_a_case_too_long_for_the_context_is_named() -> None:
    long = next(case for case in built_in_cases() if case.kind == "long-context")
    _, told = told_of((SHORT, long), tokens=12)
    left_out = [one for one in told if isinstance(one, LeftOut) and one.arm is None]
    assert [one.case for one in left_out] == [long.name]
    assert "the context holds" in left_out[0].reason
