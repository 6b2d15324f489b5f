"""The tables of the details panel: acceptance by position, decisions, totals, the engine,
completions in editors.

Owns their rows and wording, each as lines with its heading first. It must not know their place on
the screen. Invariant: a number that was not measured is `–`, and every denominator is said.
"""

from __future__ import annotations

from tui import editor_statistics, gauges
from tui.editor_statistics import EditorStatistics
from tui.meter_counts import Decision, Totals
from tui.meter_pieces import ACCENT, GOOD, QUIET, VALUE, Line
from tui.meter_state import MeterState
from tui.mode_word import one_line

MOST_POSITIONS = 12
_BAR = 24
_LABEL = 24
_NUMBER = 9
_NAMES_FROM = 60
"""Columns from which a decision names its route beside the glyph."""


def acceptance(state: MeterState, width: int) -> list[Line]:
    """A row for each place in the draft: how much of what was tested there was kept."""
    heading: Line = (("acceptance by position", VALUE), ("  accepted of tested", QUIET))
    if not state.positions:
        return [heading, (("no draft was tested yet", QUIET),)]
    cells = max(4, min(_BAR, width - 30))
    lines: list[Line] = [heading]
    for at, place in enumerate(state.positions[:MOST_POSITIONS], start=1):
        share = place.accepted / place.tested if place.tested else 0.0
        lines.append(
            (
                (f"{at:>3} ", QUIET),
                (gauges.bar(share, cells), GOOD),
                ("▏", QUIET),
                (f"{gauges.percent(share):>6}", VALUE),
                (f"  {place.accepted:,} of {place.tested:,}", QUIET),
            )
        )
    beyond = state.positions[MOST_POSITIONS:]
    if beyond:
        kept, tested = (
            sum(getattr(one, name) for one in beyond) for name in ("accepted", "tested")
        )
        lines.append(((f"    later ones: {kept:,} of {tested:,}", QUIET),))
    return lines


def decisions(state: MeterState, width: int) -> list[Line]:
    """A row for each of the arbiter's last decisions, the newest first."""
    heading: Line = (("decisions", VALUE), ("  round, route, k and why, newest first", QUIET))
    if not state.decisions:
        return [heading, (("none yet", QUIET),)]
    cells = 0
    if width >= _NAMES_FROM:
        cells = max(10, *(len(one.route) for one in state.decisions))
    return [heading, *(_decision(one, cells) for one in reversed(state.decisions))]


def _decision(one: Decision, name_cells: int) -> Line:
    rounds = f"{one.first}" if one.first == one.last else f"{one.first}–{one.last}"
    name = f" {one.route:<{name_cells}}" if name_cells else ""
    return (
        (f"{rounds:>7}  ", QUIET),
        (f"{gauges.route_glyph(one.route)}{name} ", ACCENT),
        (f"k {one.k:<2} ", VALUE),
        (one_line(one.reason), ""),
    )


def totals(state: MeterState, width: int) -> list[Line]:
    """The answer's sums beside the session's."""
    label = min(_LABEL, width - 2 * _NUMBER)
    lines: list[Line] = [
        (
            ("totals".ljust(label), VALUE),
            (f"{'answer':>{_NUMBER}}{'session':>{_NUMBER}}", QUIET),
        )
    ]
    columns = (
        _numbers(state.answer, state.times_plain, min(state.answers, 1)),
        _numbers(state.session, state.session_times_plain, state.answers),
    )
    for (name, own), (_, whole) in zip(*columns, strict=True):
        lines.append(
            ((name.ljust(label), QUIET), (own.rjust(_NUMBER), VALUE), (whole.rjust(_NUMBER), ""))
        )
    return lines


def _numbers(sums: Totals, times_plain: float | None, answers: int) -> list[tuple[str, str]]:
    return [
        ("speed, tok/s", gauges.decimal(sums.tokens_per_s, 1)),
        ("× plain", gauges.decimal(times_plain, 2)),
        ("tokens per round", gauges.decimal(sums.tokens_per_round, 2)),
        ("α, of tested", gauges.decimal(sums.acceptance, 2)),
        ("answers", f"{answers:,}"),
        ("output tokens", f"{sums.output_tokens:,}"),
        ("rounds", f"{sums.rounds:,}"),
        ("plain rounds", f"{sums.plain_rounds:,}"),
        ("tokens drafted", f"{sums.drafted:,}"),
        ("tokens tested", f"{sums.tested:,}"),
        ("tokens accepted", f"{sums.accepted:,}"),
        ("prompt tokens", f"{sums.prompt_tokens:,}"),
        ("kept in cache", f"{sums.cached_tokens:,}"),
        ("reading prompts", _took(sums.prefill_ms)),
        ("decoding", _took(sums.decode_ms)),
        ("paused", _took(sums.paused_ms) if sums.pauses else "never"),
    ]


def editor(counted: EditorStatistics | None) -> list[Line]:
    """How completions in editors have done; nothing while nothing is known of them."""
    if counted is None or counted.is_empty:
        return []
    told = editor_statistics.rows(counted)
    since = "so far" if counted.days is None else f"of the last {counted.days} days"
    return [
        (("completions in editors", VALUE), (f"  {since}", QUIET)),
        *(((label.ljust(11), QUIET), (text, "")) for label, text in told),
    ]


def _took(ms: float) -> str:
    return gauges.duration(ms) if ms else gauges.UNKNOWN


def engine(state: MeterState) -> list[Line]:
    """What the engine is and holds; nothing while it is not known."""
    status = state.status
    if status is None:
        return []
    law = "greedy text is that of plain decoding, bit by bit" if status.exact else "the same law"
    kind = [one_line(part) for part in (status.quant, status.device) if part]
    rows = [("model", ", ".join([one_line(status.model), *kind])), ("exactness", law)]
    if status.memory_bytes:
        parts = (("weights", status.weight_bytes), ("cache", status.cache_bytes))
        held = ", ".join(f"{name} {gauges.size(count)}" for name, count in parts if count)
        rows.append(("memory", gauges.size(status.memory_bytes) + (f" ({held})" if held else "")))
    if status.context_limit:
        mark = status.fallback_tokens
        told = f", plain from {mark:,}" if mark is not None else ""
        rows.append(("context", f"{status.context_limit:,} tokens{told}"))
    kept = sum(one.tokens for one in status.held)
    if status.held or status.evictions:
        rows.append(
            (
                "kept",
                f"{len(status.held)} conversations, {kept:,} tokens; {status.evictions} pushed out",
            )
        )
    if state.notice:
        rows.append(("note", one_line(state.notice)))
    return [
        (("engine", VALUE),),
        *(((label.ljust(11), QUIET), (text, "")) for label, text in rows),
    ]
