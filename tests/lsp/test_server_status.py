"""What is told of the engine: words, figures, and how often it is tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from engine.protocol import (
    EngineError,
    EngineStatus,
    Failed,
    FillPrompt,
    GenerateRequest,
    LoadProgress,
)
from lsp.client import Client
from lsp.hello import Hello
from lsp.reporter import Reporter
from lsp.status import Status, status_of
from lsp.tally import TalliedEngine
from tests.fakes import STATUS, ScriptedEngine, answer_script, round_of

REQUEST = GenerateRequest(id="r1", prompt=FillPrompt(prefix="a", suffix="b"), priority="fill")


@pytest.mark.parametrize(
    ("engine", "state", "text"),
    [
        (
            EngineStatus(state="loading", model="m"),
            "loading",
            "m is loading: starting.",
        ),
        (
            EngineStatus(
                state="loading", model="m", load=LoadProgress(stage="fetching", done=30, total=90)
            ),
            "loading",
            "m is loading: fetching: 33 %.",
        ),
        (EngineStatus(model="m", device="cpu"), "ready", "m is ready on cpu."),
        (
            EngineStatus(state="asleep", model="m"),
            "asleep",
            "m is not in memory; the next completion loads it.",
        ),
        (
            EngineStatus(
                state="failed",
                model="m",
                failure=Failed(code="x", message="the file is damaged", hint="Fetch it again."),
            ),
            "failed",
            "The file is damaged. Fetch it again.",
        ),
    ],
)
def test_each_state_has_a_word_and_a_sentence(engine: EngineStatus, state: str, text: str) -> None:
    told = status_of(engine, TalliedEngine(ScriptedEngine([])).tally)
    assert (told.state, told.text) == (state, text)
    assert (told.alpha, told.times_plain) == (None, None)


def test_figures_are_those_of_the_rounds_that_passed_through() -> None:
    """10 rounds of 20 ms with 3 of 4 tested accepted: 4 tokens each, so 200 tokens a second."""

    async def work() -> None:
        rounds = [round_of(drafted=6, accepted=3, ms=20.0)] * 10
        engine = TalliedEngine(ScriptedEngine(answer_script("w " * 39 + "w", rounds)))
        async with engine.generate(REQUEST) as events:
            assert engine.tally.awaited == {"r1"}
            assert [event async for event in events]
        assert engine.tally.awaited == set()
        told = status_of(STATUS, engine.tally)
        assert told.times_plain is None
        told = status_of(EngineStatus(model="m", plain_tokens_per_s=100.0), engine.tally)
        assert (told.alpha, told.times_plain) == (0.75, 2.0)

    asyncio.run(work())


def test_leaving_an_answer_reaches_the_engine() -> None:
    async def work() -> None:
        scripted = ScriptedEngine(answer_script("a b c"), hold_after=2)
        engine = TalliedEngine(scripted)
        async with engine.generate(REQUEST) as events:
            await anext(events)
        assert scripted.cancelled == ["r1"]
        assert engine.tally.awaited == set()

    asyncio.run(work())


def test_a_completion_that_waits_for_another_request_is_told_as_paused() -> None:
    async def work() -> None:
        engine = TalliedEngine(ScriptedEngine(answer_script("a b c"), hold_after=1))
        busy = EngineStatus(model="m", running=("chat",), queued=("r1",))
        assert status_of(busy, engine.tally).state == "ready"
        async with engine.generate(REQUEST):
            told = status_of(busy, engine.tally)
            assert (told.state, told.paused) == ("paused", True)
            assert told.text == "m is busy with another request."

    asyncio.run(work())


def test_what_is_fetched_ahead_and_held_up_is_no_completion_that_waits() -> None:
    async def work() -> None:
        engine = TalliedEngine(ScriptedEngine(answer_script("a b c"), hold_after=1))
        busy = EngineStatus(model="m", running=("chat",), queued=("r1",))
        async with engine.generate(replace(REQUEST, priority="idle")):
            told = status_of(busy, engine.tally)
            assert (told.state, told.paused) == ("ready", False)

    asyncio.run(work())


class Line:
    """What a client hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.ready = asyncio.Event()

    def notify(self, method: str, params: Any = None) -> None:
        self.heard.append((method, params))
        if params.get("state") == "ready":
            self.ready.set()

    async def send_request_async(self, method: str, params: Any = None) -> Any:
        raise RuntimeError("this client refuses everything")


class Away(ScriptedEngine):
    """An engine that can't be reached the first times."""

    tries = 0

    def watch(self) -> Any:
        self.tries += 1
        if self.tries <= 3:
            raise EngineError("no_engine", "the engine can't be started", "Look at its log.")
        return super().watch()


def test_an_engine_that_is_away_is_told_once_and_tried_again() -> None:
    async def work() -> None:
        line = Line()
        engine = Away(answer_script("a"))
        client = Client(line, Hello(progress=True))
        reporter = Reporter(client, TalliedEngine(engine), lambda: True, first_wait_s=0.01)
        running = asyncio.ensure_future(reporter.run())
        await asyncio.wait_for(line.ready.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        sentence = "The engine can't be started. Look at its log."
        assert engine.tries == 4
        assert [params for method, params in line.heard if method == "window/logMessage"] == [
            {"type": 2, "message": sentence}
        ]
        told = [params for method, params in line.heard if method == "sspecAssist/status"]
        assert [(one["state"], one["text"]) for one in told] == [
            ("away", sentence),
            ("ready", "scripted is ready on cpu."),
        ]

    asyncio.run(work())


def test_a_client_that_refuses_progress_is_shown_none() -> None:
    async def work() -> None:
        line = Line()
        client = Client(line, Hello(progress=True, pulls=True, registers=True))
        await client.show_progress("title", "text")
        client.end_progress("over")
        assert await client.configuration() is None
        await client.ask_for_changes()
        assert line.heard == []

    asyncio.run(work())


def test_a_client_that_never_answers_is_asked_for_progress_once() -> None:
    class Mute(Line):
        asked = 0

        async def send_request_async(self, method: str, params: Any = None) -> Any:
            self.asked += 1
            raise TimeoutError

    async def work() -> None:
        line = Mute()
        client = Client(line, Hello(progress=True))
        for done in range(5):
            await client.show_progress("title", f"reading: {done} %")
        client.end_progress("over")
        await client.show_progress("title", "reading")
        assert line.asked == 1
        assert line.heard == []

    asyncio.run(work())


def test_figures_alone_are_told_now_and_then_and_a_state_at_once() -> None:
    now = 100.0
    line = Line()
    client = Client(line, Hello(), clock=lambda: now)
    ready = Status(state="ready", text="m is ready.", alpha=0.5)
    client.show(ready)
    client.show(replace(ready, alpha=0.6))
    client.show(replace(ready, state="paused", text="m is busy."))
    client.show(ready)
    now = 103.5
    client.show(replace(ready, alpha=0.7))
    client.show(replace(ready, alpha=0.7))
    told = [(params["state"], params["alpha"]) for _, params in line.heard]
    assert told == [("ready", 0.5), ("paused", 0.5), ("ready", 0.5), ("ready", 0.7)]
