"""Stretches of styled text that the meter and the details panel are laid out from.

Owns how each of the state's numbers is worded and styled, and the few operations on lines of such
stretches. It must not know which of them are shown where.

Invariant: a number never stands without its name or unit, and colour repeats only what the text
says already.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from tui import gauges
from tui.meter_state import MeterState
from tui.mode_word import ModeWord, Tone, one_line

GROUP = 8
"""Tested tokens that one column of the sparkline stands for."""
FEWEST_ROUNDS = 5
"""Rounds below which the last rounds are not worth their label."""
GAP = "   "

QUIET = "$foreground 70%"
VALUE = "bold $foreground"
GOOD, NOTICE, ACCENT = "$text-success", "$text-warning", "$text-primary"
TONES: dict[Tone, str] = {
    "good": f"bold {GOOD}",
    "notice": f"bold {NOTICE}",
    "bad": "bold $text-error",
    "busy": f"bold {ACCENT}",
    "calm": VALUE,
}

Piece = tuple[str, str]
"""Text and its style."""
Line = tuple[Piece, ...]


def cells(line: Line) -> int:
    """Columns that a line takes."""
    return Content("".join(text for text, _ in line)).cell_length


def content(line: Iterable[Piece], width: int | None = None) -> Content:
    """A line to show, cut with `…` at `width` columns."""
    whole = Content.assemble(*line)
    return whole if width is None else whole.truncate(max(1, width), ellipsis=True)


def joined(lines: Iterable[Line], gap: str = GAP) -> Line:
    """Several in one; empty ones take no gap."""
    pieces: list[Piece] = []
    for line in filter(None, lines):
        pieces += [*([(gap, "")] if pieces else []), *line]
    return tuple(pieces)


def ends(left: Line, right: Line, width: int, gap: int = len(GAP)) -> Content:
    """`left` at the left end, cut if need be, and `right` whole at the right end."""
    if not right:
        return content(left, width)
    start = content(left, width - cells(right) - gap)
    return Content.assemble(start, " " * (width - start.cell_length - cells(right)), *right)


def mode_line(mode: ModeWord) -> Line:
    """The word, what is pinned, and the reason."""
    word: Line = ((mode.word, TONES[mode.tone]),)
    pin: Line = ((mode.pinned, ACCENT),) if mode.pin else ()
    return (*word, *pin, (mode.rest, "$foreground"))


def speed(state: MeterState, *, bare: bool = False) -> Line:
    """tok/s and × plain over the answer, and unless `bare` the speed of the moment."""
    line: Line = ((gauges.speed(state.answer.tokens_per_s), VALUE),)
    if state.phase == "decoding" and not bare:
        line = (*line, (" now ", QUIET), (gauges.decimal(state.recent_tokens_per_s, 1), VALUE))
    return joined((line, times_plain(state)))


def times_plain(state: MeterState) -> Line:
    """× plain over the answer."""
    return ((gauges.decimal(state.times_plain, 2), VALUE), (" × plain", QUIET))


def plain_speed(state: MeterState) -> Line:
    """The measured speed of plain decoding, if it was measured."""
    plain = state.plain_tokens_per_s
    return (("plain ", QUIET), (gauges.speed(plain), VALUE)) if plain else ()


def alpha(state: MeterState, *, bare: bool = False) -> Line:
    """α of the window with its sparkline, and unless `bare` the counts it comes from."""
    line: Line = (("α ", QUIET), (gauges.decimal(state.acceptance, 2), VALUE))
    if not state.window:
        return line if bare else (*line, (" no draft yet", QUIET))
    shares = gauges.shares_of(state.window, state.answer.tested, GROUP)
    line = (*line, (f" {gauges.sparkline(shares)}", GOOD))
    if bare:
        return line
    return (*line, (f" {sum(state.window)} of the last {len(state.window)} tested", QUIET))


def memory(state: MeterState, *, bare: bool = False) -> Line:
    """Memory of the engine's process, if it is known; `bare` shortens its name."""
    held = state.status.memory_bytes if state.status else 0
    return (("mem " if bare else "memory ", QUIET), (gauges.size(held), VALUE)) if held else ()


def engine(state: MeterState) -> Line:
    """The model and what it runs on."""
    status = state.status
    if status is None or not status.model:
        return ()
    kind = " on ".join(one_line(part) for part in (status.quant, status.device) if part)
    model: Line = (("model ", QUIET), (one_line(status.model), VALUE))
    return (*model, (f", {kind}", QUIET)) if kind else model


def limit_of(state: MeterState) -> int:
    """Tokens that the context can hold; 0 if not known."""
    return state.status.context_limit if state.status else 0


def context(state: MeterState, columns: int, *, threshold: bool) -> Line:
    """Tokens used and their limit, with a gauge of `columns`; on it the length from which drafts
    don't pay, said in words too if `threshold`."""
    used, limit = state.context_tokens, limit_of(state)
    if not limit:
        return (("context ", QUIET), (f"{used:,}", VALUE), (" tokens", QUIET)) if used else ()
    mark = state.status.fallback_tokens if state.status else None
    beyond = mark is not None and used >= mark
    gauge = gauges.gauge(used / limit, columns, None if mark is None else mark / limit)
    line: Line = (
        ("context ", QUIET),
        (f"{used:,}", VALUE),
        (f"/{limit:,} ", QUIET),
        *((part, _gauge_style(part, beyond)) for part in gauge),
    )
    if mark is None or mark >= limit or not threshold:
        return line
    return (*line, (f" {gauges.MARK} plain from {gauges.thousands(mark)}", QUIET))


def _gauge_style(part: str, beyond: bool) -> str:
    if part == gauges.MARK:
        return f"bold {NOTICE}"
    if part == gauges.EMPTY:
        return QUIET
    return NOTICE if beyond else ACCENT


def last_rounds(state: MeterState, room: int, *, legend: bool) -> tuple[Line, Line] | None:
    """Routes and ks of as many of the last rounds as fit `room` columns; None if too few do.

    A column is a round in both lines. The label tells the glyphs of the routes that were taken, or
    is only a word.
    """
    k = str(state.rounds[-1].drafted)
    # One of two digits takes more room than the shortest label.
    label = (route_legend(state) if legend else "via").ljust(len("k ") + len(k))
    columns = min(len(state.rounds), room - len(label) - 2)
    if columns < min(FEWEST_ROUNDS, len(state.rounds)):
        return None
    last = state.rounds[-columns:]
    k = k.ljust(len(label) - len("k "))
    routes = "".join(gauges.route_glyph(one.route) for one in last)
    lengths = "".join(gauges.k_glyph(one.drafted) for one in last)
    return (
        ((f"{label}  ", QUIET), (routes, ACCENT)),
        (("k ", QUIET), (f"{k}  ", VALUE), (lengths, ACCENT)),
    )


def route_legend(state: MeterState) -> str:
    """The glyphs of the routes that the last rounds took."""
    taken = {one.route for one in state.rounds}
    return "  ".join(
        f"{glyph} {route}" for route, glyph in gauges.ROUTE_GLYPHS.items() if route in taken
    )
