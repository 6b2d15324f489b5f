"""When the model is loaded, put away and exchanged, and when nobody needs the process: by rule."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from app.engine_host import RETRY_S, EngineHost
from app.host_status import BROKEN
from app.load_attempt import Opened
from app.settings import DaemonSettings, ModelSettings
from app.wire import Wanted
from engine.protocol import (
    ChatPrompt,
    EngineError,
    EngineStatus,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    MemoryLimitError,
    ModelError,
    Turn,
)
from tests.app.remote_engine import PacedEngine

if TYPE_CHECKING:
    from app.progress import Report

ONE, OTHER = (Wanted(model=ModelSettings(model=name)) for name in ("one", "other"))
MINUTE = 60.0


def ask(text: str = "a few words", id_: str = "r") -> GenerateRequest:
    turns = (Turn(role="user", content=text),)
    return GenerateRequest(id=id_, prompt=ChatPrompt(turns=turns))


class World:
    """A host with a clock that stands still and models that come when they are let."""

    def __init__(self, **daemon: float) -> None:
        self.now = 1000.0
        self.opened: list[str] = []
        self.engines: list[PacedEngine] = []
        self.gate = threading.Event()
        self.gate.set()
        self.freed = threading.Event()
        self.freed.set()
        self.error: BaseException | None = None
        self.broken: set[str] = set()
        """Models that have `error`; all while it is empty."""
        self.unwound: list[str] = []
        self.pause_s = 0.0
        settings = DaemonSettings(**daemon)
        self.host = EngineHost(
            self.open, ONE, settings, clock=lambda: self.now, free_memory=self.freed.wait
        )

    def open(self, wanted: Wanted, report: Report) -> Opened:
        name = wanted.model.model
        self.opened.append(name)
        try:
            report("reading", 1, 4)
            while not self.gate.wait(0.005):
                report("reading", 2, 4)
            if self.error is not None and name in (self.broken or {name}):
                raise self.error
            report("measuring", 0, 1)
        finally:
            self.unwound.append(name)
        engine = self.engine(name)
        self.engines.append(engine)
        return Opened(engine=engine, notice=f"notice of {name}")

    def engine(self, name: str) -> PacedEngine:
        return PacedEngine(name, self.pause_s)

    async def answer(self, text: str = "a few words", id_: str = "r") -> list[Event]:
        async with self.host.generate(ask(text, id_)) as events:
            return [event async for event in events]

    async def until(self, state: str) -> EngineStatus:
        async with asyncio.timeout(5):
            while True:
                status = await self.host.status()
                if status.state == state:
                    return status
                await asyncio.sleep(0.002)


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while True:
            if true():
                return
            await asyncio.sleep(0.002)


def play(
    test: Callable[[World], Awaitable[None]], kind: type[World] = World, **daemon: float
) -> World:
    async def main() -> World:
        world = kind(**daemon)
        async with asyncio.timeout(20):
            try:
                await test(world)
            finally:
                world.gate.set()
                await world.host.close()
        return world

    return asyncio.run(main())


def test_an_answer_waits_for_the_load_and_is_the_engine_s() -> None:
    async def test(world: World) -> None:
        world.gate.clear()
        waiting = asyncio.create_task(world.answer("to be or not"))
        status = await world.until("loading")
        assert status.model == "one"
        while status.load is None or status.load.stage != "reading":
            status = await world.host.status()
            await asyncio.sleep(0.002)
        assert (status.load.total, status.load.done in (1, 2)) == (4, True)
        assert not waiting.done()
        world.gate.set()
        last = (await waiting)[-1]
        assert isinstance(last, Finished)
        assert last.text == "to be or not"
        status = await world.host.status()
        assert (status.state, status.notice, status.load) == ("ready", "notice of one", None)

    assert play(test).opened == ["one"]


def test_eight_who_come_at_once_cause_one_load() -> None:
    async def test(world: World) -> None:
        answers = await asyncio.gather(*(world.answer(f"word {i}", str(i)) for i in range(8)))
        texts = [events[-1].text for events in answers]  # type: ignore[union-attr]
        assert texts == [f"word {i}" for i in range(8)]

    assert play(test).opened == ["one"]


def test_a_load_that_fails_fails_the_answer_with_its_sentence() -> None:
    async def test(world: World) -> None:
        world.error = ModelError("broken", "the file is damaged", "Fetch it again.")
        failed = (await world.answer())[-1]
        assert failed == world.error.as_event()
        status = await world.host.status()
        assert (status.state, status.failure) == ("failed", failed)
        assert await world.answer() == [failed]
        assert world.opened == ["one"], "an editor asks at every key: it is not tried at once"
        world.now += RETRY_S
        world.error = None
        assert isinstance((await world.answer())[-1], Finished)
        assert (await world.host.status()).failure is None

    play(test)


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [(MemoryError(), "out_of_memory", 4), (ZeroDivisionError("x"), "internal", 1)],
)
def test_whatever_a_load_raises_ends_in_a_sentence(
    error: BaseException, code: str, exit_code: int
) -> None:
    async def test(world: World) -> None:
        world.error = error
        [failed] = await world.answer()
        assert isinstance(failed, Failed)
        assert (failed.code, failed.exit_code) == (code, exit_code)
        assert failed.hint

    play(test)


def test_a_load_can_be_stopped_and_tried_again() -> None:
    async def test(world: World) -> None:
        world.gate.clear()
        waiting = asyncio.create_task(world.answer())
        await world.until("loading")
        await world.host.stop_loading()
        [failed] = await waiting
        assert isinstance(failed, Failed)
        assert failed.code == "load_stopped"
        assert world.unwound == ["one"], "the work unwinds as after Ctrl-C"
        assert (await world.host.status()).state == "asleep"
        world.gate.set()
        assert isinstance((await world.answer())[-1], Finished)

    assert play(test).opened == ["one", "one"]


def test_a_client_that_leaves_while_it_loads_does_not_stop_the_load() -> None:
    async def test(world: World) -> None:
        world.gate.clear()
        waiting = asyncio.create_task(world.answer())
        await world.until("loading")
        waiting.cancel()
        world.gate.set()
        await world.until("ready")

    assert play(test).opened == ["one"]


def test_the_model_is_put_away_after_its_time_and_comes_back_when_used() -> None:
    async def test(world: World) -> None:
        await world.answer()
        with world.host.present("a window"):
            world.now += 4.9 * MINUTE
            await world.host.tick()
            assert (await world.host.status()).state == "ready"
            world.now += 0.2 * MINUTE
            assert not await world.host.tick(), "a connected client keeps the process"
            status = await world.host.status()
            assert (status.state, status.model, status.context_limit) == ("asleep", "one", 16384)
            assert world.engines[0].closed
            assert isinstance((await world.answer())[-1], Finished)

    assert play(test, unload_minutes=5.0).opened == ["one", "one"]


def test_who_comes_while_the_model_is_put_away_gets_it_back() -> None:
    async def test(world: World) -> None:
        await world.answer()
        world.freed.clear()
        world.now += 6 * MINUTE
        ticking = asyncio.create_task(world.host.tick())
        await world.until("asleep")
        waiting = asyncio.create_task(world.answer())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        world.freed.set()
        assert isinstance((await waiting)[-1], Finished)
        await ticking

    assert play(test, unload_minutes=5.0).opened == ["one", "one"]


def test_looking_is_not_use_and_an_answer_under_way_is() -> None:
    async def test(world: World) -> None:
        world.pause_s = 0.01
        await world.answer()
        world.now += 4 * MINUTE
        await world.host.status()
        async for _ in world.host.watch():
            break
        running = asyncio.create_task(world.answer("word " * 20))
        await asyncio.sleep(0.05)
        world.now += 2 * MINUTE
        await world.host.tick()
        assert not world.engines[0].closed, "never from under an answer"
        await running
        world.now += 5.1 * MINUTE
        await world.host.tick()
        assert world.engines[0].closed

    play(test, unload_minutes=5.0)


@pytest.mark.parametrize(("idle", "after", "ends"), [(15.0, 14.9, False), (15.0, 15.1, True)])
def test_it_ends_when_the_last_client_has_been_gone_for_long(
    idle: float, after: float, ends: bool
) -> None:
    async def test(world: World) -> None:
        await world.answer()
        with world.host.present("a"), world.host.present("a"), world.host.present("b"):
            assert (await world.host.status()).clients == 2, "connections of one client are one"
            world.now += 100 * MINUTE
            assert not await world.host.tick()
        world.now += after * MINUTE
        assert await world.host.tick() is ends

    play(test, idle_minutes=idle)


def test_no_idle_time_is_for_ever() -> None:
    async def test(world: World) -> None:
        world.now += 1e9
        assert not await world.host.tick()

    play(test, idle_minutes=0.0)


def test_a_load_under_way_keeps_the_process() -> None:
    async def test(world: World) -> None:
        world.gate.clear()
        world.host.begin()
        world.now += 100 * MINUTE
        assert not await world.host.tick()

    play(test, idle_minutes=1.0)


def test_another_model_waits_for_the_answers_of_the_first() -> None:
    async def test(world: World) -> None:
        world.pause_s = 0.005
        first = asyncio.create_task(world.answer("word " * 20, "first"))
        await eventually(lambda: bool(world.engines and world.engines[0].rounds["first"]))
        world.host.begin(OTHER)
        second = asyncio.create_task(world.answer("later", "second"))
        await asyncio.sleep(0.01)
        status = await world.host.status()
        assert status.state == "ready"
        assert "changing to other" in status.notice
        last = (await first)[-1]
        assert isinstance(last, Finished), "the first answer comes to its own end"
        assert isinstance((await second)[-1], Finished)
        assert [request.id for request in world.engines[1].requests] == ["second"]
        assert world.engines[0].closed
        assert (await world.host.status()).model == "other"

    assert play(test).opened == ["one", "other"]


def test_a_change_that_fails_brings_the_model_before_back_and_says_so() -> None:
    async def test(world: World) -> None:
        world.error, world.broken = (
            MemoryLimitError("memory", "it needs 9 GiB", "Close."),
            {"other"},
        )
        await world.answer()
        world.host.begin(OTHER)
        await eventually(lambda: world.opened == ["one", "other", "one"])
        status = await world.until("ready")
        assert (status.model, status.failure) == ("one", world.error.as_event())
        assert status.notice == (
            "notice of one other was not loaded: it needs 9 GiB. Close. one is back."
        )
        assert isinstance((await world.answer("more", "second"))[-1], Finished)
        status = await world.host.status()
        assert (status.failure, status.notice) == (None, "notice of one"), "it was told once"
        assert world.host.wanted == ONE

    assert play(test).opened == ["one", "other", "one"]


def test_where_neither_model_can_be_loaded_both_are_told() -> None:
    async def test(world: World) -> None:
        await world.answer()
        world.error = ModelError("broken", "it is damaged", "Fetch it again.")
        world.host.begin(OTHER)
        [failed] = await world.answer("more", "second")
        assert isinstance(failed, Failed)
        assert failed.message == (
            "other was not loaded: it is damaged, and one did not come back: it is damaged"
        )
        assert (await world.host.status()).state == "failed"

    play(test)


def test_a_wish_that_changes_twice_loads_the_last_and_leaves_nothing() -> None:
    async def test(world: World) -> None:
        world.gate.clear()
        world.host.begin()
        await world.until("loading")
        world.host.begin(OTHER)
        world.host.begin(ONE)
        world.host.begin(OTHER)
        world.gate.set()
        status = await world.until("ready")
        assert status.model == "other"
        assert sum(not engine.closed for engine in world.engines) == 1

    play(test)


def test_the_same_wish_again_changes_nothing() -> None:
    async def test(world: World) -> None:
        await world.answer()
        world.host.begin(ONE)
        assert (await world.host.status()).state == "ready"

    assert play(test).opened == ["one"]


def test_a_watcher_hears_every_state_and_the_end() -> None:
    async def test(world: World) -> None:
        heard: list[str] = []
        note = heard.append

        async def listen() -> None:
            async for status in world.host.watch():
                note(status.state)

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.01)
        await world.answer()
        await world.host.close()
        await listening
        distinct = [s for i, s in enumerate(heard) if i == 0 or s != heard[i - 1]]
        assert distinct == ["asleep", "loading", "ready", "asleep"]

    play(test)


def test_a_quiet_engine_tells_a_watcher_nothing() -> None:
    async def test(world: World) -> None:
        await world.answer()
        heard: list[EngineStatus] = []
        note = heard.append

        async def listen() -> None:
            async for status in world.host.watch():
                note(status)

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.05)
        listening.cancel()
        assert len(heard) == 1

    play(test)


class Mortal(PacedEngine):
    """Ends when it is told to, as an engine does whose thread can't go on."""

    dead = False

    async def status(self) -> EngineStatus:
        status = await super().status()
        return replace(status, state="asleep") if self.dead else status

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        if self.dead:
            raise EngineError("closed", "the engine was closed", "Start it again.")
        async with super().generate(request) as events:
            yield events


