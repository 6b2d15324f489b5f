"""What can be done with a message, by keys and by mouse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from tests.tui.answers import DOCUMENT, Kept, Stage, mixed_thread, on_stage, settle, thread
from tui.message_actions import MessageActions
from tui.message_view import MessageView


def told(stage: Stage) -> list[tuple[str, int | None, int | None]]:
    return [
        (event.verb, event.message_id, None if event.block is None else event.block.index)
        for event in stage.acted
    ]


def test_keys_move_between_messages_and_through_tall_ones() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread(
            [*thread(2), Kept(id=2, role="assistant", content="tall\n\n" * 40), *thread(2)]
        )
        await settle(stage, pilot)
        stage.transcript.focus()
        seen: list[int] = []
        for _ in range(15):
            await pilot.press("up")
            await settle(stage, pilot)
            current = stage.transcript.current
            assert current is not None
            seen.append(stage.transcript.views.index(current))
        assert sorted(set(seen), reverse=True) == [4, 3, 2, 1, 0]
        assert seen == sorted(seen, reverse=True)
        assert seen.count(2) >= 3
        for _ in range(20):
            await pilot.press("down")
        await settle(stage, pilot)
        assert stage.transcript.following

    on_stage(play, size=(80, 20))


@pytest.mark.parametrize(
    ("key", "verb"), [("c", "copy"), ("r", "regenerate"), ("g", "continue"), ("b", "branch")]
)
def test_a_letter_acts_on_the_current_message(key: str, verb: str) -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread(thread(4))
        await settle(stage, pilot)
        stage.transcript.focus()
        await pilot.press(key, "up", key, "e")
        await settle(stage, pilot)
        assert told(stage) == [(verb, 3, None)]
        assert stage.acted[0].text == "Answer **3**."
        await pilot.press("up", "e", "g")
        await settle(stage, pilot)
        assert told(stage)[1:] == [("edit", 2, None)]

    on_stage(play)


def test_enter_offers_every_action_and_every_block() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread([Kept(id=7, role="assistant", content=DOCUMENT)])
        await settle(stage, pilot)
        stage.transcript.focus()
        for turn in (0, 1, 2, 3, 4, 8, 9):
            await pilot.press("enter")
            await pilot.pause()
            await pilot.press(*["down"] * turn, "enter")
            await settle(stage, pilot)
        assert told(stage) == [
            ("copy", 7, None),
            ("regenerate", 7, None),
            ("continue", 7, None),
            ("branch", 7, None),
            ("copy_code", 7, 0),
            ("save_code", 7, 1),
            ("apply_code", 7, 1),
        ]
        assert stage.acted[-1].block is not None
        assert stage.acted[-1].block.code.startswith("@cached(")
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("escape")
        await settle(stage, pilot)
        assert len(stage.acted) == 7

    on_stage(play)


def test_enter_on_a_notice_opens_nothing() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread([Kept(id=7, role="assistant", content=DOCUMENT)])
        stage.transcript.add_notice("something was done")
        await settle(stage, pilot)
        stage.transcript.focus()
        await pilot.press("up", "enter")
        await settle(stage, pilot)
        assert not isinstance(stage.screen, MessageActions)
        await pilot.press("c")
        await settle(stage, pilot)
        assert told(stage) == [("copy", None, None)]

    on_stage(play)


def test_a_click_on_a_block_acts_on_it() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread([Kept(id=7, role="assistant", content=DOCUMENT)])
        await settle(stage, pilot)
        for word, verb in (("copy", "copy_code"), ("save", "save_code"), ("apply", "apply_code")):
            lines = stage.lines()
            row = next(y for y, line in enumerate(lines) if "cache.py" in line)
            await pilot.click(offset=(lines[row].rindex(word) + 1, row))
            await settle(stage, pilot)
            assert told(stage)[-1] == (verb, 7, 1)
        assert stage.transcript.current is stage.transcript.views[0]

    on_stage(play, size=(80, 60))


def test_picture_of_actions(snap_compare: Callable[..., bool]) -> None:
    stage = Stage()

    async def opened(pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread(mixed_thread())
        stage.transcript.focus()
        await pilot.press("up", "enter")
        await pilot.pause()

    assert snap_compare(stage, terminal_size=(80, 24), run_before=opened)


def test_the_marker_is_seen_without_colour() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.show_thread(thread(2))
        await settle(stage, pilot)
        stage.transcript.focus()
        await pilot.press("up")
        await settle(stage, pilot)
        (current,) = [
            view for view in stage.transcript.query(MessageView) if view.has_class("-current")
        ]
        assert stage.lines()[current.region.y].strip().startswith("▌")

    on_stage(play)
