"""What the meter says, that it fits, and how it looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.widgets import Static

from engine.protocol import (
    Event,
    Failed,
    LoadProgress,
    Paused,
    Queued,
    Resumed,
    Route,
    RouteChoice,
    Started,
    Steering,
)
from tests.fakes import answer_script, round_of
from tests.tui.meter_streams import (
    engine_of,
    folded,
    plain_with_reason,
    speculating,
    streams,
)
from tui import gauges, meter_pieces
from tui.meter import LINES, Meter, meter_lines
from tui.meter_pieces import cells
from tui.meter_state import MeterState, begin, leave, observe, with_steering
from tui.mode_word import mode_word

LOADING = engine_of(
    state="loading",
    load=LoadProgress(stage="reading", done=620 << 20, total=1000 << 20),
    plain_tokens_per_s=None,
)
PAUSED = observe(speculating(), Paused(by="editor"))
FAILURE = Failed(code="oom", message="the cache takes 3 GiB, 1 GiB is free", hint="Use less.")


def text_of(state: MeterState, width: int, lines: int = LINES) -> str:
    return "\n".join(line.plain for line in meter_lines(state, width, lines))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (MeterState(), "starting"),
        (engine_of(), "ready"),
        (engine_of(notice="the context is 8,192 tokens"), "ready: the context is 8,192 tokens"),
        (engine_of(state="asleep"), "asleep: the next message wakes it"),
        (begin(engine_of(state="asleep")), "waking: the model is loaded first"),
        (begin(engine_of()), "asking: the engine has not begun yet"),
        (LOADING, "loading 62 %: reading, 620 MiB of 1000 MiB"),
        (engine_of(state="loading", load=LoadProgress(stage="warming up", total=1)),
         "loading: warming up"),
        (engine_of(state="loading"), "loading"),
        (engine_of(state="failed", failure=FAILURE),
         "failed: the cache takes 3 GiB, 1 GiB is free. Use less."),
        (folded([FAILURE], begin(engine_of())),
         "failed: the cache takes 3 GiB, 1 GiB is free. Use less."),
        (folded([Queued(ahead=2)]), "queued: 2 ahead"),
        (folded([Queued(ahead=0)]), "queued: next in line"),
        (folded([Started(prompt_tokens=1200, cached_tokens=200, evicted_tokens=90)]),
         "reading: 1,000 tokens of the prompt, 200 kept, 90 were pushed out since"),
        (speculating(), "speculating: copy"),
        (plain_with_reason(), "plain: context 6.2k, copy drafts would cost 8 %"),
        (PAUSED, "paused for editor"),
        (observe(PAUSED, Resumed(paused_ms=180.4)), "paused 180 ms for editor"),
        (leave(speculating()), "ready: the answer was stopped"),
        (folded(answer_script("a", reason="length"), begin(engine_of())),
         "ready: the answer was cut at the token limit"),
        (folded(answer_script("a"), begin(engine_of())), "ready"),
    ],
)  # fmt: skip
def test_the_mode_is_a_word_with_its_reason(state: MeterState, said: str) -> None:
    assert mode_word(state).text == said
    assert text_of(state, 118).startswith(said)


def test_a_pause_is_remembered_after_it() -> None:
    resumed = observe(PAUSED, Resumed(paused_ms=180.4))
    plain = round_of(drafted=0, accepted=0, reason="nothing to copy")
    again = observe(resumed, plain)
    assert mode_word(again).text == "plain: nothing to copy (paused 180 ms for editor)"
    twice = folded([Paused(by="editor"), Resumed(paused_ms=20.0), plain], again)
    assert mode_word(twice).text == "plain: nothing to copy (paused 2 × 200 ms for editor)"


def test_a_forced_route_says_so() -> None:
    state = folded([round_of(drafted=3, accepted=1, reason="k is pinned")])
    assert mode_word(state).text == "speculating: copy, k is pinned"


@pytest.mark.parametrize(
    ("route", "k", "said"),
    [
        ("copy", 3, "copy ⏐ k 3 pinned"),
        ("low_precision", None, "low_precision pinned"),
        ("auto", 8, "k 8 pinned"),
        ("auto", None, ""),
    ],
)
def test_what_is_pinned_is_said_as_long_as_it_is(
    route: RouteChoice, k: int | None, said: str
) -> None:
    steering = Steering(route=route, k=k)
    for state in (engine_of(), begin(engine_of()), speculating(), leave(speculating()), LOADING):
        pinned = with_steering(state, steering)
        for width, lines in ((118, LINES), (78, LINES), (58, 1), (40, 1)):
            shown = text_of(pinned, width, lines)
            assert said in shown
            assert ("pinned" in shown) == bool(said)
        assert begin(pinned).steering == steering


def test_a_pinned_route_is_told_once() -> None:
    reason = "k 3 on copy, pinned by the user"
    state = folded([round_of(drafted=3, accepted=1, reason=reason)])
    assert mode_word(with_steering(state, Steering(route="copy", k=3))).text == (
        "speculating · copy ⏐ k 3 pinned"
    )


def test_every_route_has_a_glyph_of_its_own() -> None:
    glyphs = [gauges.route_glyph(route) for route in get_args(Route)]
    assert "".join(glyphs) == "·CLHQ"


def test_a_foreign_reason_obeys_nothing_and_keeps_to_its_line() -> None:
    state = folded([round_of(drafted=0, accepted=0, reason="[b]x[/b]\n\x1b[2Jy")])
    assert mode_word(state).text == "plain: [b]x[/b] ␛[2Jy"
    assert text_of(state, 78).count("\n") == LINES - 1


def test_every_number_of_the_issue_is_there_at_80_columns() -> None:
    shown = text_of(speculating(), 78)
    state = speculating()
    assert f"{state.answer.tokens_per_s:.1f} tok/s" in shown
    assert f"{state.times_plain:.2f} × plain" in shown
    assert f"α {state.acceptance:.2f} " in shown
    assert f"k {state.rounds[-1].drafted}" in shown
    assert "C copy  L layer_skip  · plain" in shown
    assert "context 3,280/16,384" in shown
    assert gauges.MARK in shown
    assert "memory 1.23 GiB" in shown


def test_routes_and_ks_of_the_last_rounds_stand_in_the_same_columns() -> None:
    state = speculating()
    _, upper, lower = (line.plain for line in meter_lines(state, 118))
    expected = "".join(gauges.route_glyph(one.route) for one in state.rounds)
    lengths = "".join(gauges.k_glyph(one.drafted) for one in state.rounds)
    shown = upper.rsplit("  ", 1)[1]
    assert len(shown) >= 16
    assert expected.endswith(shown)
    assert lower.endswith(lengths[-len(shown) :])
    assert len(upper) == len(lower)


def test_what_was_not_measured_is_a_dash() -> None:
    state = folded(answer_script("a b", plain_tokens_per_s=None))
    assert "– × plain" in text_of(state, 78)
    assert "α – no draft yet" in text_of(state, 78)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (40, "speculating 94.3 tok/s 2.86× α 0.88 k 4"),
        (50, "speculating 94.3 tok/s 2.86 × plain α 0.88 k 4"),
        (59, "speculating 94.3 tok/s 2.86 × plain α 0.88 k 4 context 20 %"),
    ],
)
def test_one_line_keeps_the_most_wanted_numbers(width: int, said: str) -> None:
    assert text_of(speculating(), width, 1) == said


def test_one_line_keeps_reason_and_speed() -> None:
    line = text_of(plain_with_reason(), 40, 1)
    assert line.startswith("plain: context 6.2k, copy d")
    assert line.endswith(" tok/s")
    assert len(line) == 40
    assert "would cost 8 %" in text_of(plain_with_reason(), 59, 1)


def test_a_k_of_two_digits_stands_over_its_round_and_fits() -> None:
    rounds = [round_of(drafted=k, accepted=k - 1) for k in (4, 6, 8, 9, 10, 12)]
    state = folded([Started(prompt_tokens=9, cached_tokens=0), *rounds], begin(engine_of()))
    routes, ks = meter_pieces.last_rounds(state, 11, legend=False) or ((), ())
    assert cells(routes) == cells(ks) == 11
    assert "".join(text for text, _ in ks) == "k 12  689++"


@settings(max_examples=150)
@given(
    stream=streams(),
    cut=st.integers(0, 99),
    width=st.integers(40, 160),
    known=st.booleans(),
    pinned=st.sampled_from([Steering(), Steering(route="low_precision", k=32), Steering(k=8)]),
)
def test_every_line_fits_and_says_the_word(
    stream: list[Event], cut: int, width: int, known: bool, pinned: Steering
) -> None:
    engine = with_steering(engine_of() if known else MeterState(), pinned)
    state = folded(stream[:cut], begin(engine))
    for lines in (1, LINES):
        if lines == LINES and width < 58:
            continue
        shown = meter_lines(state, width, lines)
        assert len(shown) == lines
        assert all(line.cell_length <= width for line in shown)
        mode = mode_word(state)
        assert shown[0].plain.startswith((mode.word, *([mode.pin] if mode.pin else [])))
        if state.rounds and state.phase in ("decoding", "over"):
            speed = gauges.speed(state.answer.tokens_per_s)
            assert any(speed in line.plain for line in shown)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (gauges.gauge(0.0, 8), "░░░░░░░░"),
        (gauges.gauge(0.001, 8), "█░░░░░░░"),
        (gauges.gauge(0.999, 8), "███████░"),
        (gauges.gauge(1.0, 8), "████████"),
        (gauges.gauge(0.5, 8, 0.75), "████░░┃░"),
        (gauges.gauge(0.5, 8, 0.25), "██┃█░░░░"),
        (gauges.gauge(0.5, 8, 1.0), "████░░░░"),
        (gauges.bar(0.5, 4), "██  "),
        (gauges.bar(0.0001, 2), "▏ "),
        (gauges.bar(1.0, 3), "███"),
        (gauges.sparkline([0.0, 0.5, 1.0]), "▁▅█"),
        (gauges.percent(0.999), "99 %"),
        (gauges.percent(1.0), "100 %"),
        (gauges.percent(None), "– %"),
        (gauges.duration(180.4), "180 ms"),
        (gauges.duration(1340), "1.3 s"),
        (gauges.duration(125_000), "2 min 5 s"),
        (gauges.thousands(820), "820"),
        (gauges.thousands(6212), "6.2k"),
        (gauges.size(620 << 20), "620 MiB"),
        (gauges.size(1_320_000_000), "1.23 GiB"),
        (gauges.speed(None), "– tok/s"),
        (gauges.speed(41.24), "41.2 tok/s"),
        (gauges.k_glyph(0) + gauges.k_glyph(9) + gauges.k_glyph(12), "·9+"),
    ],
)
def test_a_number_looks_the_same_everywhere(shown: str, expected: str) -> None:
    assert shown == expected


@given(verdicts=st.lists(st.booleans(), min_size=1, max_size=64), before=st.integers(0, 100))
def test_sparkline_columns_keep_their_place(verdicts: list[bool], before: int) -> None:
    total = before * 8 + len(verdicts)
    shares = gauges.shares_of(verdicts, total, 8)
    whole = len(verdicts) // 8
    expected = [sum(verdicts[at : at + 8]) / 8 for at in range(0, whole * 8, 8)]
    assert shares == (expected or [sum(verdicts) / len(verdicts)])


def test_a_full_window_always_has_as_many_columns() -> None:
    verdicts = [at % 3 > 0 for at in range(200)]
    for total in range(64, 200):
        shares = gauges.shares_of(verdicts[total - 64 : total], total, 8)
        assert len(shares) == 8
        # All but the oldest are whole, and the same as when they were first shown.
        last = total // 8 * 8
        whole = [sum(verdicts[at : at + 8]) / 8 for at in range(last - 56, last, 8)]
        assert shares[1:] == whole


class Stage(App[None]):
    """The meter under some text, as the chat has it."""

    CSS = "Static { height: 1fr; }"

    def __init__(self, state: MeterState) -> None:
        super().__init__()
        self.state = state

    def compose(self) -> ComposeResult:
        yield Static("the transcript")
        meter = Meter(self.state)
        meter.styles.dock = "bottom"
        yield meter


PICTURES = {
    "speculating": (speculating(), (120, 18)),
    "speculating_80": (speculating(), (80, 18)),
    "plain": (plain_with_reason(), (80, 18)),
    "paused": (PAUSED, (80, 18)),
    "resumed_60": (observe(PAUSED, Resumed(paused_ms=180.4)), (60, 18)),
    "loading": (LOADING, (80, 18)),
    "failed": (engine_of(state="failed", failure=FAILURE), (80, 18)),
    "beyond_threshold": (
        observe(speculating(), round_of(drafted=0, accepted=0, context=12_400, reason="context")),
        (100, 18),
    ),
    "narrow_speculating": (speculating(), (40, 12)),
    "narrow_plain": (plain_with_reason(), (40, 12)),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, snap_compare: Callable[..., bool]) -> None:
    state, size = PICTURES[name]
    assert snap_compare(Stage(state), terminal_size=size)


def test_small_terminals_get_one_line() -> None:
    async def heights() -> list[int]:
        seen = []
        for size in ((80, 24), (60, 16), (59, 24), (80, 15), (40, 12)):
            app = Stage(speculating())
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                seen.append(app.query_one(Meter).size.height)
        return seen

    assert asyncio.run(heights()) == [3, 3, 1, 1, 1]


def test_it_draws_what_it_is_shown_and_runs_no_timer() -> None:
    async def run() -> None:
        app = Stage(engine_of())
        async with app.run_test(size=(80, 24)) as pilot:
            meter = app.query_one(Meter)
            assert "ready" in str(meter.render())
            meter.show(speculating())
            await pilot.pause()
            assert "speculating: copy" in str(meter.render())
            await pilot.resize_terminal(40, 12)
            await pilot.pause()
            assert str(meter.render()).count("\n") == 0
            assert not meter._timers

    asyncio.run(run())
