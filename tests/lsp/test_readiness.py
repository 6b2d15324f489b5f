"""Whether the engine can answer at once: trusted, asked again later, woken where it sleeps."""

from __future__ import annotations

import asyncio

from engine.protocol import (
    ChatPrompt,
    EngineError,
    EngineStatus,
    FillPrompt,
    Held,
    PromptCost,
)
from lsp.readiness import PATIENCE_S, TRUST_S, WAKE_AGAIN_S, Readiness
from tests.fakes import ScriptedEngine
from tests.lsp.completing import Clock, on_a_loop


class Moody(ScriptedEngine):
    """Counts what it is asked, and is as it is told to be."""

    def __init__(self, state: str = "ready", **more: object) -> None:
        super().__init__([])
        self.now = EngineStatus(model="m", state=state, **more)  # type: ignore[arg-type]
        self.error: EngineError | None = None
        self.hangs = False
        self.asked = 0
        self.woken = 0

    async def status(self) -> EngineStatus:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.now

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        self.woken += 1
        if self.error is not None:
            raise self.error
        return await super().measure(prompt)


@on_a_loop
async def test_what_worked_a_moment_ago_is_trusted() -> None:
    engine, clock = Moody(), Clock()
    readiness = Readiness(engine, clock)
    assert await readiness.reason_not_to_ask() == ""
    assert await readiness.reason_not_to_ask() == ""
    assert engine.asked == 1
    clock.now += TRUST_S + 1
    await readiness.reason_not_to_ask()
    assert engine.asked == 2
    readiness.failed()
    await readiness.reason_not_to_ask()
    assert engine.asked == 3


@on_a_loop
async def test_one_that_sleeps_is_woken_once_in_a_while() -> None:
    engine, clock = Moody("asleep"), Clock()
    readiness = Readiness(engine, clock)
    for _ in range(3):
        assert await readiness.reason_not_to_ask() == "the engine is asleep"
        await asyncio.sleep(0)
    assert engine.woken == 1
    clock.now += WAKE_AGAIN_S + 1
    await readiness.reason_not_to_ask()
    await asyncio.sleep(0)
    assert engine.woken == 2


@on_a_loop
async def test_one_that_loads_or_has_failed_is_left_to_itself() -> None:
    for state in ("loading", "failed"):
        engine = Moody(state)
        assert await Readiness(engine, Clock()).reason_not_to_ask() == f"the engine is {state}"
        assert engine.woken == 0


@on_a_loop
async def test_one_that_is_away_is_no_error_and_one_that_hangs_is_not_waited_for() -> None:
    engine = Moody()
    engine.error = EngineError("engine_start", "it does not start", "")
    readiness = Readiness(engine, Clock())
    assert await readiness.reason_not_to_ask() == "the engine is away"
    await asyncio.sleep(0)
    assert engine.woken == 1
    engine.hangs = True
    async with asyncio.timeout(4 * PATIENCE_S):
        assert await readiness.reason_not_to_ask() == "the engine is away"
    assert not await readiness.is_idle()
    await readiness.close()


@on_a_loop
async def test_idle_is_one_that_has_nothing_to_do() -> None:
    assert await Readiness(Moody(), Clock()).is_idle()
    for busy in ({"running": ("a",)}, {"paused": ("a",)}, {"queued": ("a",)}):
        assert not await Readiness(Moody(**busy), Clock()).is_idle()  # type: ignore[arg-type]
    assert not await Readiness(Moody("loading"), Clock()).is_idle()


@on_a_loop
async def test_what_a_conversation_holds_is_told() -> None:
    engine = Moody(held=(Held(conversation="a", tokens=7),), plain_tokens_per_s=50.0)
    readiness = Readiness(engine, Clock())
    assert await readiness.held_tokens("a") == 7
    assert await readiness.held_tokens("b") is None
    assert readiness.plain_tokens_per_s == 50
