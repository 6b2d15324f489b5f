"""One answer's stream: its pace to the screen and to the history, and how it ends."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.message import Message

from engine.protocol import (
    ChatPrompt,
    EngineError,
    Event,
    GenerateRequest,
    SamplingParams,
    Steering,
    TextDelta,
    TokenKind,
    Turn,
)
from tests.fakes import ScriptedEngine, answer_script
from tests.tui.chat_harness import on_loop
from tui.answer_record import AnswerRecord
from tui.conversation import Asked, Talk
from tui.history import History
from tui.messages import AnswerOver, AnswerProgress, EngineChanged, EngineGone
from tui.meter_state import MeterState
from tui.provenance import Provenance
from tui.stream import AnswerStream, Throttle, joined, watch_engine


class Paced(ScriptedEngine):
    """Plays its script with a pause before each event."""

    def __init__(self, script: list[Event], pause_s: float) -> None:
        super().__init__(script)
        self._pause_s = pause_s

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        async with super().generate(request) as events:

            async def slowly() -> AsyncIterator[Event]:
                async for event in events:
                    await asyncio.sleep(self._pause_s)
                    yield event

            yield slowly()


class Broken(ScriptedEngine):
    """Fails in a way that nobody foresaw."""

    def generate(self, request: GenerateRequest):  # type: ignore[no-untyped-def, override]
        raise ZeroDivisionError("oh")


def talk_in(folder: Path) -> Talk:
    return Talk(History.open(folder / "history.sqlite"), SamplingParams(), Steering())


def stream_of(
    engine: ScriptedEngine, talk: Talk, asked: Asked, posted: list[Message]
) -> AnswerStream:
    record = AnswerRecord(talk.history, asked)
    return AnswerStream(engine, asked.request, record, posted.append, MeterState())


async def over(posted: list[Message]) -> AnswerOver:
    for _ in range(1000):
        await asyncio.sleep(0.005)
        if posted and isinstance(posted[-1], AnswerOver):
            return posted[-1]
    raise AssertionError("the answer does not end")


@on_loop
async def test_many_tokens_make_few_updates_and_the_text_is_the_engine_s(tmp_path: Path) -> None:
    text = " ".join(f"w{n}" for n in range(60))
    talk, posted = talk_in(tmp_path), []
    asked = talk.ask("count")
    began = asyncio.get_running_loop().time()
    stream_of(Paced(answer_script(text), 0.005), talk, asked, posted).start()
    last = await over(posted)
    took = asyncio.get_running_loop().time() - began
    shown = [one for one in posted if isinstance(one, AnswerProgress)]
    assert len(shown) <= took * 10 + 2
    assert "".join(delta.text for one in shown for delta in one.deltas) == text
    assert last.outcome.text == text
    kept = talk.history.message(asked.answer)
    assert (kept.content, kept.state) == (text, "whole")
    assert Provenance.decode(kept.kinds).counts == {"plain": 60}
    assert kept.usage is not None
    talk.history.close()


@on_loop
async def test_what_came_is_in_the_history_within_a_second_even_when_nothing_more_comes(
    tmp_path: Path,
) -> None:
    talk, posted = talk_in(tmp_path), []
    asked = talk.ask("count")
    engine = ScriptedEngine(answer_script("one two three"), hold_after=4)
    stream = stream_of(engine, talk, asked, posted)
    stream.start()
    await engine.holding.wait()
    await asyncio.sleep(0.95)
    other = History.open(tmp_path / "history.sqlite")
    assert other.message(asked.answer).content == "one two "
    other.close()
    await stream.stopped()
    assert isinstance(posted[-1], AnswerOver)
    talk.history.close()


@on_loop
async def test_a_stream_that_is_stopped_twice_ends_once(tmp_path: Path) -> None:
    talk, posted = talk_in(tmp_path), []
    engine = ScriptedEngine(answer_script("one two"), hold_after=2)
    stream = stream_of(engine, talk, talk.ask("count"), posted)
    stream.start()
    await engine.holding.wait()
    stream.cancel()
    await stream.stopped()
    stream.cancel()
    await stream.stopped()
    assert sum(isinstance(one, AnswerOver) for one in posted) == 1
    talk.history.close()


@on_loop
async def test_an_impatient_second_stop_loses_neither_the_end_nor_the_text(tmp_path: Path) -> None:
    talk, posted = talk_in(tmp_path), []
    asked = talk.ask("count")
    engine = ScriptedEngine(answer_script("one two"), hold_after=2)
    stream = stream_of(engine, talk, asked, posted)
    stream.start()
    await engine.holding.wait()
    other = sqlite3.connect(tmp_path / "history.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # another window writes, so this one has to wait
    stream.cancel()
    await asyncio.sleep(0.1)
    stream.cancel()
    await asyncio.sleep(0.1)
    other.execute("COMMIT")
    other.close()
    await over(posted)
    kept = talk.history.message(asked.answer)
    assert (kept.content, kept.state) == ("one ", "partial")
    talk.history.close()


@on_loop
async def test_a_fault_nobody_foresaw_still_ends_the_answer(tmp_path: Path) -> None:
    talk, posted = talk_in(tmp_path), []
    stream_of(Broken([]), talk, talk.ask("count"), posted).start()
    last = await over(posted)
    assert last.outcome.failed is not None
    assert last.outcome.failed.message == "ZeroDivisionError('oh')"
    talk.history.close()


@on_loop
async def test_an_answer_that_cannot_be_kept_says_so(tmp_path: Path) -> None:
    talk, posted = talk_in(tmp_path), []
    asked = talk.ask("count")
    assert talk.conversation is not None
    other = History.open(tmp_path / "history.sqlite")
    talk.history.finish(asked.answer, "", "partial", None, b"")
    other.delete(talk.conversation)
    other.close()
    stream_of(ScriptedEngine(answer_script("one")), talk, asked, posted).start()
    last = await over(posted)
    assert last.outcome.text == "one"
    assert last.outcome.unsaved
    talk.history.close()


@on_loop
async def test_an_engine_that_cannot_be_watched_is_told() -> None:
    class Unwatchable(ScriptedEngine):
        def watch(self):  # type: ignore[no-untyped-def, override]
            raise EngineError("engine_start", "it did not start", "See the log.")

    posted: list[Message] = []
    await watch_engine(Unwatchable([]), posted.append)
    assert isinstance(posted[0], EngineGone)
    assert posted[0].failure.code == "engine_start"
    watching = asyncio.create_task(watch_engine(ScriptedEngine([]), posted.append))
    await asyncio.sleep(0.05)
    watching.cancel()
    assert isinstance(posted[1], EngineChanged)


@on_loop
async def test_a_watch_that_breaks_in_a_way_nobody_foresaw_is_told_as_well() -> None:
    class Odd(ScriptedEngine):
        def watch(self):  # type: ignore[no-untyped-def, override]
            raise ZeroDivisionError("oh")

    posted: list[Message] = []
    await watch_engine(Odd([]), posted.append)
    assert isinstance(posted[0], EngineGone)
    assert "ZeroDivisionError('oh')" in posted[0].failure.message


@on_loop
async def test_a_throttle_never_calls_twice_within_its_time_and_loses_no_call() -> None:
    loop, times = asyncio.get_running_loop(), []
    throttle = Throttle(0.05, lambda: times.append(loop.time()))
    for _ in range(30):
        throttle.ask()
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1)
    assert len(times) >= 3
    assert all(later - earlier >= 0.049 for earlier, later in itertools.pairwise(times))


KINDS: list[TokenKind] = ["accepted", "recovered", "bonus", "plain"]


@st.composite
def deltas(draw: st.DrawFn) -> list[TextDelta]:
    made = []
    for _ in range(draw(st.integers(0, 6))):
        spans = draw(st.lists(st.integers(0, 3), max_size=4))
        beyond = draw(st.integers(0, 2))
        kinds = [draw(st.sampled_from(KINDS)) for _ in spans]
        text = draw(st.text("ab", min_size=sum(spans) + beyond, max_size=sum(spans) + beyond))
        made.append(TextDelta(text=text, kinds=tuple(kinds), spans=tuple(spans)))
    return made


@given(deltas())
def test_joined_deltas_tell_the_same_of_every_character(given_deltas: list[TextDelta]) -> None:
    apart, together = Provenance(), Provenance()
    for delta in given_deltas:
        apart.add(delta)
    fewer = joined(given_deltas)
    for delta in fewer:
        together.add(delta)
    assert "".join(d.text for d in fewer) == "".join(d.text for d in given_deltas)
    assert together.encode() == apart.encode()


@pytest.mark.parametrize(
    ("text", "fence"),
    [("x", "```"), ("```", "````"), ("a ````` b", "``````")],
)
def test_a_file_is_quoted_as_the_engine_quotes_it(text: str, fence: str) -> None:
    from engine.chat_template import turns_with_snippets
    from engine.protocol import Snippet
    from tui.conversation import _quoted

    snippet = Snippet(path="a.py", text=text)
    prompt = ChatPrompt(turns=(Turn(role="user", content=""),), snippets=(snippet,))
    assert turns_with_snippets(prompt)[0].content == _quoted(snippet)
    assert f"\n{fence}\n" in _quoted(snippet)
