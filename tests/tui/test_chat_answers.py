"""Questions and answers: asked, stopped, asked again, gone on with, branched, checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from textual.events import Paste

from engine.protocol import (
    ChatPrompt,
    Event,
    Failed,
    GenerateRequest,
    RequestError,
    RouteChoice,
    SamplingParams,
    Steering,
    Turn,
)
from tests.fakes import STATUS, ScriptedEngine, answer_script, round_of
from tests.tui.chat_harness import (
    ask,
    chat,
    on_loop,
    quiet,
    running,
    said,
    screen_of,
    send,
    send_to_wait,
    until,
)
from tui import fitting, slash
from tui.conversation import MOST_ASKED, Asked, Talk
from tui.history import History, Message
from tui.ledger import LedgerScreen
from tui.meter_state import MeterState, begin, observe
from tui.settings import LiveSettings

ROUNDS = [round_of(drafted=4, accepted=3), round_of(drafted=4, accepted=1)]
LOST = Failed(code="engine_lost", message="the engine's process was lost", hint="Ask again.")


def turns_of(request: GenerateRequest) -> list[tuple[str, str]]:
    assert isinstance(request.prompt, ChatPrompt)
    return [(turn.role, turn.content) for turn in request.prompt.turns]


@on_loop
async def test_a_question_is_answered_kept_and_goes_along_with_the_next(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three", ROUNDS))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "first [red]x[/red]")
        await ask(pilot, "second")
        talk = screen_of(pilot).asking.talk
        kept = [(m.role, m.content, m.state) for m in talk.thread()]
        assert said(pilot) == [(role, content) for role, content, _ in kept]
    assert kept == [
        ("user", "first [red]x[/red]", "whole"),
        ("assistant", "one two three", "whole"),
        ("user", "second", "whole"),
        ("assistant", "one two three", "whole"),
    ]
    assert turns_of(engine.requests[1]) == [(role, content) for role, content, _ in kept[:3]]


@on_loop
async def test_what_the_meter_shows_is_the_fold_of_the_stream(tmp_path: Path) -> None:
    events = answer_script("one two three four five six", ROUNDS)
    async with running(chat(ScriptedEngine(events), tmp_path)) as pilot:
        await ask(pilot, "count")
        shown = screen_of(pilot).asking.meter
    folded = begin(MeterState())
    for event in events:
        folded = observe(folded, event)
    assert replace(shown, status=None) == folded


@on_loop
async def test_escape_stops_and_what_came_is_kept(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three four"), hold_after=3)
    async with running(chat(engine, tmp_path)) as pilot:
        await send(pilot, "count")
        await engine.holding.wait()
        await pilot.press("escape")
        await until(pilot, lambda: not screen_of(pilot).asking.running)
        answer = screen_of(pilot).asking.talk.thread()[-1]
        notices = [text for kind, text in said(pilot) if kind == "information"]
    assert (answer.content, answer.state) == ("one ", "partial")
    assert engine.cancelled == [engine.requests[0].id]
    assert notices == ["stopped · /continue goes on, /regenerate answers again"]


@on_loop
async def test_a_stopped_answer_is_gone_on_with_in_the_same_message(tmp_path: Path) -> None:
    def script(request: GenerateRequest) -> Sequence[Event]:
        begun = turns_of(request)[-1][0] == "assistant"
        return answer_script("three four" if begun else "one two nothing")

    engine = ScriptedEngine(script, hold_after=5)
    async with running(chat(engine, tmp_path)) as pilot:
        await send(pilot, "count")
        await engine.holding.wait()
        await pilot.press("escape")
        await until(pilot, lambda: not screen_of(pilot).asking.running)
        engine._hold_after = None
        await ask(pilot, "/continue")
        thread = screen_of(pilot).asking.talk.thread()
        shown = [text for kind, text in said(pilot) if kind == "assistant"]
    assert [(m.content, m.state) for m in thread] == [
        ("count", "whole"),
        ("one two three four", "whole"),
    ]
    assert turns_of(engine.requests[1]) == [("user", "count"), ("assistant", "one two ")]
    assert shown == ["one two three four"]


@on_loop
async def test_an_answer_made_again_stands_beside_the_first(tmp_path: Path) -> None:
    texts = iter(["first", "second"])
    engine = ScriptedEngine(lambda _: answer_script(next(texts)))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "say")
        await ask(pilot, "/regenerate")
        assert said(pilot) == [("user", "say"), ("assistant", "second")]
        await pilot.press("f9")
        await until(pilot, lambda: ("assistant", "first") in said(pilot))
        assert said(pilot) == [("user", "say"), ("assistant", "first")]
    assert engine.requests[0].prompt == engine.requests[1].prompt


@on_loop
async def test_a_second_wish_before_the_first_has_begun_is_refused(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "say")
        screen = screen_of(pilot)
        screen.action_regenerate()
        screen.action_regenerate()
        screen.action_go_on()
        await quiet(pilot)
        shown = said(pilot)
    busy = ("error", "an answer is under way. Esc stops it.")
    assert [one for one in shown if one != busy] == [("user", "say"), ("assistant", "yes")]
    assert len(engine.requests) == 2


@on_loop
async def test_a_question_sent_during_a_wish_that_fails_is_asked(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "first")
        screen, found = screen_of(pilot), threading.Event()
        known = screen.asking.talk.go_on

        def slowly(answer: Message) -> Asked:
            assert found.wait(timeout=10)
            return known(answer)

        screen.asking.talk.go_on = slowly  # type: ignore[method-assign]
        wish = asyncio.create_task(screen.asking.go_on(await screen.last_answer()))
        await asyncio.sleep(0)
        await screen.asking.send(fitting.Question(text="second"))
        assert screen.asking.waiting
        found.set()
        with pytest.raises(RequestError, match="ended by itself"):
            await wish
        await until(pilot, lambda: len(engine.requests) == 2)
        await quiet(pilot)
        assert [text for kind, text in said(pilot) if kind == "user"] == ["first", "second"]


@on_loop
async def test_what_waits_behind_an_answer_outlives_the_window(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three four"), hold_after=3)
    async with running(chat(engine, tmp_path)) as pilot:
        await send(pilot, "count")
        await engine.holding.wait()
        await send_to_wait(pilot, "and then?")
        await pilot.app.run_action("leave")
    history = History.open(tmp_path / "history.sqlite")
    leaf = history.leaf(history.conversations()[0].id)
    assert leaf is not None
    texts = [(message.role, message.content) for message in history.thread(leaf)]
    history.close()
    assert texts[0] == ("user", "count")
    assert texts[2:] == [("user", "and then?"), ("assistant", "")]


@on_loop
async def test_an_edit_that_is_given_up_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async with running(chat(ScriptedEngine(answer_script("yes")), tmp_path)) as pilot:
        await ask(pilot, "first")
        before = said(pilot)
        screen = screen_of(pilot)
        screen.transcript.focus()
        await pilot.press("up", "up", "e")
        await until(pilot, lambda: screen.prompt.text == "first")
        assert said(pilot) == []
        await pilot.press("ctrl+c")
        talk = screen.asking.talk
        assert talk.conversation is not None
        assert talk.history.thread(talk.history.leaf(talk.conversation) or 0)[-1].content == "yes"
        await pilot.press("f9")
        await until(pilot, lambda: said(pilot) == before)
        await quiet(pilot)
        await pilot.press("f9")
        await quiet(pilot)
        toasts = [one.message for one in pilot.app._notifications]
        assert toasts == ["there is only one version"]


@on_loop
async def test_an_edited_question_begins_a_branch(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "one")
        await ask(pilot, "two")
        screen = screen_of(pilot)
        screen.transcript.focus()
        await pilot.press("up", "up")
        await pilot.press("e")
        await until(pilot, lambda: screen.prompt.text == "two")
        assert said(pilot) == [("user", "one"), ("assistant", "yes")]
        await ask(pilot, "two, said better")
        first = screen.asking.talk.thread()[0]
        branches = screen.asking.talk.history.siblings(screen.asking.talk.thread()[2].id)
    assert first.content == "one"
    assert [message.content for message in branches] == ["two", "two, said better"]
    assert turns_of(engine.requests[2])[-1] == ("user", "two, said better")


@on_loop
async def test_going_on_from_an_earlier_answer_leaves_the_later_ones_out(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "one")
        await ask(pilot, "two")
        screen = screen_of(pilot)
        screen.transcript.focus()
        await pilot.press("up", "up", "up", "b")
        await until(pilot, lambda: screen.transcript.entries[-1].kind == "information")
        await ask(pilot, "three")
    assert turns_of(engine.requests[2]) == [
        ("user", "one"),
        ("assistant", "yes"),
        ("user", "three"),
    ]


@on_loop
async def test_the_interrupt_key_clears_then_stops_then_leaves(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three four"), hold_after=3)
    app = chat(engine, tmp_path)
    async with running(app) as pilot:
        await send(pilot, "count")
        await engine.holding.wait()
        screen = screen_of(pilot)
        screen.prompt.load("half a thought")
        await pilot.press("ctrl+c")
        assert not screen.prompt.has_text
        assert screen.asking.running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not screen.asking.running)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.is_running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0


@on_loop
async def test_selected_text_is_copied_before_anything_else(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        screen = screen_of(pilot)
        screen.prompt.load("copy me")
        await pilot.press("shift+home")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: bool(pilot.app._notifications))
        told = [one.message for one in pilot.app._notifications]
        assert screen.prompt.text == "copy me"
        assert len(told) == 1
        assert "7 characters" in told[0]
        assert not screen.prompt.selected_text


@on_loop
async def test_a_question_sent_during_an_answer_waits_in_sight(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three four"), hold_after=3)
    async with running(chat(engine, tmp_path)) as pilot:
        await send(pilot, "count")
        await engine.holding.wait()
        await send(pilot, "and then?")
        screen = screen_of(pilot)
        assert str(screen.line.content) == "1 question waits"
        await pilot.press("escape")
        await until(pilot, lambda: not screen.asking.running)
        assert screen.prompt.text == "and then?"
        assert not screen.line.has_class("-shown")


@on_loop
async def test_the_last_answer_is_checked_by_a_plain_run(tmp_path: Path) -> None:
    def script(request: GenerateRequest) -> Sequence[Event]:
        plain = request.route == "plain"
        return answer_script("one two three" if plain else texts.pop(0))

    texts = ["one two three", "one two four"]
    engine = ScriptedEngine(script)
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "count")
        await ask(pilot, "/check")
        await ask(pilot, "/regenerate")
        await ask(pilot, "/check")
        notices = [(kind, text) for kind, text in said(pilot) if text.startswith("check:")]
        thread = screen_of(pilot).asking.talk.thread()
    assert engine.requests[1] == replace(
        engine.requests[0], id=engine.requests[1].id, route="plain"
    )
    assert [kind for kind, _ in notices] == ["information", "warning"]
    assert notices[1][1] == (
        "check: differs first at character 9, line 1: the answer has 'four', plain decoding 'three'"
    )
    assert len(thread) == 2


@on_loop
async def test_a_sampled_answer_is_not_checked(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one"))
    settings = LiveSettings(sampling=SamplingParams(temperature=0.7))
    async with running(chat(engine, tmp_path, settings=settings)) as pilot:
        await ask(pilot, "count")
        await ask(pilot, "/check")
        kind, text = said(pilot)[-1]
    assert kind == "error"
    assert "sampled at temperature 0.7" in text
    assert len(engine.requests) == 1


@on_loop
async def test_a_lost_engine_is_told_and_the_answer_gone_on_with(tmp_path: Path) -> None:
    def script(request: GenerateRequest) -> Sequence[Event]:
        begun = turns_of(request)[-1][0] == "assistant"
        return answer_script("two") if begun else [*answer_script("one two")[:3], LOST]

    engine = ScriptedEngine(script)
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "count")
        screen = screen_of(pilot)
        answer = screen.asking.talk.thread()[-1]
        assert (answer.content, answer.state) == ("one ", "failed")
        assert ("error", "the engine's process was lost. Ask again.") in said(pilot)
        engine.statuses.put_nowait(replace(STATUS, state="failed", failure=LOST))
        engine.statuses.put_nowait(replace(STATUS, state="asleep"))
        await until(pilot, lambda: engine.models == ["scripted"])
        engine.statuses.put_nowait(STATUS)
        back = "The engine is back. /continue goes on from the text so far."
        await until(pilot, lambda: ("information", back) in said(pilot))
        await ask(pilot, "/continue")
        assert screen.asking.talk.thread()[-1].content == "one two"


@on_loop
async def test_an_answer_lost_before_its_first_word_is_offered_again(tmp_path: Path) -> None:
    engine = ScriptedEngine([*answer_script("one")[:1], LOST])
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "count")
        engine.statuses.put_nowait(replace(STATUS, state="failed", failure=LOST))
        engine.statuses.put_nowait(STATUS)
        back = "The engine is back. /regenerate asks again."
        await until(pilot, lambda: ("information", back) in said(pilot))


@on_loop
async def test_a_prompt_that_is_too_long_is_sent_only_as_the_user_chose(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("y" * 1200), status=replace(STATUS, context_limit=600))
    settings = LiveSettings(sampling=SamplingParams(max_tokens=100))
    async with running(chat(engine, tmp_path, settings=settings)) as pilot:
        await ask(pilot, "x" * 800)
        await send_over(pilot, "z" * 800)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, LedgerScreen))
        assert screen_of(pilot).prompt.text == "z" * 800
        assert len(engine.requests) == 1
        await send_over(pilot, "z" * 800)
        await pilot.press("o", "s")
        await until(pilot, lambda: len(engine.requests) == 2)
        await until(pilot, lambda: not screen_of(pilot).asking.running)
        notices = [text for kind, text in said(pilot) if kind == "information"]
    assert turns_of(engine.requests[1]) == [("user", "z" * 800)]
    assert notices == ["Left out of what the model sees: 2 messages, 0 files."]


async def send_over(pilot, text: str) -> None:  # type: ignore[no-untyped-def]
    screen_of(pilot).prompt.load(text)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, LedgerScreen))


@on_loop
async def test_the_keys_steer_the_running_answer_and_the_next(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three"), hold_after=3)
    async with running(chat(engine, tmp_path)) as pilot:
        await send(pilot, "count")
        await engine.holding.wait()
        await pilot.press("f7")
        await until(pilot, lambda: len(engine.steered) == 1)
        await pilot.press("f7", "f6", "f6", "f5")
        await until(pilot, lambda: len(engine.steered) == 5)
        running_id = engine.requests[0].id
        await pilot.press("escape")
        await until(pilot, lambda: not screen_of(pilot).asking.running)
        await send(pilot, "again")
        await until(pilot, lambda: len(engine.requests) == 2)
    assert {request for request, _ in engine.steered} == {running_id}
    assert [(s.route, s.k) for _, s in engine.steered] == [
        ("plain", None),
        ("auto", None),
        ("auto", 1),
        ("auto", 2),
        ("plain", 2),
    ]
    assert (engine.requests[1].route, engine.requests[1].k) == ("plain", 2)


@on_loop
async def test_what_was_steered_is_said_once_and_from_when_on(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("one two three"), hold_after=3)
    async with running(chat(engine, tmp_path)) as pilot:
        toasts = pilot.app._notifications
        for _ in range(3):
            await pilot.press("f6")
            await quiet(pilot)
        assert [one.message for one in toasts] == ["route auto, k is 4: for the next answer"]
        assert "k 4 pinned" in str(screen_of(pilot).meter.render())
        await send(pilot, "count")
        await engine.holding.wait()
        await pilot.press("f7")
        await until(pilot, lambda: len(engine.steered) == 1)
        assert [one.message for one in toasts] == ["route plain, k is 4: from the next round on"]
        assert "plain ⏐ k 4 pinned" in str(screen_of(pilot).meter.render())
        await pilot.press("escape")


@on_loop
async def test_every_route_can_be_forced_by_its_key(tmp_path: Path) -> None:
    async with running(chat(ScriptedEngine([]), tmp_path)) as pilot:
        seen = []
        for _ in get_args(RouteChoice):
            await pilot.press("f5")
            await quiet(pilot)
            seen.append(screen_of(pilot).asking.talk.steering.route)
    assert sorted(seen) == sorted(get_args(RouteChoice))


@on_loop
async def test_a_check_of_a_stopped_answer_says_what_was_compared(tmp_path: Path) -> None:
    def script(request: GenerateRequest) -> Sequence[Event]:
        if request.route == "plain":
            return answer_script("one two three", reason="length")
        return answer_script("one two", reason="cancelled")

    async with running(chat(ScriptedEngine(script), tmp_path)) as pilot:
        await ask(pilot, "count")
        await ask(pilot, "/check")
        assert said(pilot)[-1][1] == (
            "check: the answer did not come to its end, so the tokens so far were compared: "
            "identical, all 7 characters"
        )
        assert "token limit" not in str(screen_of(pilot).meter.render())


@on_loop
async def test_what_is_not_sent_goes_back_as_it_stood_in_the_input(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=replace(STATUS, context_limit=600))
    settings = LiveSettings(sampling=SamplingParams(max_tokens=100))
    async with running(chat(engine, tmp_path, settings=settings)) as pilot:
        prompt = screen_of(pilot).prompt
        prompt.focus()
        pasted = "line\n" * 1000
        pilot.app.post_message(Paste(pasted))
        await until(pilot, lambda: prompt.has_text)
        await pilot.press("space", *"why", "question_mark")
        shown = prompt.draft
        assert shown.text == "[Pasted text #1, 1,000 lines] why?"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, LedgerScreen))
        await pilot.press("escape")
        await until(pilot, lambda: prompt.has_text)
        assert prompt.draft == shown
        assert prompt.text == pasted + " why?"


@on_loop
async def test_files_of_earlier_questions_stay_where_they_were_quoted(tmp_path: Path) -> None:
    from engine.chat_template import turns_with_snippets

    engine = ScriptedEngine(answer_script("yes"))
    app = chat(engine, tmp_path)
    (tmp_path / "work" / "a.py").write_text("x = '```'\n")
    async with running(app) as pilot:
        await ask(pilot, "look at @a.py please")
        await ask(pilot, "and now?")
    first, second = (request.prompt for request in engine.requests)
    assert isinstance(first, ChatPrompt)
    assert isinstance(second, ChatPrompt)
    assert [snippet.path for snippet in first.snippets] == ["a.py"]
    seen_before = turns_with_snippets(first)
    assert turns_with_snippets(second)[: len(seen_before)] == seen_before
    assert second.turns[-1] == Turn(role="user", content="and now?")


@on_loop
async def test_only_answers_are_continued_also_where_the_first_question_is_the_last_message(
    tmp_path: Path,
) -> None:
    async with running(chat(ScriptedEngine(answer_script("yes")), tmp_path)) as pilot:
        await ask(pilot, "first")
        talk = screen_of(pilot).asking.talk
        talk.go_to(talk.thread()[0])
        await ask(pilot, "/continue")
        assert said(pilot)[-1] == (
            "error",
            "that message is no answer to a question. Choose an answer.",
        )


def fill_the_disk(talk: Talk) -> None:
    """Let the history's file grow no more."""
    store = talk.history._store
    with store.lock:
        (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
        store.connection.execute(f"PRAGMA max_page_count = {pages}")


@on_loop
async def test_on_a_full_disk_the_conversation_goes_on_and_says_that_it_is_not_kept(
    tmp_path: Path,
) -> None:
    long = "what is this? " * 1500
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "first")
        fill_the_disk(screen_of(pilot).asking.talk)
        await ask(pilot, long)
        assert not screen_of(pilot).prompt.has_text
        await ask(pilot, "third")
        kinds = [kind for kind, _ in said(pilot)]
        warning = next(text for kind, text in said(pilot) if kind == "warning")
    assert kinds == ["user", "assistant", "warning", "user", "assistant", "user", "assistant"]
    assert "is full" in warning
    assert "only until this window is closed" in warning
    said_to_it = [content for _, content in turns_of(engine.requests[2])]
    assert said_to_it == ["first", "yes", long, "yes", "third"]


