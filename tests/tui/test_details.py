"""What the details panel says, that its figures add up, and how it looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from engine.protocol import Event, RoundDone, Started
from tests.fakes import round_of
from tests.tui.editor_counts import COUNTED
from tests.tui.meter_streams import (
    engine_of,
    folded,
    plain_with_reason,
    played_rounds,
    speculating,
    speculating_events,
    streams,
)
from tui.details import SIDE_BY_SIDE_FROM, Details, details_lines
from tui.editor_statistics import EditorStatistics
from tui.meter_state import MeterState, begin
from tui.round_chart import ROWS, chart, split_ms


def lines_of(state: MeterState, width: int = 78) -> list[str]:
    return [line.plain for line in details_lines(state, width)]


def section(state: MeterState, heading: str, width: int = 78) -> list[str]:
    lines = lines_of(state, width)
    start = next(at for at, line in enumerate(lines) if line.startswith(heading))
    rest = [*lines[start:], ""]
    return rest[: rest.index("")]


def test_acceptance_is_told_by_position() -> None:
    rounds = [round_of(drafted=3, accepted=kept) for kept in (3, 1, 0, 1)]
    heading, *rows = section(folded(list(rounds)), "acceptance by position")
    assert "accepted of tested" in heading
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert rows[0].endswith("75 %  3 of 4")
    assert rows[1].endswith("33 %  1 of 3")
    assert rows[2].endswith("100 %  1 of 1")


def test_positions_beyond_the_table_are_summed() -> None:
    rows = section(folded([round_of(drafted=16, accepted=14)]), "acceptance by position")
    assert len(rows) == 14
    assert rows[-1].strip() == "later ones: 2 of 3"


def test_decisions_tell_rounds_route_k_and_reason_newest_first() -> None:
    rounds = [
        round_of(drafted=4, accepted=1, reason="copy: α 0.81, k 4"),
        round_of(drafted=4, accepted=2, reason="copy: α 0.81, k 4"),
        round_of(drafted=0, accepted=0, reason="nothing to copy"),
    ]
    _, newest, older = section(folded(list(rounds)), "decisions")
    assert newest.split() == ["3", "·", "plain", "k", "0", "nothing", "to", "copy"]
    assert older.split() == ["1–2", "C", "copy", "k", "4", "copy:", "α", "0.81,", "k", "4"]


def test_decisions_stand_in_columns_whatever_their_route_is_called() -> None:
    rounds = [
        replace(round_of(drafted=4, accepted=1, reason=route), route=route)
        for route in ("copy", "low_precision", "exit_head")
    ]
    _, *rows = section(folded(list(rounds)), "decisions")
    assert len({row.index("k 4") for row in rows}) == 1


def test_totals_stand_beside_those_of_the_session() -> None:
    state = folded(
        [Started(prompt_tokens=50, cached_tokens=9), round_of(drafted=4, accepted=3, ms=40.0)],
        begin(speculating()),
    )
    rows = {row.rsplit(None, 2)[0]: row.split()[-2:] for row in section(state, "totals")[1:]}
    one, all_of_them = state.answer, state.session
    for name, label in (
        ("rounds", "rounds"),
        ("drafted", "tokens drafted"),
        ("tested", "tokens tested"),
        ("accepted", "tokens accepted"),
        ("output_tokens", "output tokens"),
        ("prompt_tokens", "prompt tokens"),
    ):
        shown = [f"{getattr(one, name):,}", f"{getattr(all_of_them, name):,}"]
        assert rows[label] == shown
    assert rows["answers"] == ["1", "2"]
    assert rows["α, of tested"] == [f"{one.acceptance:.2f}", f"{all_of_them.acceptance:.2f}"]
    assert rows["paused"] == ["never", "never"]


def test_what_was_not_measured_is_a_dash() -> None:
    rows = section(begin(MeterState()), "totals")
    assert [row.split()[-2:] for row in rows[1:5]] == [["–", "–"]] * 4


def test_sections_without_data_say_so_and_the_unknown_engine_is_left_out() -> None:
    lines = lines_of(MeterState())
    assert "no draft was tested yet" in lines
    assert "no round yet" in lines
    assert "none yet" in lines
    assert "engine" not in lines


def test_the_engine_tells_what_it_holds() -> None:
    rows = section(engine_of(evictions=1), "engine")
    assert rows[1:] == [
        "model      qwen2.5-coder-1.5b-instruct, nf4, cpu",
        "exactness  greedy text is that of plain decoding, bit by bit",
        "memory     1.23 GiB (weights 900 MiB, cache 190 MiB)",
        "context    16,384 tokens, plain from 9,000",
        "kept       2 conversations, 3,812 tokens; 1 pushed out",
    ]


def test_what_was_done_differently_is_noted() -> None:
    state = folded(
        [Started(prompt_tokens=9, cached_tokens=0, notice="the context is\n4,096 tokens")],
        begin(engine_of(exact=False)),
    )
    rows = section(state, "engine")
    assert rows[-1] == "note       the context is 4,096 tokens"
    assert "exactness  the same law" in rows


@given(rounds=st.lists(played_rounds(), min_size=1, max_size=40), width=st.integers(30, 90))
def test_the_columns_of_the_chart_are_as_high_as_the_rounds_were_long(
    rounds: list[RoundDone], width: int
) -> None:
    lines = ["".join(text for text, _ in line) for line in chart(rounds, width)]
    rows = [line for line in lines if "▏" in line]
    assert len(rows) == ROWS
    top_ms = float(rows[0].split()[0])
    shown = rounds[-(width - 8) :]
    assert all(len(row) == 8 + len(shown) for row in rows)
    for at, done in enumerate(shown):
        column = [row[8 + at] for row in reversed(rows)]
        verify, draft, other = split_ms(done)
        cell = top_ms / ROWS
        for glyph, part in (("█", verify), ("▒", draft), ("░", other)):
            assert abs(column.count(glyph) - part / cell) <= 1
        assert abs(ROWS - column.count(" ") - done.round_ms / cell) <= 0.5 + 1e-6
        assert (
            "".join(column).rstrip()
            == "".join(sorted(column, key=" ░▒█".index, reverse=True)).rstrip()
        )


def test_the_means_of_the_chart_add_up() -> None:
    state = speculating()
    lines = ["".join(text for text, _ in line) for line in chart(state.rounds, 78)]
    assert lines[0] == "time of each round  the last 32 rounds, a column each"
    numbers = [float(word) for word in lines[1].split() if word[0].isdigit()]
    assert sum(numbers[:3]) == pytest.approx(numbers[3], abs=0.15)
    assert numbers[3] == pytest.approx(sum(one.round_ms for one in state.rounds) / 32, abs=0.05)


@settings(max_examples=80)
@given(stream=streams(), cut=st.integers(0, 99), width=st.integers(36, 180), known=st.booleans())
def test_every_line_fits(stream: list[Event], cut: int, width: int, known: bool) -> None:
    state = folded(stream[:cut], begin(engine_of() if known else MeterState()))
    lines = details_lines(state, width)
    assert all(line.cell_length <= width for line in lines)
    assert not any("…" in line.plain for line in lines)


def test_completions_in_editors_are_told_where_there_are_any() -> None:
    state = speculating()
    plain = [line.plain.rstrip() for line in details_lines(state, 78)]
    assert [line.plain.rstrip() for line in details_lines(state, 78, EditorStatistics())] == plain
    told = [line.plain.rstrip() for line in details_lines(state, 78, COUNTED)]
    assert told[: len(plain)] == plain
    assert told[len(plain) + 1] == "completions in editors  so far"
    assert told[len(plain) + 2].startswith("accepted   45 % of 400 seen, 150 whole, 30 in part,")
    assert all(line.cell_length <= 78 for line in details_lines(state, 78, COUNTED))


class Stage(App[None]):
    """The panel alone."""

    CSS = "Details { max-height: 100%; }"

    def __init__(self, state: MeterState) -> None:
        super().__init__()
        self.state = state

    def compose(self) -> ComposeResult:
        yield Details(self.state)


SECOND = folded(speculating_events(34), begin(folded(speculating_events(57), begin(engine_of()))))
PICTURES = {
    "wide": (SECOND, (120, 36)),
    "80_columns": (plain_with_reason(), (80, 64)),
    "40_columns": (SECOND, (40, 75)),
    "nothing_yet": (MeterState(), (80, 34)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, snap_compare: Callable[..., bool]) -> None:
    state, size = PICTURES[name]
    assert snap_compare(Stage(state), terminal_size=size)


def test_picture_with_completions(snap_compare: Callable[..., bool]) -> None:
    stage = Stage(SECOND)

    async def show(pilot: Pilot[None]) -> None:
        pilot.app.query_one(Details).show_editor(COUNTED)
        await pilot.pause()

    assert snap_compare(stage, terminal_size=(120, 44), run_before=show)


def test_it_grows_with_what_it_is_shown_and_scrolls() -> None:
    async def run() -> None:
        app = Stage(MeterState())
        async with app.run_test(size=(SIDE_BY_SIDE_FROM + 2, 20)) as pilot:
            details = app.query_one(Details)
            small = details.virtual_size.height
            details.show(speculating())
            await pilot.pause()
            assert details.virtual_size.height > max(small, 20)
            details.focus()
            await pilot.press("end")
            await pilot.pause()
            assert details.scroll_offset.y > 0

    asyncio.run(run())


def test_a_hidden_panel_shows_the_latest_when_it_comes_back() -> None:
    async def run() -> None:
        app = Stage(MeterState())
        async with app.run_test(size=(80, 70)) as pilot:
            details = app.query_one(Details)
            details.display = False
            await pilot.pause()
            details.show(speculating())
            details.display = True
            await pilot.pause()
            shown = "\n".join(
                "".join(segment.text for segment in strip)
                for strip in app.screen._compositor.render_strips()
            )
            assert "layer_skip: α 0.62, k 3" in shown
            assert "context    16,384 tokens" in shown

    asyncio.run(run())