class MortalWorld(World):
    """A world whose engines can end by themselves."""

    def engine(self, name: str) -> PacedEngine:
        return Mortal(name)


def test_an_engine_that_ended_by_itself_is_told_of_and_loaded_again() -> None:
    async def test(world: World) -> None:
        await world.answer()
        statuses = world.host.watch()
        assert (await anext(statuses)).state == "ready"
        world.engines[0].dead = True  # type: ignore[attr-defined]
        with world.host.present("editor"):  # whatever tells the host to look
            status = await anext(statuses)
        assert (status.state, status.weight_bytes) == ("failed", 0)
        assert status.failure == BROKEN
        assert world.engines[0].closed
        assert world.opened == ["one"], "nobody has asked for anything"
        assert isinstance((await world.answer())[-1], Finished)
        assert (await world.host.status()).failure is None
        await statuses.aclose()  # type: ignore[attr-defined]

    assert play(test, MortalWorld).opened == ["one", "one"]


def test_who_asks_an_engine_that_has_ended_gets_an_answer() -> None:
    async def test(world: World) -> None:
        await world.answer()
        world.engines[0].dead = True  # type: ignore[attr-defined]
        assert isinstance((await world.answer())[-1], Finished)
        world.engines[1].dead = True  # type: ignore[attr-defined]
        await world.host.measure(ask().prompt)

    assert play(test, MortalWorld).opened == ["one", "one", "one"]


