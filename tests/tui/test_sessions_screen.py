"""The list of conversations, driven by keys and by mouse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from tui.history import History
from tui.sessions_screen import SessionsScreen, age, counted

NASTY = "[bold]not markup[/x] \x1b[31mred \u202ertl \x00 👩‍👩‍👧 你好世界"
SIZES = {"wide": (100, 30), "narrow": (40, 12)}


class Stage(App[None]):
    """The list and nothing else; `chosen` is what it gave back."""

    HORIZONTAL_BREAKPOINTS: ClassVar = [(0, "-narrow"), (60, "-wide")]
    VERTICAL_BREAKPOINTS: ClassVar = [(0, "-short"), (16, "-tall")]

    def __init__(self, history: History, **options: Any) -> None:
        super().__init__()
        self.history = history
        self.options = {"now": lambda: 100_000.0} | options
        self.chosen: list[int | None] = []

    def on_mount(self) -> None:
        self.push_screen(SessionsScreen(self.history, **self.options), self.chosen.append)


@pytest.fixture
def history(tmp_path: Path):
    now = [1000.0]
    opened = History.open(tmp_path / "history.sqlite", clock=lambda: now[0])
    for question, answer in (
        ("Sort a list of dicts by a key", "Use `sorted(items, key=itemgetter('name'))`."),
        (NASTY, "\x1b]52;c;c3RvbGVu\x07[/]"),
        ("Why does this deadlock?", "Both wait:\n" + "filler " * 40 + "the NEEDLE " + "end " * 40),
    ):
        conversation = opened.create().id
        asked = opened.add(conversation, None, "user", question)
        opened.add(conversation, asked.id, "assistant", answer)
        now[0] += 30_000
    yield opened
    opened.close()


def drive(
    app: Stage, steps: Callable[[Pilot[None]], Any], size: tuple[int, int] = (100, 30)
) -> None:
    """Run the steps once the list is there."""

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await steps(pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[None]) -> None:
    """Wait until no search is under way."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def typed(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def rows(pilot: Pilot[None]) -> list[str]:
    options = pilot.app.screen.query_one(OptionList)
    return [str(option.prompt) for option in options.options]


def titles(pilot: Pilot[None]) -> list[str]:
    return [row.split("\n")[0] for row in rows(pilot)]


def note(pilot: Pilot[None]) -> str:
    return str(pilot.app.screen.query_one("#note", Static).content)


def test_the_latest_comes_first_with_its_age_and_size(history: History) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        assert [row.split("\n")[1] for row in rows(pilot)] == [
            "  10 h ago · 2 messages",
            "  19 h ago · 2 messages",
            "  1 day ago · 2 messages · open now",
        ]
        assert titles(pilot)[0] == "Why does this deadlock?"

    drive(Stage(history, current=1), steps)


def test_enter_resumes_the_highlighted_one(history: History) -> None:
    app = Stage(history)

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "up", "enter")

    drive(app, steps)
    assert app.chosen == [2]


def test_escape_chooses_nothing(history: History) -> None:
    app = Stage(history)

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("escape")

    drive(app, steps)
    assert app.chosen == [None]


@pytest.mark.parametrize(("line", "chosen"), [(0, 3), (4, 1), (5, 1)])
def test_a_click_resumes_what_is_under_it(history: History, line: int, chosen: int) -> None:
    """A border that came with the focus once moved the rows by one in mid-click."""
    app = Stage(history)

    async def steps(pilot: Pilot[None]) -> None:
        await pilot.click(OptionList, offset=(4, line))

    drive(app, steps)
    assert app.chosen == [chosen]


def test_the_search_finds_text_and_shows_where(history: History) -> None:
    app = Stage(history)

    async def steps(pilot: Pilot[None]) -> None:
        await typed(pilot, *"needle")
        (row,) = rows(pilot)
        assert row.startswith("Why does this deadlock?\n")
        assert "the NEEDLE" in row.split("\n")[2]
        await typed(pilot, *" no")
        assert rows(pilot) == []
        assert note(pilot) == "No conversation has all of these words."
        await pilot.press("enter", "f2", "ctrl+d", "down")
        assert app.chosen == []
        await typed(pilot, "ctrl+u")
        assert len(rows(pilot)) == 3
        assert note(pilot) == ""

    drive(app, steps)


def test_a_search_can_be_given_and_an_empty_list_says_so(history: History) -> None:
    async def given(pilot: Pilot[None]) -> None:
        assert titles(pilot) == ["Sort a list of dicts by a key"]

    async def empty(pilot: Pilot[None]) -> None:
        assert note(pilot).startswith("Nothing is kept yet")

    drive(Stage(history, query="itemgetter"), given)
    drive(Stage(History()), empty)


