"""Steering an answer: from its next round on, with the reason told, and never in its text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer import Answer
from engine.protocol import (
    Event,
    RequestError,
    RoundDone,
    RouteChoice,
    SamplingParams,
    Steering,
)

from .stream_rules import check_stream
from .tiny_heads import random_head
from .tiny_session import answered, ask, text_of, tiny_loaded, tiny_session

LONG = SamplingParams(max_tokens=60, repetition_penalty=0.5)
ROUTES: tuple[RouteChoice, ...] = ("auto", "plain", "copy", "layer_skip")
"""What a model without a head and without a twin can draft with."""


def begun(answer: Answer, rounds: int) -> list[Event]:
    """The events of an answer up to and with so many rounds."""
    events: list[Event] = [answer.started()]
    while sum(isinstance(event, RoundDone) for event in events) < rounds:
        events += answer.step()
    return events


def rest(answer: Answer) -> list[Event]:
    events: list[Event] = []
    while not answer.done:
        events += answer.step()
    return events


def rounds_of(events: list[Event]) -> list[RoundDone]:
    return [event for event in events if isinstance(event, RoundDone)]


@pytest.mark.parametrize("route", ["plain", "copy", "layer_skip"])
def test_the_next_round_follows_and_says_who_wanted_it(route: RouteChoice) -> None:
    answer = tiny_session().start(ask(sampling=LONG))
    begun(answer, 3)
    answer.steer(Steering(route=route))
    for one in rounds_of(rest(answer)):
        assert one.route in (route, "plain")
        assert "pinned by the user" in one.reason


def test_a_pinned_k_is_drafted_until_the_answer_ends() -> None:
    answer = tiny_session().start(ask(sampling=LONG, route="plain"))
    assert {one.drafted for one in rounds_of(begun(answer, 4))} == {0}
    answer.steer(Steering(route="layer_skip", k=3))
    *drafts, _ = rounds_of(rest(answer))
    assert drafts
    for one in drafts[:-2]:
        assert (one.route, one.k, one.drafted) == ("layer_skip", 3, 3)
        assert one.reason == "k 3 on layer_skip, pinned by the user"


def test_letting_go_gives_the_choice_back() -> None:
    answer = tiny_session().start(ask(sampling=LONG, route="plain"))
    pinned = rounds_of(begun(answer, 3))
    assert {one.reason for one in pinned} == {"pinned by the user"}
    answer.steer(Steering())
    freed = rounds_of(rest(answer))
    assert any(one.drafted for one in freed)
    assert not any("pinned" in one.reason for one in freed)


def test_a_route_that_has_nothing_to_draft_says_so() -> None:
    answer = tiny_session().start(ask(sampling=SamplingParams(max_tokens=4)))
    answer.steer(Steering(route="copy"))
    reasons = {one.reason for one in rounds_of(rest(answer)) if not one.drafted}
    assert "nothing to copy (copy pinned by the user)" in reasons


def test_a_head_without_a_state_to_start_from_says_so() -> None:
    loaded = tiny_loaded()
    session = tiny_session(replace(loaded, head=random_head(loaded.model, jump=2)))
    answer = session.start(ask(sampling=LONG, route="plain"))
    begun(answer, 2)
    answer.steer(Steering(route="exit_head", k=2))
    first, *later = rounds_of(rest(answer))
    reason = "the exit head starts after a plain round (exit_head pinned by the user)"
    assert (first.route, first.reason) == ("plain", reason)
    assert later[0].route == "exit_head"


@pytest.mark.parametrize("k", [0, -1, 33])
def test_a_k_out_of_range_is_refused_and_changes_nothing(k: int) -> None:
    answer = tiny_session().start(ask(sampling=LONG, route="layer_skip", k=2))
    begun(answer, 2)
    with pytest.raises(RequestError, match=str(k)):
        answer.steer(Steering(k=k))
    assert rounds_of(rest(answer))[0].k == 2


def test_a_pin_learns_nothing_that_auto_would_believe() -> None:
    session = tiny_session()
    for request in (ask(sampling=LONG), ask(sampling=LONG, route="layer_skip")):
        answer = session.start(request)
        answer.steer(Steering(route="layer_skip", k=2))
        rest(answer)
    assert not any(record.tried for record in session._records.values())
    answer.steer(Steering())
    assert session.fallback_tokens() is None


def test_a_drafter_in_use_keeps_what_it_knows_of_the_text() -> None:
    answer = tiny_session().start(ask(sampling=LONG))
    begun(answer, 3)
    copy = answer.drafting.drafters["copy"]
    answer.steer(Steering(route="copy", k=2))
    assert answer.drafting.drafters == {"copy": copy}
    answer.steer(Steering(route="plain"))
    assert answer.drafting.drafters == {}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    steers=st.lists(
        st.tuples(
            st.integers(0, 12),
            st.sampled_from(ROUTES),
            st.one_of(st.none(), st.integers(1, 6)),
        ),
        max_size=5,
    ),
    penalty=st.sampled_from([1.0, 0.5]),
)
def test_no_steering_changes_the_text(
    steers: list[tuple[int, RouteChoice, int | None]], penalty: float
) -> None:
    params = SamplingParams(max_tokens=40, repetition_penalty=penalty)
    wanted = text_of(answered(tiny_session(), ask(route="plain", sampling=params)))
    answer = tiny_session().start(ask(sampling=params))
    events: list[Event] = [answer.started()]
    steps = 0
    while not answer.done:
        for at, route, k in steers:
            if at == steps:
                answer.steer(Steering(route=route, k=k))
        events += answer.step()
        steps += 1
    check_stream(events)
    assert text_of(events) == wanted
