"""One suite for every `Engine`: whoever is written against one may be given another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine.protocol import (
    ChatPrompt,
    Engine,
    EngineStatus,
    Event,
    Failed,
    FillPrompt,
    Finished,
    FinishReason,
    GenerateRequest,
    RoundDone,
    RouteChoice,
    SamplingParams,
    Snippet,
    Started,
    Steering,
    TextDelta,
    Turn,
)
from engine.service import LocalEngine
from tests.engine.stream_rules import check_stream
from tests.engine.tiny_session import ask, fill, tiny_session
from tests.fakes import ScriptedEngine, answer_script, round_of

PATIENCE_S = 120
REFUSED = "a prompt that no engine of these can take " * 400
REASONS: set[FinishReason] = {"stop", "stop_string", "length", "context", "cancelled"}


def local() -> Engine:
    return LocalEngine(tiny_session())


def scripted() -> Engine:
    def script(request: GenerateRequest) -> list[Event]:
        if request == ask(REFUSED):
            return [Failed(code="context_full", message="too long", hint="Attach less.")]
        rounds = [round_of(drafted=4, accepted=2), round_of(drafted=3, accepted=3)]
        return answer_script("an answer of quite a few words, dealt out over rounds", rounds)

    return ScriptedEngine(script)


ENGINES: dict[str, Callable[[], Engine]] = {"local": local, "scripted": scripted}
Scenario = Callable[[Engine], Awaitable[None]]
Play = Callable[[Scenario], None]


@pytest.fixture(params=ENGINES)
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a test with an engine of each kind, and closes it."""

    def run(test: Scenario) -> None:
        async def main() -> None:
            engine = ENGINES[request.param]()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await test(engine)
            finally:
                engine.close()

        asyncio.run(main())

    return run


async def events_of(engine: Engine, request: GenerateRequest) -> list[Event]:
    async with engine.generate(request) as stream:
        return [event async for event in stream]


@pytest.mark.parametrize(
    "request_",
    [
        ask(),
        ask(route="plain"),
        ask(route="layer_skip", k=3),
        ask(route="copy", k=2, sampling=SamplingParams(temperature=0.8, seed=1, max_tokens=20)),
        ask("and?", earlier=("hi", "hello")),
        fill(),
    ],
    ids=["auto", "plain", "layer_skip", "copy", "second turn", "fill"],
)
def test_a_stream_keeps_the_rules(play: Play, request_: GenerateRequest) -> None:
    async def test(engine: Engine) -> None:
        last = check_stream(await events_of(engine, request_))
        assert isinstance(last, Finished)
        assert last.reason in REASONS
        assert last.usage.output_tokens <= request_.sampling.max_tokens

    play(test)


def test_an_answer_has_text_and_rounds(play: Play) -> None:
    async def test(engine: Engine) -> None:
        events = await events_of(engine, ask())
        for kind in (Started, TextDelta, RoundDone, Finished):
            assert any(isinstance(event, kind) for event in events)

    play(test)


def test_a_refused_request_fails_with_a_remedy(play: Play) -> None:
    async def test(engine: Engine) -> None:
        last = check_stream(await events_of(engine, ask(REFUSED)))
        assert isinstance(last, Failed)
        assert last.code == "context_full"
        assert last.hint
        check_stream(await events_of(engine, ask()))

    play(test)


def test_streams_side_by_side_each_keep_the_rules(play: Play) -> None:
    async def test(engine: Engine) -> None:
        requests = [ask(id="a"), ask("another", id="b"), fill(id="c")]
        streams = await asyncio.gather(*(events_of(engine, one) for one in requests))
        for events in streams:
            assert isinstance(check_stream(events), Finished)

    play(test)


@pytest.mark.parametrize("events", [0, 1, 2, 5])
def test_leaving_at_any_event_harms_no_later_request(play: Play, events: int) -> None:
    async def test(engine: Engine) -> None:
        whole = await events_of(engine, ask())
        async with engine.generate(ask()) as stream:
            for _ in range(events):
                await anext(stream)
        last, again = whole[-1], (await events_of(engine, ask()))[-1]
        assert isinstance(last, Finished)
        assert isinstance(again, Finished)
        assert again.text == last.text

    play(test)