def test_what_was_said_is_shown_as_it_is_and_harmlessly(history: History) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        for query in ("", "[bold]", "markup[/x]", "\x1b", '"', "52;c"):
            pilot.app.screen.query_one(Input).value = query
            await settled(pilot)
            shown = "\n".join(rows(pilot))
            assert "[bold]not markup[/x] ␛[31mred ⟨RLO⟩rtl ␀" in shown or query == '"'
            assert not set(shown) & set("\x00\x07\x1b\u202e")

    drive(Stage(history), steps)


def test_renaming_asks_for_a_title_and_keeps_the_place(history: History) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "f2")
        assert pilot.app.screen.query_one(Input).value == "Sort a list of dicts by a key"
        await typed(pilot, *"New name", "enter")
        assert titles(pilot)[2] == "New name"
        assert pilot.app.screen.query_one(OptionList).highlighted == 2
        await pilot.press("f2")
        await typed(pilot, *"Not this", "escape")
        assert titles(pilot)[2] == "New name"
        await pilot.press("f2")
        await typed(pilot, "ctrl+u", "enter")

    drive(Stage(history), steps)
    assert history.conversation(1).title == "New name"


def test_deleting_is_asked_about_and_enter_alone_keeps(history: History) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        for keys in (["enter"], ["escape"], ["n"], ["ctrl+d"], ["right", "left", "enter"]):
            await typed(pilot, "ctrl+d", *keys)
            if keys == ["ctrl+d"]:
                await typed(pilot, "escape")
            assert len(history.conversations()) == 3, keys
        await typed(pilot, "ctrl+d", "y")
        assert titles(pilot)[0].startswith("[bold]")
        await typed(pilot, "tab", "delete", "tab", "enter")
        assert titles(pilot) == ["Sort a list of dicts by a key"]
        await typed(pilot, "ctrl+d", "right", "enter")
        assert rows(pilot) == []

    drive(Stage(history), steps)
    assert history.conversations() == []


def test_the_buttons_do_the_same_by_mouse(history: History) -> None:
    app = Stage(history)

    async def steps(pilot: Pilot[None]) -> None:
        for name in ("#rename", "#delete"):
            await pilot.click(name)
            await pilot.pause()
            assert pilot.app.screen.query("#keep")
            await pilot.click("#keep")
            await settled(pilot)
        await pilot.click("#delete")
        await pilot.pause()
        await pilot.click("#delete")
        await settled(pilot)
        assert len(rows(pilot)) == 2
        await pilot.click("#resume")

    drive(app, steps, SIZES["narrow"])
    assert app.chosen == [2]


def test_the_open_conversation_is_not_deleted(history: History) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert not pilot.app.screen.query("#keep")
        assert "open" in note(pilot)

    drive(Stage(history, current=3), steps)
    assert len(history.conversations()) == 3


def test_what_the_store_refuses_is_said(history: History, tmp_path: Path) -> None:
    other = History.open(tmp_path / "history.sqlite")
    question = other.thread(other.leaf(3) or 0)[0]
    other.add(3, question.id, "assistant", "", state="partial")

    async def steps(pilot: Pilot[None]) -> None:
        await typed(pilot, "ctrl+d", "y")
        assert note(pilot).startswith("an answer is being written in that conversation.")
        assert len(rows(pilot)) == 3

    drive(Stage(history), steps)
    other.close()


def test_a_long_list_is_told_to_be_cut(tmp_path: Path) -> None:
    history = History()
    for number in range(205):
        history.add(history.create().id, None, "user", f"question {number}")

    async def steps(pilot: Pilot[None]) -> None:
        assert len(rows(pilot)) == 200
        assert "200" in note(pilot)
        await typed(pilot, *"question", "space", "3")
        await pilot.press("pagedown")
        assert pilot.app.screen.query_one(OptionList).highlighted

    drive(Stage(history), steps)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_399, "23 h ago"),
        (86_400, "1 day ago"),
        (86_400 * 59, "59 days ago"),
        (86_400 * 60, "2 months ago"),
        (86_400 * 729, "24 months ago"),
        (86_400 * 730, "2 years ago"),
    ],
)
def test_ages(seconds: float, told: str) -> None:
    assert age(seconds) == told


def test_counts() -> None:
    assert [counted(n, "message") for n in (0, 1, 1200)] == [
        "0 messages",
        "1 message",
        "1,200 messages",
    ]


PICTURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "list": ("wide", ()),
    "search": ("wide", (*"the", "space", *"needle")),
    "delete": ("wide", ("down", "ctrl+d")),
    "rename": ("narrow", ("f2",)),
    "narrow": ("narrow", ()),
}


def still(pilot: Pilot[None]) -> None:
    """Keep the cursor from blinking."""
    for field in pilot.app.screen.query(Input):
        field.cursor_blink = False


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, history: History, snap_compare: Callable[..., bool]) -> None:
    size, keys = PICTURES[name]

    async def before(pilot: Pilot[None]) -> None:
        await settled(pilot)
        still(pilot)
        await typed(pilot, *keys)
        still(pilot)
        await pilot.pause()

    app = Stage(history, current=1)
    assert snap_compare(app, terminal_size=SIZES[size], run_before=before)
