"""The preview of an edit: what it shows, which keys answer, and when a yes counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.app import App
from textual.pilot import Pilot

from tui import diff_text
from tui.code_blocks import CodeBlock
from tui.diff_screen import DiffScreen
from tui.diff_text import DiffRow
from tui.diff_view import DiffView, shown
from tui.edits import Edit, plan_edit

OLD = "import os\n\n\ndef area(w, h):\n    return w + h\n\n\ndef main():\n    print(area(2, 3))\n"
NEW = OLD.replace("w + h", "w * h").replace("import os\n", "import sys\n")


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stage(App[None]):
    """An app with nothing but the preview on it."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, edit: Edit, clock: Clock) -> None:
        super().__init__()
        self.edit = edit
        self.clock = clock
        self.answers: list[bool | None] = []

    def on_mount(self) -> None:
        self.push_screen(DiffScreen(self.edit, clock=self.clock), self.answers.append)


def edit_of(folder: Path, old: str | None, new: str, name: str = "app/shapes.py") -> Edit:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if old is not None:
        path.write_text(old, encoding="utf-8", newline="")
    block = CodeBlock(index=0, language="python", code=new, info="", target=None, line=1)
    return plan_edit(folder, name, block)


def played(
    edit: Edit,
    play: Callable[[Pilot[None], Clock], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
) -> list[bool | None]:
    """The answers given while `play` was at the keys."""

    async def run() -> list[bool | None]:
        clock = Clock()
        app = Stage(edit, clock)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await play(pilot, clock)
            await pilot.pause()
        return app.answers

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "answer"), [("y", True), ("enter", True), ("n", False), ("escape", False)]
)
def test_a_key_answers(tmp_path: Path, key: str, answer: bool) -> None:
    async def play(pilot: Pilot[None], clock: Clock) -> None:
        clock.now += 0.6
        await pilot.press(key)

    assert played(edit_of(tmp_path, OLD, NEW), play) == [answer]
    assert (tmp_path / "app/shapes.py").read_text(encoding="utf-8") == OLD


def test_a_yes_on_its_way_or_held_down_does_not_count(tmp_path: Path) -> None:
    async def play(pilot: Pilot[None], clock: Clock) -> None:
        for key in ("enter", "y") * 5:
            await pilot.press(key)
            clock.now += 0.12
        hint = str(pilot.app.screen.query_one("#hint").render())
        assert "too early" in hint

    assert played(edit_of(tmp_path, OLD, NEW), play) == []


def test_a_yes_counts_once_the_grace_is_over(tmp_path: Path) -> None:
    async def play(pilot: Pilot[None], clock: Clock) -> None:
        clock.now += 0.4
        await pilot.press("y")
        clock.now += 0.51
        await pilot.press("y")

    assert played(edit_of(tmp_path, OLD, NEW), play) == [True]


def test_a_no_counts_at_once(tmp_path: Path) -> None:
    async def play(pilot: Pilot[None], clock: Clock) -> None:
        await pilot.press("escape")

    assert played(edit_of(tmp_path, OLD, NEW), play) == [False]


def test_the_mouse_and_the_tab_key_reach_both_answers(tmp_path: Path) -> None:
    edit = edit_of(tmp_path, OLD, NEW)

    async def click_early(pilot: Pilot[None], clock: Clock) -> None:
        await pilot.click("#apply")

    async def click(pilot: Pilot[None], clock: Clock) -> None:
        clock.now += 1
        await pilot.click("#apply")

    async def tab_to_cancel(pilot: Pilot[None], clock: Clock) -> None:
        clock.now += 1
        await pilot.press("tab", "tab", "enter")

    assert played(edit, click_early) == []
    assert played(edit, click) == [True]
    assert played(edit, tab_to_cancel) == [False]


def lines_in_sight(pilot: Pilot[None]) -> list[str]:
    view = pilot.app.screen.query_one(DiffView)
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


def test_a_long_diff_scrolls_to_its_end(tmp_path: Path) -> None:
    old = "".join(f"line {number}\n" for number in range(3000))
    new = "".join(f"Line {number}\n" for number in range(3000))

    async def play(pilot: Pilot[None], clock: Clock) -> None:
        assert lines_in_sight(pilot)[1].split() == ["1", "−", "line", "0"]
        await pilot.press("end")
        await pilot.pause()
        assert lines_in_sight(pilot)[-1].split() == ["3000", "+", "Line", "2999"]
        await pilot.press("home", "down", "j", "pagedown")
        await pilot.pause()
        assert pilot.app.screen.query_one(DiffView).scroll_offset.y > 2

    assert played(edit_of(tmp_path, old, new), play) == []


@pytest.mark.parametrize("width", [40, 80, 130])
def test_wide_lines_wrap_and_nothing_is_out_of_sight(tmp_path: Path, width: int) -> None:
    long = "日本語" * 40 + "x" * 90 + "END"

    async def play(pilot: Pilot[None], clock: Clock) -> None:
        view = pilot.app.screen.query_one(DiffView)
        drawn = [view.render_line(y) for y in range(view.size.height)]
        assert {strip.cell_length for strip in drawn} == {view.size.width}
        parts = [line.rsplit("+ ", 1)[-1].rsplit("↪ ", 1)[-1] for line in lines_in_sight(pilot)]
        assert long in "".join(parts)
        await pilot.resize_terminal(width + 7, 40)
        await pilot.pause()
        assert view.scrollable_content_region.width == view.virtual_size.width

    played(edit_of(tmp_path, None, long + "\n"), play, size=(width, 40))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (DiffRow(sign="+", text="a\tb"), "a→  b"),
        (DiffRow(sign="+", text="\t日\tb"), "→   日→ b"),
        (DiffRow(sign="-", text="a  "), "a··"),
        (DiffRow(sign=" ", text="a  "), "a  "),
        (DiffRow(sign="+", text="x\x1b[2J\u202e\r"), "x␛[2J⟨RLO⟩␍"),
        (DiffRow(sign="+", text="[bold]x[/]"), "[bold]x[/]"),
    ],
)
def test_what_could_hide_is_shown(row: DiffRow, text: str) -> None:
    assert shown(row) == text
    assert cell_len(text) >= cell_len(row.text.replace("\t", " "))


def test_a_line_end_that_is_missing_is_told(tmp_path: Path) -> None:
    edit = edit_of(tmp_path, None, "a\nb")
    assert [row.sign for row in diff_text.rows(edit.diff)] == ["@", "+", "+", "\\"]


PICTURES: dict[str, tuple[str | None, str, str, tuple[int, int]]] = {
    "patch": (OLD, NEW, "app/shapes.py", (80, 24)),
    "narrow": (OLD, NEW, "app/shapes.py", (40, 12)),
    "new_file": (None, NEW, "app/[red]new[/red]/shapes.py", (80, 20)),
    "unsafe": (
        "a = 1\nb = 2\n",
        "a = 1  \n\tb = '\x1b[31m' # \u202egnp\u202c [bold]日本語 😀[/bold]\n" + "c" * 90 + "\n",
        "app/unsafe.py",
        (80, 16),
    ),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, tmp_path: Path, snap_compare: Callable[..., bool]) -> None:
    old, new, target, size = PICTURES[name]
    assert snap_compare(Stage(edit_of(tmp_path, old, new, target), Clock()), terminal_size=size)