@on_loop
async def test_an_answer_that_fills_the_disk_is_still_in_what_the_model_is_told_next(
    tmp_path: Path,
) -> None:
    long = "0123456789abcdefghi " * 800
    talks: list[Talk] = []

    def script(request: GenerateRequest) -> list[Event]:
        fill_the_disk(talks[0])
        return answer_script(long if len(turns_of(request)) == 1 else "yes")

    async with running(chat(ScriptedEngine(script), tmp_path)) as pilot:
        screen = screen_of(pilot)
        talks.append(screen.asking.talk)
        await ask(pilot, "first")
        errors = [text for kind, text in said(pilot) if kind == "error"]
        await ask(pilot, "second")
        thread = [message.content for message in screen.asking.talk.thread()]
    assert len(errors) == 1
    assert "is full" in errors[0]
    assert thread == ["first", long, "second", "yes"]


@on_loop
async def test_a_day_of_answers_is_not_held_in_memory_twice(tmp_path: Path) -> None:
    talk = Talk(History.open(tmp_path / "history.sqlite"), SamplingParams(), Steering())
    for number in range(MOST_ASKED + 5):
        asked = talk.ask(f"question {number}")
    assert len(talk.asked) == MOST_ASKED
    assert talk.plainly(asked.answer).prompt == asked.request.prompt
    talk.history.close()