def test_a_closed_host_refuses_with_a_sentence() -> None:
    async def test(world: World) -> None:
        await world.answer()
        await world.host.close()
        [failed] = await world.answer()
        assert isinstance(failed, Failed)
        assert failed.code == "closed"
        with pytest.raises(EngineError, match="stopped"):
            await world.host.measure(ChatPrompt(turns=()))

    assert play(test).engines[0].closed


def test_closing_in_the_middle_of_a_load_ends_it() -> None:
    async def test(world: World) -> None:
        world.gate.clear()
        waiting = asyncio.create_task(world.answer())
        await world.until("loading")
        await world.host.close()
        [failed] = await waiting
        assert isinstance(failed, Failed)
        await eventually(lambda: bool(world.unwound))

    world = play(test)
    assert all(engine.closed for engine in world.engines)


def test_measuring_loads_the_model() -> None:
    async def test(world: World) -> None:
        cost = await world.host.measure(ChatPrompt(turns=(Turn(role="user", content="12345678"),)))
        assert cost.total_tokens == 2

    assert play(test).opened == ["one"]


def test_a_path_is_named_by_its_last_part() -> None:
    async def main() -> str:
        wanted = Wanted(model=ModelSettings(model=str(Path("/a/b/model"))))
        host = EngineHost(World().open, wanted, DaemonSettings())
        return (await host.status()).model

    assert asyncio.run(main()) == "model"
