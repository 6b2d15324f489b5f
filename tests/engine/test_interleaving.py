"""A chat that others interrupt says, and keeps in its cache, bit for bit what it would have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.answer import Answer
from engine.protocol import Event, Finished, RouteChoice, SamplingParams
from engine.session import Session

from .paced import PacedModel, with_model
from .stream_rules import check_stream
from .test_session import some_ids
from .tiny_session import answered, ask, fill, finish, text_of, tiny_session

PROMPT = some_ids(12) * 3
ROUTES: list[tuple[RouteChoice, int | None]] = [
    ("plain", None),
    ("auto", None),
    ("copy", 3),
    ("layer_skip", 4),
]


def begun(session: Session, route: RouteChoice, k: int | None, params: SamplingParams) -> Answer:
    return session.start_ids(ask(route=route, k=k, sampling=params), PROMPT, frozenset())


def kept_by(answer: Answer) -> list[torch.Tensor]:
    """Keys and values of the answer's row as they lie in the cache."""
    cache, row = answer.session.slots.cache, answer.row.cache_row
    length = cache.lengths[row]
    return [block[row, :, :length].clone() for block in (*cache.keys, *cache.values)]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("route", "k"), ROUTES)
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=30),
        SamplingParams(max_tokens=30, repetition_penalty=0.5),
        SamplingParams(max_tokens=30, temperature=0.9, seed=5),
    ],
    ids=["greedy", "repeating", "sampled"],
)
def test_a_fill_between_any_two_steps_changes_no_bit(
    route: RouteChoice, k: int | None, params: SamplingParams
) -> None:
    if route == "auto" and params.temperature:
        k = 3  # a seed fixes the draw for a fixed k only
    alone = begun(tiny_session(), route, k, params)
    wanted = text_of(finish(alone))
    steps = len(list(_steps(begun(tiny_session(), route, k, params))))
    for at in range(1, steps, 3):
        session = tiny_session()
        answer = begun(session, route, k, params)
        events: list[Event] = [answer.started()]
        for step, happened in enumerate(_steps(answer)):
            events += happened
            if step == at:
                filled = answered(session, fill(id=f"fill {at}"))
                check_stream(filled)
                assert text_of(filled) == text_of(answered(tiny_session(), fill()))
        check_stream(events)
        assert text_of(events) == wanted
        assert same(kept_by(answer), kept_by(alone))


def _steps(answer: Answer) -> Iterator[list[Event]]:
    while not answer.done:
        yield list(answer.step())


@settings(max_examples=8, deadline=None, derandomize=True)
@given(turns=st.lists(st.integers(0, 3), min_size=5, max_size=60))
def test_answers_stepped_in_any_order_are_those_of_each_alone(turns: list[int]) -> None:
    """Three chats and a fill at once, one row each."""
    requests = [
        ask("one", id="one", route="plain"),
        ask("two two", id="two", route="layer_skip", k=3),
        ask("three", id="three", route="copy"),
        fill(id="fill"),
    ]
    session = tiny_session(rows=4)
    answers = [session.start(request) for request in requests]
    events: list[list[Event]] = [[answer.started()] for answer in answers]
    for who in [*turns, *[at % 4 for at in range(4 * 60)]]:
        if not answers[who].done:
            events[who] += answers[who].step()
    for request, mine in zip(requests, events, strict=True):
        last = check_stream(mine)
        assert isinstance(last, Finished)
        assert last.text == text_of(answered(tiny_session(), request))


def test_a_conversation_comes_back_from_behind_others_unchanged() -> None:
    """Four conversations take turns in three rows; the one that was pushed out is told."""
    session = tiny_session(rows=4)
    told: list[int] = []
    for turn in range(3):
        for name in ("a", "b", "c", "d"):
            earlier = tuple(f"{name} said {at}" for at in range(2 * turn))
            request = ask(f"{name} asks {turn}", earlier=earlier, conversation=name)
            answer = session.start(request)
            told.append(answer.started().evicted_tokens)
            assert text_of(finish(answer)) == text_of(answered(tiny_session(), request))
    assert session.slots.evictions == 4 + 4 + 1
    assert [count > 0 for count in told] == [False] * 4 + [True] * 8


@pytest.mark.parametrize("tokens", [100, 700, 1500])
def test_a_chats_step_is_never_longer_than_a_stretch(tokens: int) -> None:
    """What a waiting fill has to wait for is one of these."""
    model = PacedModel(2048)
    session = tiny_session(with_model(model))
    request = ask(route="plain", sampling=SamplingParams(max_tokens=5))
    answer = session.start_ids(request, some_ids(tokens), frozenset())
    while not answer.done:
        before = len(model.trace)
        list(answer.step())
        (width,) = [width for _, width in model.trace[before:]]
        assert width <= 512
