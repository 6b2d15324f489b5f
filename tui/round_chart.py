"""The chart of the last rounds: a column each, as high as the round took, split by what took it.

Owns the scale and the rounding of the columns. It must not know the rest of the meter's state.

Invariant: every column's cells are shared out so that each part is within one cell of its true
height, and the three parts are told apart by their glyphs alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import RoundDone
from tui import gauges
from tui.meter_pieces import ACCENT, GOOD, QUIET, VALUE, Line, cells, joined

ROWS = 8
_PARTS = (("verify", "█", ACCENT), ("draft", "▒", GOOD), ("other", "░", QUIET))
"""Name, glyph and style, from the bottom up."""
_AXIS = 8
"""Columns of the scale at the left."""


def chart(rounds: Sequence[RoundDone], width: int) -> list[Line]:
    """The heading, `ROWS` rows of columns, and the routes under them; at most `width` columns."""
    if not rounds:
        return [(("time of each round", VALUE),), (("no round yet", QUIET),)]
    shown = rounds[-max(1, width - _AXIS) :]
    top_ms = _scale(max(one.round_ms for one in shown))
    columns = [_column(one, top_ms) for one in shown]
    lines: list[Line] = [_heading(shown), *_means(shown, width)]
    for row in reversed(range(ROWS)):
        axis = f"{top_ms * (row + 1) / ROWS:g} ms" if row in (ROWS - 1, ROWS // 2 - 1) else ""
        parts = ((_glyph(column, row)) for column in columns)
        lines.append(((axis.rjust(_AXIS - 2) + " ▏", QUIET), *parts))
    routes = "".join(gauges.route_glyph(one.route) for one in shown)
    lines.append((("route".rjust(_AXIS - 2) + "  ", QUIET), (routes, ACCENT)))
    lengths = "".join(gauges.k_glyph(one.drafted) for one in shown)
    lines.append((("k".rjust(_AXIS - 2) + "  ", QUIET), (lengths, ACCENT)))
    return lines


def split_ms(done: RoundDone) -> tuple[float, float, float]:
    """Milliseconds of verify, draft and what they leave of the round."""
    other = done.round_ms - done.draft_ms - done.verify_ms
    return done.verify_ms, done.draft_ms, max(0.0, other)


def _heading(shown: Sequence[RoundDone]) -> Line:
    count = len(shown)
    told = "the last round" if count == 1 else f"the last {count} rounds"
    return (("time of each round", VALUE), (f"  {told}, a column each", QUIET))


def _means(shown: Sequence[RoundDone], width: int) -> list[Line]:
    """Glyph and mean of each part, and of the whole: in one line if there is room."""
    sums = [sum(part) for part in zip(*map(split_ms, shown), strict=True)]
    entries: list[Line] = [
        ((f"{glyph} ", style), (f"{name} ", QUIET), (f"{total / len(shown):.1f} ms", ""))
        for (name, glyph, style), total in zip(_PARTS, sums, strict=True)
    ]
    mean = sum(one.round_ms for one in shown) / len(shown)
    entries.append((("mean ", QUIET), (f"{mean:.1f} ms", VALUE)))
    whole = joined(entries)
    return [whole] if cells(whole) <= width else [joined(entries[:2]), joined(entries[2:])]


def _scale(longest_ms: float) -> float:
    """A round number of milliseconds that the tallest column fits under."""
    for step in _STEPS:
        if step * ROWS >= longest_ms:
            return float(step * ROWS)
    return longest_ms


_STEPS = tuple(
    base * 10**power for power in range(5) for base in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
)


def _column(done: RoundDone, top_ms: float) -> list[int]:
    """The parts' upper ends in cells, from the bottom up."""
    reached, cells = 0.0, []
    for part in split_ms(done):
        reached += part
        cells.append(round(reached / top_ms * ROWS))
    return cells


def _glyph(column: list[int], row: int) -> tuple[str, str]:
    for (_, glyph, style), end in zip(_PARTS, column, strict=True):
        if row < end:
            return glyph, style
    return " ", ""
