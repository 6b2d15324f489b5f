"""The engine thread: streams, queue, priority, failures, what it tells, the end; in lockstep."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from engine.answer import Answer
from engine.config import DraftSettings
from engine.protocol import (
    ChatPrompt,
    EngineError,
    Event,
    Failed,
    FillPrompt,
    Finished,
    GenerateRequest,
    Paused,
    Queued,
    RequestError,
    Resumed,
    Role,
    RoundDone,
    SamplingParams,
    Snippet,
    Started,
    Steering,
    TextDelta,
    Turn,
)
from engine.service import LocalEngine
from engine.session import Session
from engine.slots import Slots
from engine.telling import Telling

from .paced import PacedModel, all_of, paced_engine, up_to, with_model
from .stream_rules import check_stream
from .tiny_session import answered, ask, fill, flat_costs, text_of, tiny_loaded, tiny_session

PATIENCE_S = 60
"""A test that waits longer hangs, and says where."""
CHAT = ask(id="chat", route="plain")
FILL = fill()


@asynccontextmanager
async def running(
    *, rows: int = 2, context: int = 512
) -> AsyncIterator[tuple[LocalEngine, PacedModel]]:
    """An engine for the time of a test, closed whatever happens."""
    engine, model = paced_engine(rows=rows, context=context)
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


def fresh(context: int) -> Session:
    """A session of its own over the same weights."""
    return tiny_session(with_model(PacedModel(context)))


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
                streams = [
                    await stack.enter_async_context(
                        engine.generate(
                            ask(id=name, route="plain", sampling=SamplingParams(max_tokens=3))
                        )
                    )
                    for name in ("first", "second", "third")
                ]
                await held_in_round(model)
                model.free()
                # Not the order in which their readers wake: that is the loop's business.
                waits = [
                    [event.ahead for event in events if isinstance(event, Queued)]
                    for events in await asyncio.gather(*map(all_of, streams))
                ]
                assert waits == [[], [1], [2, 1]]

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
                    assert before[-1] == Paused(by="editor")
                    await held_in_round(model)
                    assert (await engine.status()).running == ("fill",)
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
            assert [e.by for e in events if isinstance(e, Paused)] == ["editor"]

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
                    assert (await engine.status()).queued == ("fill",)
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
            assert "chat" not in (await engine.status()).running

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
            assert (await engine.status()).queued == ()

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
        (ask(sampling=SamplingParams(seed=1 << 64)), "bad_setting", "seed"),
    ],
    ids=["too long", "top_p", "k", "stop", "seed"],
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
                model.errors = [error, error]
                model.free()
                events += await all_of(broken)
                last = check_stream(events)
                assert isinstance(last, Failed)
                assert (last.code, bool(last.hint)) == (code, True)
                said = "".join(event.text for event in events if isinstance(event, TextDelta))
                whole = text_of(answered(tiny_session(), CHAT))
                assert said
                assert whole.startswith(said.rstrip("\ufffd"))
                model.errors.clear()
                answer = await all_of(other)
            check_stream(answer)
            again = await generated(engine, CHAT)
            assert text_of(again) == whole

    with caplog.at_level(logging.ERROR):
        play(test)
    assert ("surprise" in caplog.text) == (code == "internal")


def test_what_was_held_back_is_told_before_a_failure() -> None:
    """Every last character may begin a stop string here, so that one is always held back."""

    async def test() -> None:
        whole = text_of(answered(tiny_session(), CHAT))
        stops = tuple({character + "never said" for character in whole})
        request = ask(route="plain", sampling=SamplingParams(max_tokens=40, stop=stops))
        async with running() as (engine, model):
            model.hold()
            model.allow(9)
            async with engine.generate(request) as stream:
                events = await up_to(stream, lambda _: model.passes == 9)
                await held_in_round(model)
                model.errors = [ValueError("surprise")]
                model.free()
                events += await all_of(stream)
            assert isinstance(check_stream(events), Failed)
            assert isinstance(events[-2], TextDelta), "the text that was held back"
            said = "".join(event.text for event in events if isinstance(event, TextDelta))
            nine = ask(route="plain", sampling=SamplingParams(max_tokens=9))
            assert said == text_of(answered(tiny_session(), nine))

    play(test)


def test_a_shortage_that_passes_costs_an_answer_nothing() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.errors = [MemoryError()]
            events = await generated(engine, ask(route="layer_skip", k=3))
            check_stream(events)
            assert text_of(events) == text_of(answered(tiny_session(), CHAT))
            assert any("memory ran out" in e.reason for e in events if isinstance(e, RoundDone))

    play(test)


def test_a_shortage_that_stays_is_told_in_numbers_and_only_once() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.errors = [MemoryError() for _ in range(2)]
            last = (await generated(engine, CHAT))[-1]
            assert isinstance(last, Failed)
            assert (last.code, last.exit_code) == ("out_of_memory", 4)
            assert "after 0 tokens of the answer at a context of 9 tokens" in last.message
            assert last.message.count("iB") == 2
            for request in (CHAT, FILL):
                check_stream(await generated(engine, request))

    play(test)


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
            assert (await engine.status()).running == ()

    play(test)


def test_the_status_tells_what_runs_and_what_waits() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            idle = await engine.status()
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
                    busy = await engine.status()
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


# Queue, pauses and steering


def test_those_who_wait_are_told_how_many_go_first() -> None:
    async def test() -> None:
        async with running() as (engine, model), AsyncExitStack() as stack:
            model.hold()
            one = SamplingParams(max_tokens=2)
            chats = [
                await stack.enter_async_context(
                    engine.generate(ask(id=f"{n}", route="plain", sampling=one))
                )
                for n in range(3)
            ]
            await held_in_round(model)
            filling = await stack.enter_async_context(engine.generate(FILL))
            model.free()
            streams = [await all_of(stream) for stream in (*chats, filling)]
            for events in streams:
                check_stream(events)
            waits = [[e.ahead for e in events if isinstance(e, Queued)] for events in streams]
            # The fill came before the second chat could begin, and moved it back by one.
            assert waits == [[], [1, 2, 1], [2, 3, 2, 1], []]

    play(test)


def test_a_waiting_fill_takes_the_very_next_step_even_in_prefill() -> None:
    """Counted in steps, not in time: the chat does not get one more before the fill is done."""

    async def test() -> None:
        async with running(context=2048) as (engine, model):
            model.hold(prefill=True)
            long = ask("words " * 320, id="chat", route="plain")
            async with engine.generate(long) as chat:
                await held_in_round(model)  # in the first stretch of the chat's prompt
                async with engine.generate(FILL) as filling:
                    model.free()
                    filled, events = await asyncio.gather(all_of(filling), all_of(chat))
            check_stream(filled)
            check_stream(events)
            assert text_of(events) == text_of(answered(fresh(2048), long))
            rows = [row for row, _ in model.trace]
            widths = [width for row, width in model.trace if row == rows[0]]
            assert widths[:2] == [512, 512], "the prompt takes several stretches"
            fills = [at for at, row in enumerate(rows) if row != rows[0]]
            assert fills == list(range(1, 1 + len(fills))), "the fill runs as one piece, at once"

    play(test)


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_a_fill_takes_no_more_steps_than_on_an_idle_engine(rounds: int) -> None:
    async def test() -> None:
        async with running() as (engine, model):
            await generated(engine, FILL)
            idle = len(model.trace)
        async with running() as (engine, model):
            model.hold()
            model.allow(rounds)
            async with engine.generate(CHAT) as chat:
                events = await up_to(chat, lambda _: model.passes == rounds)
                await held_in_round(model)
                async with engine.generate(FILL) as filling:
                    before = len(model.trace)
                    model.free()
                    check_stream(await all_of(filling))
                    rest = await all_of(chat)
            between = model.trace[before : before + idle]
            assert {row for row, _ in between} == {1}, "the fill's steps are one piece"
            assert {row for row, _ in model.trace[before + idle :]} == {0}
            assert text_of([*events, *rest]) == text_of(answered(tiny_session(), CHAT))

    play(test)


def test_steering_takes_effect_in_the_next_round() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                model.allow(2)
                events = await up_to(chat, lambda _: model.passes == 2)
                await held_in_round(model)  # in the third round
                await engine.steer("nobody", Steering(route="copy"))
                await engine.steer("chat", Steering(route="layer_skip", k=2))
                model.free()
                events += await all_of(chat)
            await engine.steer("chat", Steering())
            check_stream(events)
            assert text_of(events) == text_of(answered(tiny_session(), CHAT))
            drafted = [event.drafted for event in events if isinstance(event, RoundDone)]
            assert drafted[:3] == [0, 0, 0]
            assert set(drafted[3:-2]) == {2}

    play(test)


def test_steering_reaches_one_that_still_waits() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat, engine.generate(ask(id="next")) as waiting:
                await held_in_round(model)
                await engine.steer("next", Steering(route="plain"))
                model.free()
                await all_of(chat)
                events = await all_of(waiting)
            assert {e.reason for e in events if isinstance(e, RoundDone)} == {"pinned by the user"}

    play(test)


def test_a_route_that_the_model_lacks_is_refused_at_once_and_harms_nobody() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat, engine.generate(ask(id="next")) as waiting:
                await held_in_round(model)
                for answer in ("chat", "next"):
                    for route in ("exit_head", "low_precision"):
                        with pytest.raises(RequestError) as caught:
                            await engine.steer(answer, Steering(route=route))
                        assert caught.value.code == "no_route"
                model.free()
                for stream in (chat, waiting):
                    assert text_of(await all_of(stream)) == text_of(answered(tiny_session(), CHAT))

    play(test)


def test_a_k_out_of_range_is_refused_at_once() -> None:
    async def test() -> None:
        async with running() as (engine, _):
            with pytest.raises(RequestError, match="k is 0"):
                await engine.steer("any", Steering(k=0))
            engine.close()
            await engine.steer("any", Steering())

    play(test)


# What nobody has foreseen


def test_a_wish_that_can_not_be_done_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def surprise() -> None:
        raise ValueError("surprise")

    async def test() -> None:
        async with running() as (engine, _):
            engine._tell(surprise)
            assert text_of(await generated(engine, CHAT)) == whole

    whole = text_of(answered(tiny_session(), CHAT))
    with caplog.at_level(logging.ERROR):
        play(test)
    assert "surprise" in caplog.text


class Untellable(Telling):
    """Can't say what it has held back."""

    def rest(self) -> TextDelta | None:
        raise ValueError("surprise")


