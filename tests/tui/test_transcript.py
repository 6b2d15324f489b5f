"""The transcript: following, reading elsewhere, keys, actions, long threads, unsafe text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from tests.tui.answers import (
    DOCUMENT,
    Stage,
    deltas,
    mixed_thread,
    on_stage,
    say,
    settle,
    snippet,
    thread,
)
from tui.answer_view import AnswerView
from tui.message_scroll import Earlier, Messages, Pill
from tui.transcript import FIRST_LOAD, KEEP_LINES, PRUNE_ABOVE


def scroll_of(stage: Stage) -> Messages:
    return stage.transcript.query_one(Messages)


def test_new_text_is_followed_only_from_the_end() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.add_user(1, "Go on.")
        view = await stage.transcript.begin_answer(2)
        for number in range(60):
            await say(view, f"line {number}\n\n")
        await settle(stage, pilot)
        assert any("line 59" in line for line in stage.lines())
        stage.transcript.focus()
        await pilot.press("pageup", "pageup")
        await settle(stage, pilot)
        assert not stage.transcript.following
        before = stage.lines()
        await say(view, "one\n\ntwo\n\nthree\n\n")
        await settle(stage, pilot)
        after = stage.lines()
        pill = stage.transcript.query_one(Pill)
        assert "6 new lines ↓" in after[pill.region.y]
        assert [line for y, line in enumerate(after) if y != pill.region.y] == [
            line for y, line in enumerate(before) if y != pill.region.y
        ]
        await pilot.click(Pill)
        await settle(stage, pilot)
        assert stage.transcript.following
        assert not pill.display
        await say(view, "four\n\n")
        await settle(stage, pilot)
        assert any("four" in line for line in stage.lines())

    on_stage(play)


def test_scrolling_back_to_the_end_follows_again() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await stage.transcript.begin_answer(1)
        await say(view, "text\n\n" * 100)
        await settle(stage, pilot)
        stage.transcript.focus()
        await pilot.press("pageup")
        await settle(stage, pilot)
        assert not stage.transcript.following
        await pilot.press("pagedown", "pagedown")
        await settle(stage, pilot)
        assert stage.transcript.following

    on_stage(play)


def test_what_fits_stays_at_the_top_and_is_still_followed_when_it_grows() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.add_user(1, "First.")
        stage.transcript.focus()
        await pilot.press("pageup", "pagedown", "home")
        await settle(stage, pilot)
        assert "First." in stage.lines()[0]
        view = await stage.transcript.begin_answer(2)
        await say(view, "\n\n".join(f"line {number}" for number in range(80)))
        await settle(stage, pilot)
        assert stage.transcript.following
        assert any("line 79" in line for line in stage.lines())
        await pilot.resize_terminal(80, 200)
        await settle(stage, pilot)
        assert "First." in stage.lines()[0]

    on_stage(play)


def test_a_resize_of_the_terminal_keeps_the_end_in_sight() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await stage.transcript.begin_answer(1)
        await say(view, DOCUMENT * 3 + "\n\nlast words")
        for size in ((20, 5), (40, 12), (120, 40), (41, 12)):
            await pilot.resize_terminal(*size)
            await settle(stage, pilot)
            assert any("last" in line or "words" in line for line in stage.lines())
        assert view.source == DOCUMENT * 3 + "\n\nlast words"

    on_stage(play)


def test_an_answer_is_gone_on_with_in_its_place() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        first = await stage.transcript.begin_answer(2)
        for delta in deltas("The first half, "):
            await first.append(delta)
        await first.finish("The first half, ")
        await settle(stage, pilot)
        kinds = first.kinds
        second = await stage.transcript.begin_answer(2)
        assert second.kinds == kinds
        await say(second, "the second.")
        await second.finish("The first half, the second.")
        await settle(stage, pilot)
        assert [entry.text for entry in stage.transcript.entries] == ["The first half, the second."]
        assert len(stage.transcript.views) == 1
        assert not stage.transcript.entries[0].live

    on_stage(play)


def test_a_long_thread_shows_its_end_first_and_the_rest_when_asked() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread(thread(500))
        await settle(stage, pilot)
        assert len(stage.transcript.views) == FIRST_LOAD
        assert any("Answer 499" in line for line in stage.lines())
        stage.transcript.focus()
        await pilot.press("home")
        await settle(stage, pilot)
        assert "480 earlier messages" in stage.lines()[0]
        before = stage.lines()[1:10]
        await pilot.click(Earlier)
        await settle(stage, pilot)
        assert len(stage.transcript.views) == 2 * FIRST_LOAD
        assert stage.lines()[1:10] == before
        assert [view.entry.message_id for view in stage.transcript.views] == list(range(460, 500))
        while len(stage.transcript.views) < 100:
            await pilot.press("home", "home")
            await settle(stage, pilot)
        await stage.transcript.show_thread([])
        await settle(stage, pilot)
        assert stage.transcript.views == []
        assert not stage.transcript.query_one(Earlier).display

    on_stage(play)


def test_early_messages_give_their_widgets_up_but_not_their_text() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        answers: list[AnswerView] = []
        for number in range(12):
            view = await stage.transcript.begin_answer(number)
            await say(view, f"answer {number}\n\n" + "- item\n" * 200)
            await view.finish()
            answers.append(view)
            await settle(stage, pilot)
        lines = scroll_of(stage).virtual_size.height
        assert KEEP_LINES - 250 < lines <= PRUNE_ABOVE
        assert len(stage.transcript.entries) == 12
        assert stage.transcript.entries[0].text == answers[0].source
        assert stage.transcript.entries[0].kinds
        assert stage.transcript.following
        left_out = 12 - len(stage.transcript.views)
        await stage.transcript.load_earlier()
        await settle(stage, pilot)
        assert len(stage.transcript.views) == 12
        assert left_out > 0

    on_stage(play)


def test_messages_that_are_read_are_not_pruned() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread(thread(8, "- item\n" * 300))
        await settle(stage, pilot)
        stage.transcript.focus()
        await pilot.press("home")
        await settle(stage, pilot)
        before = stage.lines()[:-1]
        view = await stage.transcript.begin_answer(99)
        await say(view, "- item\n" * 900)
        await view.finish()
        stage.transcript.add_notice("done")
        await settle(stage, pilot)
        assert stage.lines()[:-1] == before

    on_stage(play)


HOSTILE = (
    "[bold]x[/bold] [/] \x1b]52;c;aGk=\x07 \x1b[2J \u202eevil\u202c a\x00b \x9b31m {x} $y "
    "[@click=app.quit]q[/]"
)


def test_text_is_never_obeyed() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.add_user(1, HOSTILE, [snippet("[red]a.py\x1b[31m")])
        for text in (
            HOSTILE,
            f"- {HOSTILE}\n",
            f"```{HOSTILE}\n{HOSTILE}\n```\n",
            f"|{HOSTILE}|\n|-|\n|x|",
        ):
            view = await stage.transcript.begin_answer(len(text))
            await say(view, text)
            await view.finish(text)
        for kind in ("information", "warning", "error"):
            stage.transcript.add_notice(HOSTILE, kind)
        await settle(stage, pilot)
        for provenance in (False, True):
            await stage.transcript.set_provenance(provenance)
            await settle(stage, pilot)
            shown = "\n".join(stage.lines())
            assert not set(shown) & set("\x1b\x07\x00\x9b\u202e\u202c")
            assert shown.count("[bold]x[/bold]") >= 8
            assert "[@click=app.quit]q[/]" in shown
            assert "[red]a.py␛[31m" in shown
        stage.transcript.focus()
        await pilot.press("up", "enter")
        await pilot.pause()

    on_stage(play, size=(160, 60))


def test_no_link_can_be_opened() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await stage.transcript.begin_answer(1)
        await say(view, "[the docs](https://example.org/evil) and https://example.org/bare\n")
        await view.finish()
        await settle(stage, pilot)
        assert "the docs (https://example.org/evil)" in stage.lines()[0]
        for x in range(2, 60, 3):
            style = stage.screen.get_style_at(x, 0)
            assert "@click" not in style.meta
            assert style.link is None

    on_stage(play)


@pytest.mark.parametrize("size", [(80, 50), (40, 12)], ids=["wide", "small"])
def test_picture(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    stage = Stage()

    async def mixed(pilot: Pilot[None]) -> None:
        transcript = stage.transcript
        await transcript.show_thread(mixed_thread())
        view = await transcript.begin_answer(5)
        for delta in deltas("Being written: **bold** and\n\n```python\nx = [1, 2]  # cut he"):
            await view.append(delta)
        transcript.add_notice("stopped · /continue goes on, /regenerate answers again")
        transcript.add_notice("the cache takes 3 GiB, 1 GiB is free. Use less.", "error")
        transcript.focus()
        await settle(stage, pilot)
        await pilot.press("up", "up")
        await settle(stage, pilot)

    assert snap_compare(stage, terminal_size=size, run_before=mixed)


def test_picture_of_reading_elsewhere(snap_compare: Callable[..., bool]) -> None:
    stage = Stage()

    async def away(pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread([*thread(60), *mixed_thread()])
        view = await stage.transcript.begin_answer(99)
        await settle(stage, pilot)
        stage.transcript.focus()
        await pilot.press("home")
        await settle(stage, pilot)
        await say(view, "new\n\n" * 9)
        await settle(stage, pilot)

    assert snap_compare(stage, terminal_size=(80, 24), run_before=away)
