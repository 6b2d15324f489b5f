"""An answer on the screen: exact, the same however it came, and as cheap at its end as at first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot

from engine.protocol import TextDelta
from tests.tui.answers import DOCUMENT, Stage, deltas, on_stage, settle
from tui.answer_view import AnswerView
from tui.code_view import CodeView
from tui.line_pane import LinePane
from tui.provenance import Provenance
from tui.provenance_view import ProvenanceView


def rows_of(view: AnswerView) -> list[list[tuple[str, str, tuple[object, ...]]]]:
    return [
        [(row.first, row.body.plain, tuple(row.body.spans)) for row in pane.rows]
        for kind in ("AnswerView > ProsePane", "CodeView", "ProvenanceView > LinePane")
        for pane in view.query(kind).results(LinePane)
    ]


def marked_of(view: AnswerView) -> LinePane:
    return view.query_one(ProvenanceView).pane


async def answer(stage: Stage, text: str = "", kinds: bytes = b"") -> AnswerView:
    return await stage.transcript.begin_answer(len(stage.transcript.entries) + 1, text, kinds)


@pytest.mark.parametrize("provenance", [False, True])
@settings(max_examples=6, deadline=None)
@given(words=st.integers(1, 40), characters=st.integers(1, 9), extra=st.text(max_size=30))
def test_streamed_is_shown_as_if_it_had_come_at_once(
    words: int, characters: int, extra: str, provenance: bool
) -> None:
    text = DOCUMENT + extra

    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.set_provenance(provenance)
        streamed = await answer(stage)
        for delta in deltas(text, words, characters):
            await streamed.append(delta)
        await streamed.finish(text)
        at_once = await answer(stage, text, streamed.kinds)
        await at_once.finish(text)
        await settle(stage, pilot)
        assert streamed.source == at_once.source == text
        assert rows_of(streamed) == rows_of(at_once)
        assert streamed.kinds == at_once.kinds

    on_stage(play)


def test_deltas_that_told_another_text_are_put_right() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.set_provenance(True)
        short, wrong = await answer(stage), await answer(stage)
        for view in (short, wrong):
            await view.append(TextDelta(text="one ", kinds=("plain",), spans=(4,)))
        await short.finish("one two")
        await wrong.finish("# other\n\n```\nx\n```\n")
        await settle(stage, pilot)
        assert (short.source, wrong.source) == ("one two", "# other\n\n```\nx\n```\n")
        assert Provenance.decode(short.kinds).counts.total() == 1
        assert Provenance.decode(wrong.kinds).length == len(wrong.source)
        assert [row.raw for row in marked_of(wrong).rows if row.raw] == [
            "# other", "```", "x", "```",
        ]  # fmt: skip
        await stage.transcript.set_provenance(False)
        await settle(stage, pilot)
        assert rows_of(wrong)[0][0][1] == "other"
        assert rows_of(wrong)[1][1][1] == "x"

    on_stage(play)


LONG = {
    "fence": ("```python\n", "def f(x): return x + 1\n"),
    "no language": ("```\n", "def f(x): return x + 1\n"),
    "list": ("", "- item with **bold** and `code`\n"),
    "table": ("| a | b |\n|---|---|\n", "| **x** | some text |\n"),
    "paragraphs": ("", "A paragraph of *text*.\n\n"),
}


@pytest.mark.parametrize("provenance", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_work_for_an_update_does_not_grow(name: str, provenance: bool) -> None:
    """2,000 lines are there already; what one more line costs is counted in characters."""
    head, line = LONG[name]

    async def cost(lines: int) -> int:
        costs: list[int] = []

        async def play(stage: Stage, pilot: Pilot[None]) -> None:
            await stage.transcript.set_provenance(provenance)
            view = await answer(stage)
            spans = (len(head), *(len(line) for _ in range(lines)))
            await view.append(
                TextDelta(text=head + line * lines, kinds=("plain",) * len(spans), spans=spans)
            )
            await pilot.pause()
            for _ in range(5):
                before = view.work
                await view.append(TextDelta(text=line, kinds=("bonus",), spans=(len(line),)))
                await pilot.pause()
                costs.append(view.work - before)

        stage = Stage()
        async with stage.run_test(size=(80, 30)) as pilot:
            await play(stage, pilot)
        return max(costs)

    few, many = asyncio.run(cost(100)), asyncio.run(cost(2000))
    assert many <= 1.5 * few + 100
    assert many <= 6000


def test_a_long_block_is_coloured_whole_when_it_is_closed() -> None:
    line = "def f(x): return x + 1\n"

    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await answer(stage)
        text = "```python\n" + line * 2000
        await view.append(TextDelta(text=text, kinds=(), spans=()))
        code = view.query_one(CodeView)
        assert not code.code[100].body.spans
        before = code.highlighted
        await view.append(TextDelta(text="```\n", kinds=(), spans=()))
        await settle(stage, pilot)
        assert all(row.body.spans for row in code.code)
        assert code.highlighted - before == len(line) * 2000 - 2000
        await view.finish()
        await settle(stage, pilot)
        assert code.highlighted - before == len(line) * 2000 - 2000

    on_stage(play)


def test_only_what_is_on_the_screen_has_widgets() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await answer(stage, "".join(f"- item {number}\n" for number in range(5000)))
        await view.finish()
        await settle(stage, pilot)
        assert len(list(view.walk_children())) <= 3
        assert view.query_one(LinePane).outer_size.height == 5000

    on_stage(play)


def test_reading_provenance_changes_nothing_else() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await answer(stage)
        for delta in deltas(DOCUMENT):
            await view.append(delta)
        await view.finish(DOCUMENT)
        await settle(stage, pilot)
        before = stage.lines()
        await stage.transcript.set_provenance(True)
        await settle(stage, pilot)
        assert any("corrected" in line for line in stage.lines())
        assert any("# Adding a cache" in line for line in stage.lines())
        await stage.transcript.set_provenance(False)
        await settle(stage, pilot)
        assert stage.lines() == before
        assert view.source == DOCUMENT

    on_stage(play, size=(80, 60))


@pytest.mark.parametrize("provenance", [False, True])
def test_selected_code_is_copied_as_it_was_written(provenance: bool) -> None:
    code = "def f():\n\treturn '\x1b[0m'  # " + "long " * 60 + "\n\n\tpass"

    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        await stage.transcript.set_provenance(provenance)
        view = await answer(stage, f"```python\n{code}\n```\n")
        await view.finish()
        await settle(stage, pilot)
        pane = marked_of(view) if provenance else view.query_one(CodeView)
        pane.text_select_all()
        await pilot.pause()
        fenced = f"```python\n{code}\n```"
        assert stage.screen.get_selected_text() == (fenced if provenance else code)

    on_stage(play)


def test_a_part_is_selected_with_the_mouse() -> None:
    async def play(stage: Stage, pilot: Pilot[None]) -> None:
        view = await answer(stage, "```python\n\tx = 'abc'\n\ty = 2\n```\n")
        await view.finish()
        await settle(stage, pilot)
        lines = stage.lines()
        first = next(number for number, line in enumerate(lines) if "x = 'abc'" in line)
        start, end = lines[first].index("'abc'"), lines[first + 1].index("= 2")
        await pilot.mouse_down(offset=(start, first))
        await pilot.hover(offset=(end, first + 1))
        await pilot.mouse_up(offset=(end, first + 1))
        await pilot.pause()
        assert stage.screen.get_selected_text() == "'abc'\n\ty ="

    on_stage(play)


class Framed(App[None]):
    """An answer without a transcript around it."""

    def __init__(self, text: str, *, provenance: bool) -> None:
        super().__init__()
        self.view = AnswerView(text, _kinds(text), provenance=provenance)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield self.view

    async def on_mount(self) -> None:
        await self.view.finish()


def _kinds(text: str) -> bytes:
    record = Provenance()
    for delta in deltas(text):
        record.add(delta)
    return record.encode()


@pytest.mark.parametrize("size", [(80, 40), (40, 60)], ids=["wide", "narrow"])
@pytest.mark.parametrize("provenance", [False, True], ids=["markdown", "provenance"])
def test_picture(
    provenance: bool, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    assert snap_compare(Framed(DOCUMENT, provenance=provenance), terminal_size=size)