class UntellableSession(Session):
    """Fails at the end of every answer, and again when the failed answer is ended."""

    def start(self, request: GenerateRequest) -> Answer:
        answer = super().start(request)
        answer.telling = Untellable(self.loaded.text.stream((), after=()), frozenset())
        return answer


class Stuck(Slots):
    """Takes no row back."""

    def give_back(self, *_: object) -> None:
        raise ValueError("surprise")


def session_of(kind: type[Session]) -> Session:
    return kind(tiny_loaded(), DraftSettings(), flat_costs(), name="tiny", rows=2)


def test_an_answer_that_fails_twice_ends_and_the_engine_goes_on() -> None:
    async def test() -> None:
        engine = LocalEngine(session_of(UntellableSession))
        try:
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(3):
                    last = (await generated(engine, CHAT))[-1]
                    assert isinstance(last, Failed)
                    assert last.code == "internal"
        finally:
            engine.close()

    play(test)


def test_an_engine_that_can_not_go_on_tells_all_and_says_so_from_then_on() -> None:
    async def test() -> None:
        session = session_of(Session)
        session.slots = Stuck(session.slots.cache)
        engine = LocalEngine(session)
        async with asyncio.timeout(PATIENCE_S):
            async with engine.generate(CHAT) as one, engine.generate(ask(id="next")) as waiting:
                last, other = (await all_of(one))[-1], (await all_of(waiting))[-1]
            assert isinstance(last, Failed)
            assert last.code == "internal"
            assert isinstance(other, Failed)
            assert other.code == "engine_broke"
            assert "surprise" in other.message
            assert (await refused(engine)).code == "closed"
            status = engine.snapshot()
            assert (status.state, status.running) == ("asleep", ())
            await asyncio.to_thread(engine.close)

    play(test)