def test_an_exception_of_the_reader_passes_through(play: Play) -> None:
    async def test(engine: Engine) -> None:
        async def read() -> None:
            async with engine.generate(ask()) as stream:
                await anext(stream)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await read()
        check_stream(await events_of(engine, ask()))

    play(test)


def test_a_stream_ends_after_its_last_event(play: Play) -> None:
    async def test(engine: Engine) -> None:
        async with engine.generate(ask()) as stream:
            async for _ in stream:
                pass
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    play(test)


def test_the_status_describes_an_idle_engine(play: Play) -> None:
    async def test(engine: Engine) -> None:
        status = await engine.status()
        assert isinstance(status, EngineStatus)
        assert (status.running, status.queued) == ((), ())
        assert status.model
        assert status.context_limit > 0

    play(test)


def test_closing_twice_is_harmless(play: Play) -> None:
    async def test(engine: Engine) -> None:
        await events_of(engine, fill())
        engine.close()
        engine.close()

    play(test)


def test_a_prompt_is_measured_without_being_answered(play: Play) -> None:
    async def test(engine: Engine) -> None:
        snippet = Snippet(path="a.py", text="x = 1\n" * 20)
        turns = (Turn(role="user", content="what is x?"), Turn(role="assistant", content="It is"))
        for prompt in (
            ChatPrompt(turns=turns[:1]),
            ChatPrompt(turns=turns, snippets=(snippet,)),
            FillPrompt(prefix="x = ", suffix="\n", snippets=(snippet,)),
        ):
            cost = await engine.measure(prompt)
            asked = len(prompt.turns) if isinstance(prompt, ChatPrompt) else 0
            assert len(cost.turn_tokens) == asked
            assert len(cost.snippet_tokens) == len(prompt.snippets)
            assert min(*cost.turn_tokens, *cost.snippet_tokens, 1) > 0
            assert cost.total_tokens >= sum(cost.turn_tokens) + sum(cost.snippet_tokens)
            assert cost.context_limit == (await engine.status()).context_limit
        assert (await engine.status()).running == ()

    play(test)


def test_steering_at_any_time_keeps_the_rules_and_the_text(play: Play) -> None:
    async def test(engine: Engine) -> None:
        whole = (await events_of(engine, ask()))[-1]
        assert isinstance(whole, Finished)
        routes: tuple[RouteChoice, ...] = ("plain", "layer_skip", "copy", "auto")
        events: list[Event] = []
        async with engine.generate(ask()) as stream:
            async for event in stream:
                events.append(event)
                k = None if len(events) % 2 else 2
                await engine.steer("ask", Steering(route=routes[len(events) % 4], k=k))
                await engine.steer("nobody", Steering(route="plain"))
        await engine.steer("ask", Steering())
        last = check_stream(events)
        assert isinstance(last, Finished)
        assert last.text == whole.text

    play(test)


def test_an_unfinished_message_is_gone_on_with(play: Play) -> None:
    async def test(engine: Engine) -> None:
        turns = (Turn(role="user", content="go"), Turn(role="assistant", content="def f("))
        request = GenerateRequest(
            id="on", prompt=ChatPrompt(turns=turns), sampling=SamplingParams(max_tokens=8)
        )
        assert isinstance(check_stream(await events_of(engine, request)), Finished)

    play(test)


def test_more_requests_than_an_engine_serves_at_once_are_all_answered(play: Play) -> None:
    async def test(engine: Engine) -> None:
        texts = {f"{n}": f"question number {n}" for n in range(8)}
        short = SamplingParams(max_tokens=6)
        requests = [
            ask(text, id=name, sampling=short, conversation=name) for name, text in texts.items()
        ]
        alone = {one.id: (await events_of(engine, one))[-1] for one in requests}
        streams = await asyncio.gather(*(events_of(engine, one) for one in requests))
        for request, events in zip(requests, streams, strict=True):
            last, wanted = check_stream(events), alone[request.id]
            assert isinstance(last, Finished)
            assert isinstance(wanted, Finished)
            assert last.text == wanted.text, "each client has its own answer"

    play(test)
