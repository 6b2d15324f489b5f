"""The meter: what the speculation is worth right now, in three lines or in one.

Owns which numbers are shown at which width and in which order they give way; the numbers are those
of `MeterState`, their looks those of `meter_pieces`. It must not know events, the engine or a
clock: it draws what it is shown, when it is shown something new.

Invariant: at any width from 40 columns on every line fits, and the mode word and the speed are
whole.
"""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from tui import gauges, meter_pieces
from tui.meter_pieces import ACCENT, QUIET, VALUE, Line, cells, content, ends, joined, mode_line
from tui.meter_state import MeterState
from tui.mode_word import ModeWord, load_share, mode_word

NARROW_BELOW = 60
"""Columns of the terminal under which the meter has one line."""
SHORT_BELOW = 16
"""Rows of the terminal under which the meter has one line."""
SPLIT_BELOW = 76
"""Columns of a line under which mode and speed don't share the first one."""
LINES = 3

_CONTEXTS = ((24, True), (16, True), (16, False), (10, False), (8, False))
"""Columns of the context's gauge and whether the threshold is told in words, richest first."""
_PACKINGS = ((True, "  ", 5), (True, " ", 4), (False, "  ", 4), (False, " ", 1))
"""Ways to pack the one-line meter, best first: units written out, the gap, fewest numbers."""


def meter_lines(state: MeterState, width: int, lines: int = LINES) -> list[Content]:
    """The meter's `lines` (1 or `LINES`) lines, none wider than `width` columns."""
    if lines == 1:
        return [_one_line(state, width)]
    if not state.rounds:
        return _idle_lines(state, width)
    mode = mode_word(state)
    alphas = [meter_pieces.alpha(state, bare=bare) for bare in (False, True)]
    speeds = [meter_pieces.speed(state, bare=bare) for bare in (False, True)]
    contexts = [meter_pieces.context(state, columns, threshold=told) for columns, told in _CONTEXTS]
    if width < SPLIT_BELOW:
        memories = [meter_pieces.memory(state, bare=bare) for bare in (False, True)]
        uppers = [joined((speed, alphas[1])) for speed in speeds]
        lowers = [joined((context, memory), "  ") for context in contexts for memory in memories]
        return [content(mode_line(mode), width), *_beside_rounds(state, uppers, lowers, width)]
    room = width - len(mode.text) - len(meter_pieces.GAP)
    speed = next((speed for speed in speeds if cells(speed) <= room), speeds[-1])
    uppers = [joined((alpha, meter_pieces.memory(state))) for alpha in alphas]
    first = ends(mode_line(mode), speed, width)
    return [first, *_beside_rounds(state, uppers, contexts, width)]


def _beside_rounds(
    state: MeterState, uppers: list[Line], lowers: list[Line], width: int
) -> list[Content]:
    """The richest of the two lines that leave room for the last rounds at their right."""
    for legend in (True, False):
        for upper in uppers:
            for lower in lowers:
                left = max(cells(upper), cells(lower)) + 2
                block = meter_pieces.last_rounds(state, width - left, legend=legend)
                if block is not None:
                    pairs = zip((upper, lower), block, strict=True)
                    return [_at_column(start, left, end) for start, end in pairs]
    return [content(uppers[-1], width), content(lowers[-1], width)]


def _at_column(start: Line, column: int, end: Line) -> Content:
    return content((*start, (" " * (column - cells(start)), ""), *end))


def _idle_lines(state: MeterState, width: int) -> list[Content]:
    """Before the first round: the engine itself, and the load or the context as a gauge."""
    share = load_share(state.status)
    if share is None:
        contexts = [
            meter_pieces.context(state, columns, threshold=told) for columns, told in _CONTEXTS
        ]
        last = next((line for line in contexts if cells(line) <= width), contexts[-1])
    else:
        last = ((gauges.gauge(share, width), ACCENT),)
    return [
        ends(mode_line(mode_word(state)), meter_pieces.memory(state), width),
        ends(meter_pieces.engine(state), meter_pieces.plain_speed(state), width),
        content(last, width),
    ]


def _one_line(state: MeterState, width: int) -> Content:
    mode = mode_word(state)
    if not state.rounds or state.phase in ("queued", "paused"):
        return content(mode_line(mode), width)
    if mode.word != "speculating":
        return _word_and_numbers(state, mode, width)
    word = mode_line(mode)[:1]
    if mode.pin:
        # That there is drafting at all, a pinned route or k says too.
        word = ((mode.pin, ACCENT),)
    for full, gap, fewest in _PACKINGS:
        numbers = _numbers(state, full=full)
        for count in range(len(numbers), fewest - 1, -1):
            line = joined((word, *numbers[:count]), gap)
            if cells(line) <= width:
                return content(line)
    return content(word, width)


def _word_and_numbers(state: MeterState, mode: ModeWord, width: int) -> Content:
    """The mode's reason, and at the right end what numbers it leaves room for: at least one."""
    tails = [
        joined(_numbers(state, full=full)[:count], " ")
        for count in (5, 4, 3, 2, 1)
        for full in (True, False)
    ]
    room = width - len(mode.text) - 1
    tail = next((tail for tail in tails if cells(tail) <= room), tails[-1])
    return ends(mode_line(mode), tail, width, gap=1)


def _numbers(state: MeterState, *, full: bool) -> list[Line]:
    """Speed, × plain, α, k and context for the one-line meter, the most wanted first."""
    times = meter_pieces.times_plain(state)
    short_times: Line = ((f"{gauges.decimal(state.times_plain, 2)}×", VALUE),)
    numbers: list[Line] = [
        ((gauges.speed(state.answer.tokens_per_s), VALUE),),
        times if full else short_times,
        (("α ", QUIET), (gauges.decimal(state.acceptance, 2), VALUE)),
        (("k ", QUIET), (str(state.rounds[-1].drafted), VALUE)),
    ]
    limit = meter_pieces.limit_of(state)
    if limit:
        used = gauges.percent(state.context_tokens / limit)
        numbers.append((("context " if full else "ctx ", QUIET), (used, VALUE)))
    return numbers


class Meter(Widget):
    """Draws `meter_lines` of the state it was last shown; one line on a small terminal."""

    DEFAULT_CSS = """
    Meter {
        width: 1fr;
        height: auto;
        background: $panel;
        color: $foreground;
    }
    """

    def __init__(self, state: MeterState | None = None) -> None:
        super().__init__()
        self._state = state or MeterState()

    def show(self, state: MeterState) -> None:
        """Draw another state."""
        if state != self._state:
            self._state = state
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One line or three, by the terminal's size and never by what is shown."""
        small = viewport.width < NARROW_BELOW or viewport.height < SHORT_BELOW
        return 1 if small else LINES

    def render(self) -> Content:
        size = self.content_size
        if size.height < LINES:
            return meter_lines(self._state, size.width, 1)[0]
        # A narrow terminal has no column to spare for a margin.
        lines = meter_lines(self._state, size.width - 2)
        return Content("\n").join(line.pad_left(1) for line in lines)
