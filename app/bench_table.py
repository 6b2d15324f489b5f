"""How the results of `bench` look on a terminal: one line each, under headings that match.

Pure text from structs; nothing is measured or decided here. Invariant: every figure says what it is
relative to, in its column or its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.bench import CaseTime
    from engine.bench_results import ArmResult, KindResult
    from engine.cases import LeftOut
    from engine.floor import Floor
    from engine.intervals import Interval

HEADER = (
    f"{'case':<18} {'arm':<14} {'prompt':>6} {'output':>6} {'tok/s':>7} {'× plain':>8} "
    f"{'interval':<13} {'α (kept/tested)':<18} {'tok/round':>9} {'c':>5} {'r @ rows':>10} "
    f"{'draft/verify/other':>18}  text"
)
KIND_HEADER = f"{'kind':<18} {'arm':<14} {'cases':>6} {'ratio':>7} {'interval':<13} {'lowest case'}"


def result_line(result: ArmResult) -> str:
    """One arm of one case as one line under `HEADER`."""
    rounds = _number(result.tokens_per_round)
    rows = "–"
    if result.verify_cost is not None and result.verify_rows is not None:
        rows = f"{result.verify_cost:.2f} @ {result.verify_rows:.1f}"
    return (
        f"{result.case:<18} {result.arm:<14} {result.prompt_tokens:>6} {result.output_tokens:>6} "
        f"{result.tokens_per_s.median:>7.1f} {result.times_plain.median:>8.2f} "
        f"{_between(result.times_plain):<13} {rate(result.accepted, result.tested):<18} "
        f"{rounds:>9} {_number(result.draft_cost):>5} {rows:>10} {_shares(result):>18}  "
        f"{_text(result)}"
    ).rstrip()


def kind_line(result: KindResult) -> str:
    """An arm over one kind as one line under `KIND_HEADER`."""
    return (
        f"{result.kind or 'all kinds':<18} {result.arm:<14} {result.cases:>6} {result.ratio:>7.2f} "
        f"{f'{result.low:.2f}–{result.high:.2f}':<13} {result.worst_case} {result.worst:.2f}"
    )


def kind_lines(results: Sequence[KindResult]) -> list[str]:
    """One arm against another, kind by kind; no line without results."""
    if not results:
        return []
    title = f"{results[0].arm} ÷ {results[0].against}, geometric means over the cases of a kind:"
    return ["", title, KIND_HEADER, *(kind_line(result) for result in results)]


def coverage_line(interval: Interval, repeats: int) -> str:
    """What the intervals mean."""
    if repeats < 2:
        return "One run of each: there are no intervals."
    what = "the range" if interval.coverage < 0.95 else "the narrowest such interval"
    return (
        f"Intervals hold the true median with {100 * interval.coverage:.1f} % "
        f"({what} of {repeats} runs); ratios are formed within a repeat."
    )


def floor_line(floor: Floor) -> str:
    """What the memory allows, and how much of that plain decoding reaches."""
    return (
        f"memory reads {floor.read_gb_s:.1f} GB/s and copies {floor.copy_gb_s:.1f}; a token at "
        f"{floor.context_tokens} of context moves {floor.bytes_per_token / 1e9:.3f} GB, "
        f"at least {floor.floor_ms:.1f} ms; plain decoding takes {floor.plain_ms:.1f} ms: "
        f"{100 * floor.reached:.0f} % of the possible speed"
    )


def time_line(told: CaseTime) -> str:
    """How long a case took, and what that means for the rest."""
    rest = told.seconds * (told.of - told.done)
    more = f"; about {spoken(rest)} more if the others are like it" if rest else ""
    return f"{told.case}: {told.done} of {told.of}, {spoken(told.seconds)}{more}"


def left_out_line(left_out: LeftOut) -> str:
    """A case or an arm that was not run, and why."""
    arm = "" if left_out.arm is None else f"{left_out.arm}: "
    return f"{left_out.case:<18} left out: {arm}{left_out.reason}"


def rate(accepted: int, tested: int) -> str:
    """Acceptance with its denominator."""
    return f"{accepted / tested:.2f} ({accepted}/{tested})" if tested else "– (none drafted)"


def spoken(seconds: float) -> str:
    """A length of time for a person."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _between(interval: Interval) -> str:
    return f"{interval.low:.2f}–{interval.high:.2f}" if interval.coverage else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _shares(result: ArmResult) -> str:
    shares = (result.draft_share, result.verify_share, result.other_share)
    if None in shares:
        return "–"
    return "/".join(f"{100 * (share or 0.0):.0f}" for share in shares) + " %"


def _text(result: ArmResult) -> str:
    if result.same_text is None:
        return ""
    return "as plain" if result.same_text else "DIFFERS from plain"
