"""The engine thread: streams, priority, cancelling, failures and the end, in lockstep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from engine.protocol import (
    EngineError,
    Event,
    Failed,
    Finished,
    Paused,
    Resumed,
    RoundDone,
    SamplingParams,
    Started,
    TextDelta,
)
from engine.service import LocalEngine

from .paced import PacedModel, all_of, paced_engine, up_to
from .stream_rules import check_stream
from .tiny_session import answered, ask, fill, text_of, tiny_session

PATIENCE_S = 60
"""A test that waits longer hangs, and says where."""
CHAT = ask(id="chat", route="plain")
FILL = fill()


@asynccontextmanager
async def running(*, rows: int = 2) -> AsyncIterator[tuple[LocalEngine, PacedModel]]:
    """An engine for the time of a test, closed whatever happens."""
    engine, model = paced_engine(rows=rows)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield engine, model
    finally:
        model.free()
        engine.close()


def play(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


async def generated(engine: LocalEngine, request: object) -> list[Event]:
    async with engine.generate(request) as stream:  # type: ignore[arg-type]
        return await all_of(stream)


def is_round(event: Event) -> bool:
    return isinstance(event, RoundDone)


def rounds_in(events: list[Event]) -> int:
    return sum(map(is_round, events))


async def held_in_round(model: PacedModel) -> None:
    await asyncio.to_thread(model.wait_until_held)


def test_a_stream_is_what_the_session_answers() -> None:
    async def test() -> None:
        async with running() as (engine, _):
            for request in (CHAT, FILL, ask(route="layer_skip", k=3), ask(route="copy")):
                events = await generated(engine, request)
                check_stream(events)
                assert text_of(events) == text_of(answered(tiny_session(), request))

    play(test)


def test_two_chats_at_once_get_their_own_answers() -> None:
    async def test() -> None:
        requests = [ask("one", id="one"), ask("two return", id="two")]
        async with running() as (engine, _):
            streams = await asyncio.gather(*(generated(engine, one) for one in requests))
        for request, events in zip(requests, streams, strict=True):
            check_stream(events)
            assert not any(isinstance(event, Paused) for event in events)
            assert text_of(events) == text_of(answered(tiny_session(), request))

    play(test)


def test_chats_are_served_in_the_order_they_came() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with AsyncExitStack() as stack:
                names = ["first", "second", "third"]
                ends: list[str] = []

                async def read(name: str, stream: AsyncIterator[Event]) -> None:
                    await all_of(stream)
                    ends.append(name)

                streams = [
                    await stack.enter_async_context(
                        engine.generate(
                            ask(id=name, route="plain", sampling=SamplingParams(max_tokens=3))
                        )
                    )
                    for name in names
                ]
                await held_in_round(model)
                model.free()
                await asyncio.gather(*map(read, names, streams))
                assert ends == names

    play(test)


def test_a_fill_pauses_a_chat_between_two_rounds() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                model.allow(3)
                before = await up_to(chat, lambda e: is_round(e) and model.passes == 3)
                await held_in_round(model)  # in the middle of the fourth round
                async with engine.generate(FILL) as filling:
                    model.allow(1)
                    before += await up_to(chat, lambda event: isinstance(event, Paused))
                    assert rounds_in(before) == 4
                    assert before[-1] == Paused(by="fill")
                    await held_in_round(model)
                    assert engine.status().running == ("chat", "fill")
                    model.free()
                    filled = await all_of(filling)
                after = await all_of(chat)
        assert isinstance(after[0], Resumed)
        assert after[0].paused_ms > 0
        check_stream([*before, *after])
        check_stream(filled)
        assert text_of(after) == text_of(answered(tiny_session(), CHAT))
        assert text_of(filled) == text_of(answered(tiny_session(), FILL))

    play(test)


def test_two_fills_are_one_pause() -> None:
    async def test() -> None:
        async with running() as (engine, model), AsyncExitStack() as stack:
            model.hold()
            chat = await stack.enter_async_context(engine.generate(CHAT))
            await held_in_round(model)
            for name in ("a", "b"):
                await stack.enter_async_context(
                    engine.generate(fill(id=name, sampling=SamplingParams(max_tokens=2)))
                )
            model.free()
            events = await all_of(chat)
            check_stream(events)
            assert [e.by for e in events if isinstance(e, Paused)] == ["a"]

    play(test)


def test_a_fill_that_leaves_lets_the_chat_go_on() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                await held_in_round(model)
                async with engine.generate(FILL):
                    model.allow(1)
                    events = await up_to(chat, lambda event: isinstance(event, Paused))
                    await held_in_round(model)
                model.free()
                events += await all_of(chat)
        check_stream(events)
        assert text_of(events) == text_of(answered(tiny_session(), CHAT))

    play(test)


def test_with_one_row_a_fill_waits_for_the_chat_to_end() -> None:
    async def test() -> None:
        async with running(rows=1) as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                await held_in_round(model)
                async with engine.generate(FILL) as filling:
                    model.allow(1)
                    events = await up_to(chat, is_round)
                    await held_in_round(model)
                    assert engine.status().queued == ("fill",)
                    model.free()
                    check_stream([*events, *await all_of(chat)])
                    filled = await all_of(filling)
        assert text_of(filled) == text_of(answered(tiny_session(), FILL))

    play(test)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_leaving_ends_an_answer_within_one_round(rounds: int) -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                model.allow(rounds)
                for _ in range(rounds):
                    await up_to(chat, is_round)
                await held_in_round(model)
            model.free()  # the round in progress ends, and no other begins
            after = ask("and?", id="after", sampling=SamplingParams(max_tokens=1), route="plain")
            events = await generated(engine, after)
            assert model.passes == rounds + 1 + 1
            assert text_of(events) == text_of(answered(tiny_session(), after))
            assert "chat" not in engine.status().running

    play(test)


def test_a_cancelled_task_leaves_too() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            task = asyncio.create_task(generated(engine, CHAT))
            await held_in_round(model)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            model.free()
            one = SamplingParams(max_tokens=1)
            await generated(engine, ask(id="after", sampling=one, route="plain"))
            assert model.passes == 2

    play(test)


def test_one_who_leaves_before_the_first_step_costs_nothing() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                await held_in_round(model)
                async with engine.generate(ask(id="waiting")):
                    pass
                model.free()
                events = await all_of(chat)
            assert model.passes == rounds_in(events)
            assert engine.status().queued == ()

    play(test)


def test_the_next_turn_of_a_chat_finds_its_prefix() -> None:
    async def test() -> None:
        async with running() as (engine, _):
            await generated(engine, CHAT)
            started = (await generated(engine, CHAT))[0]
            assert isinstance(started, Started)
            assert started.cached_tokens == started.prompt_tokens - 1

    play(test)


@pytest.mark.parametrize(
    ("request_", "code", "named"),
    [
        (ask("words " * 3000), "context_full", "512"),
        (ask(sampling=SamplingParams(top_p=0.0)), "bad_setting", "top_p"),
        (ask(k=99), "bad_setting", "99"),
        (ask(sampling=SamplingParams(stop=("",))), "bad_setting", "stop string"),
    ],
    ids=["too long", "top_p", "k", "stop"],
)
def test_what_can_not_be_served_fails_and_the_engine_goes_on(
    request_: object, code: str, named: str
) -> None:
    async def test() -> None:
        async with running() as (engine, _):
            for _ in range(3):
                (failed,) = await generated(engine, request_)
                assert isinstance(failed, Failed)
                assert failed.code == code
                assert named in failed.message
                assert failed.hint
            check_stream(await generated(engine, CHAT))

    play(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [(MemoryError("no room"), "out_of_memory"), (ValueError("surprise"), "internal")],
    ids=["memory", "bug"],
)
def test_a_failure_in_a_round_ends_that_answer_alone(
    error: Exception, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        # One row: had the broken answer kept it, the other would wait for ever.
        async with running(rows=1) as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as broken, engine.generate(ask(id="other")) as other:
                model.allow(2)
                events = await up_to(broken, is_round)
                events += await up_to(broken, is_round)
                model.error = error
                model.free()
                events += await all_of(broken)
                last = check_stream(events)
                assert isinstance(last, Failed)
                assert (last.code, bool(last.hint)) == (code, True)
                assert str(error) in last.message
                answer = await all_of(other)
            check_stream(answer)
            again = await generated(engine, CHAT)
            assert text_of(again) == text_of(answered(tiny_session(), CHAT))

    with caplog.at_level(logging.ERROR):
        play(test)
    assert ("surprise" in caplog.text) == (code == "internal")


def test_closing_ends_every_stream() -> None:
    """The one in a round, the paused one, and the one that came during the last round."""

    async def test() -> None:
        async with running() as (engine, model), AsyncExitStack() as stack:
            model.hold()
            chat = await stack.enter_async_context(engine.generate(CHAT))
            await held_in_round(model)
            filling = await stack.enter_async_context(engine.generate(FILL))
            model.allow(1)
            await up_to(chat, lambda event: isinstance(event, Paused))
            await held_in_round(model)
            late = await stack.enter_async_context(engine.generate(ask(id="late")))
            closing = asyncio.create_task(asyncio.to_thread(engine.close))
            await refused(engine)
            model.free()
            await closing
            for stream in (chat, filling, late):
                last = (await all_of(stream))[-1]
                assert isinstance(last, Failed)
                assert last.code == "closed"

    play(test)


async def refused(engine: LocalEngine) -> EngineError:
    """Wait until the engine takes no more requests."""
    while True:
        try:
            async with engine.generate(ask(id="knock")):
                await asyncio.sleep(0)
        except EngineError as error:
            return error


def test_a_closed_engine_says_so_and_closes_again_without_harm() -> None:
    async def test() -> None:
        async with running() as (engine, _):
            await generated(engine, FILL)
            engine.close()
            engine.close()
            error = await refused(engine)
            assert error.code == "closed"
            assert error.hint
            assert engine.status().running == ()

    play(test)


def test_the_status_tells_what_runs_and_what_waits() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            idle = engine.status()
            assert (idle.running, idle.queued, idle.cache_bytes) == ((), (), 0)
            assert (idle.model, idle.device, idle.quant) == ("tiny", "cpu", "nf4")
            assert idle.context_limit == 512
            assert idle.weight_bytes == model.weight_bytes
            model.hold()
            async with engine.generate(CHAT) as chat:
                await held_in_round(model)
                async with engine.generate(ask(id="second")):
                    model.allow(1)
                    await up_to(chat, is_round)
                    await held_in_round(model)
                    busy = engine.status()
                    assert (busy.running, busy.queued) == (("chat",), ("second",))
                    assert busy.cache_bytes > 0
                    model.free()
                    await all_of(chat)

    play(test)


def test_text_comes_while_the_answer_is_still_being_decoded() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            model.allow(6)
            async with engine.generate(CHAT) as chat:
                events = await up_to(chat, lambda event: isinstance(event, TextDelta))
                assert not any(isinstance(event, Finished) for event in events)
                assert model.passes <= 6
                model.free()

    play(test)