@on_loop
async def test_a_store_that_another_window_holds_stops_no_key(tmp_path: Path) -> None:
    async with running(chat(ScriptedEngine(answer_script("yes")), tmp_path)) as pilot:
        await ask(pilot, "first")
        screen = screen_of(pilot)
        answer = await screen.last_answer()
        lock, loop = screen.asking.talk.history._store.lock, asyncio.get_running_loop()

        async def longest_stall(deed: Coroutine[Any, Any, object]) -> float:
            taken, done = threading.Event(), threading.Event()

            def hold() -> None:
                with lock:
                    taken.set()
                    done.wait(0.5)

            holder = threading.Thread(target=hold)
            holder.start()
            await asyncio.to_thread(taken.wait)
            task, longest, last = loop.create_task(deed), 0.0, loop.time()
            while holder.is_alive() or not task.done():
                await asyncio.sleep(0.005)
                longest, last = max(longest, loop.time() - last), loop.time()
            await task
            return longest

        deeds = {
            "count": lambda: screen.asking.cost_of("text", ()),
            "fit": lambda: fitting.fitted(screen, fitting.Question(text="text")),
            "system": lambda: slash.run(screen, "system", "be brief"),
            "export": lambda: screen.files.export(screen.asking.talk, "a.md"),
            "version": lambda: screen._show_tip(answer.id),
        }
        stalls = {name: await longest_stall(deed()) for name, deed in deeds.items()}
    assert {name for name, stall in stalls.items() if stall > 0.3} == set()
