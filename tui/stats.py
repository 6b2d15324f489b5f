"""The session's numbers in a few lines of text, for `/stats`.

Pure: from the meter's state to words. What was not measured is said in a word, never guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui import gauges

if TYPE_CHECKING:
    from tui.meter_counts import Totals
    from tui.meter_state import MeterState


def stats_text(state: MeterState) -> str:
    """The last answer and the session, one line each."""
    if not state.answers:
        return "stats: nothing was answered yet"
    lines = [f"last answer: {_line(state.answer, state.times_plain)}"]
    if state.answers > 1:
        session = _line(state.session, state.session_times_plain)
        lines.append(f"session, {state.answers} answers: {session}")
    return "\n".join(lines)


def _line(sums: Totals, times_plain: float | None) -> str:
    speed = sums.tokens_per_s
    parts = [
        f"{sums.output_tokens:,} tokens",
        "speed not measured" if speed is None else f"{speed:.1f} tok/s",
        "× plain not measured" if times_plain is None else f"{times_plain:.2f} × plain",
    ]
    if sums.acceptance is None:
        parts.append("nothing drafted")
    else:
        parts.append(f"α {sums.acceptance:.2f} ({sums.accepted:,}/{sums.tested:,} tested)")
    parts.append(f"{sums.rounds:,} rounds, {sums.plain_rounds:,} of them plain")
    if sums.pauses:
        parts.append(f"{sums.pauses} pauses, {gauges.duration(sums.paused_ms)}")
    return " · ".join(parts)