# What is held, and what the status says


class Published(LocalEngine):
    """Keeps every status that somebody could have seen."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_status":
            self.__dict__.setdefault("seen", []).append(value)
        super().__setattr__(name, value)


def test_no_status_leaves_out_what_runs_or_waits() -> None:
    async def test() -> None:
        model = PacedModel()
        engine = Published(tiny_session(with_model(model)))
        try:
            model.hold()
            async with engine.generate(CHAT) as chat, engine.generate(ask(id="next")) as waiting:
                await held_in_round(model)
                model.free()
                await all_of(chat)
                await all_of(waiting)
        finally:
            model.free()
            engine.close()
        busy = [bool(status.running or status.queued) for status in engine.__dict__["seen"]]
        assert False not in busy[busy.index(True) : len(busy) - busy[::-1].index(True)]

    play(test)


def test_what_was_pushed_out_is_told_to_its_conversation_and_in_the_status() -> None:
    async def test() -> None:
        async with running(rows=2) as (engine, _):  # one row for chats
            first = ask("a question", conversation="first")
            await generated(engine, first)
            held = (await engine.status()).held
            assert [one.conversation for one in held] == ["first"]
            await generated(engine, ask("another", conversation="second"))
            status = await engine.status()
            assert (status.evictions, [one.conversation for one in status.held]) == (1, ["second"])
            started = next(e for e in await generated(engine, first) if isinstance(e, Started))
            assert started.cached_tokens + started.evicted_tokens == held[0].tokens
            assert started.evicted_tokens > 0
            again = next(e for e in await generated(engine, first) if isinstance(e, Started))
            assert again.evicted_tokens == 0

    play(test)


def test_an_answer_is_over_in_the_status_before_its_last_event() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            for error in (None, ValueError("surprise")):
                model.errors = [] if error is None else [error]
                async with engine.generate(CHAT) as chat:
                    async for event in chat:
                        status = engine.snapshot()
                        if isinstance(event, Finished | Failed):
                            assert (status.running, status.queued) == ((), ())
                        if isinstance(event, Started):
                            assert "chat" not in status.queued

    play(test)


def test_the_status_may_be_asked_from_any_thread_at_any_time() -> None:
    async def test() -> None:
        over = threading.Event()
        faults: list[BaseException] = []

        def look(engine: LocalEngine) -> None:
            try:
                while not over.is_set():
                    assert engine.snapshot().context_limit == 512
            except BaseException as fault:
                faults.append(fault)

        async with running() as (engine, _):
            lookers = [threading.Thread(target=look, args=(engine,)) for _ in range(3)]
            for looker in lookers:
                looker.start()
            await asyncio.gather(*(generated(engine, ask(f"{n}", id=f"{n}")) for n in range(4)))
            over.set()
            for looker in lookers:
                looker.join()
        assert faults == []

    play(test)


def test_the_status_knows_the_process_and_its_forecast() -> None:
    async def test() -> None:
        async with running() as (engine, _):
            status = await engine.status()
            assert 50 << 20 < status.memory_bytes < 1 << 40
            assert status.fallback_tokens is None
            assert status.state == "ready"
            assert status.plain_tokens_per_s == 1000.0

    play(test)


def test_a_prompt_is_measured_beside_a_running_answer() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            model.hold()
            async with engine.generate(CHAT) as chat:
                await held_in_round(model)
                cost = await engine.measure(CHAT.prompt)  # the engine's thread is in a round
                model.free()
                started = (await all_of(chat))[0]
            assert isinstance(started, Started)
            assert cost.total_tokens == started.prompt_tokens
            assert cost.context_limit == 512
            engine.close()
            with pytest.raises(EngineError, match="closed"):
                await engine.measure(CHAT.prompt)

    play(test)


def test_the_cost_of_a_prompt_is_dealt_over_its_turns_and_snippets() -> None:
    session = tiny_session()
    texts = ("be brief", "first question", "an answer", "second")
    roles: tuple[Role, ...] = ("system", "user", "assistant", "user")
    turns = tuple(Turn(role=r, content=t) for r, t in zip(roles, texts, strict=True))
    snippets = (Snippet(path="a.py", text="x = 1\n" * 9), Snippet(path="b.py", text="y"))
    bare = session.measure(ChatPrompt(turns=turns))
    cost = session.measure(ChatPrompt(turns=turns, snippets=snippets))
    assert cost.turn_tokens == bare.turn_tokens
    assert bare.snippet_tokens == ()
    assert [count > 0 for count in cost.turn_tokens] == [True] * 4
    assert cost.snippet_tokens[0] > 9 * cost.snippet_tokens[1]
    assert sum(cost.turn_tokens) + sum(cost.snippet_tokens) <= cost.total_tokens
    # What is left over is the template's: markers, quotes, and joints that tokenize otherwise.
    assert bare.total_tokens - sum(bare.turn_tokens) <= 4 * len(turns) + 1
    hole = session.measure(FillPrompt(prefix="def f():", suffix="", snippets=snippets))
    assert hole.turn_tokens == ()
    assert hole.snippet_tokens == cost.snippet_tokens


def test_a_closed_engine_holds_no_model() -> None:
    async def test() -> None:
        async with running() as (engine, model):
            await generated(engine, CHAT)
            one, cache = weakref.ref(model), weakref.ref(engine._session.slots.cache)  # type: ignore[union-attr]
            long = ask(id="cut", route="plain", sampling=SamplingParams(max_tokens=400))
            async with engine.generate(long) as stream:
                await up_to(stream, is_round)
                await asyncio.to_thread(engine.close)
                last = (await all_of(stream))[-1]
            assert isinstance(last, Failed)
            assert last.code == "closed"
            status = await engine.status()
            assert (status.state, status.running, status.weight_bytes) == ("asleep", (), 0)
            gone.extend((one, cache))

    gone: list[weakref.ref[object]] = []
    play(test)
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
