"""A calibration as lines for a terminal: the tables, predicted against measured, the verdict.

Everything shown comes from the report; nothing is measured or decided here. Invariant: no line of a
table is wider than 80 columns, whatever the terminal is: a piped report looks the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.calibration.figures import Path, Report, Timed

COLUMNS = 80
WIDTH, HEIGHT = 56, 14
POSITIONS = 4
LATE = 1.1
"""More than this share of the time asked for is told."""


def lines_of(report: Report) -> Iterator[str]:
    """The whole report."""
    from engine.calibration.figures import verdicts

    yield (
        f"{report.requests} of {report.asked} requests answered, {report.tokens:,} tokens; "
        f"judged on {report.judged:,} of them"
    )
    yield ""
    yield from _agreements(report)
    yield ""
    yield from _costs(report)
    yield ""
    yield from plot(report)
    if report.copying:
        yield from _copying(report)
    yield ""
    for sentence in (*verdicts(report), *left_out(report)):
        yield from wrap(sentence, COLUMNS, subsequent_indent="  ")


def left_out(report: Report) -> Iterator[str]:
    """What there was no time for, and where it took longer than it should."""
    if report.left_out:
        yield f"left out: {'; '.join(report.left_out)}. More --minutes does it."
    if report.seconds > LATE * report.budget_s:
        yield (
            f"It took {_duration(report.seconds)} of the {_duration(report.budget_s)} asked for: "
            "what it needs at least takes that long here."
        )


def _agreements(report: Report) -> Iterator[str]:
    yield f"{'':<26} {'':>6}  {'α by position':^23}  {'T 0.7':>6} {'T 1':>6}"
    positions = " ".join(f"{name:>5}" for name in ("1st", "2nd", "3rd", "4th"))
    yield f"{'path':<26} {'layers':>6}  {positions}  {'1st':>6} {'1st':>6}"
    for path in report.paths:
        shares = [f"{share:>5.2f}" for share in path.agreement[0.0]]
        shares += [f"{'–':>5}"] * (POSITIONS - len(shares))
        yield (
            f"{path.name:<26} {path.layers:>6}  {' '.join(shares)}  "
            f"{path.agreement[0.7][0]:>6.2f} {path.agreement[1.0][0]:>6.2f}"
        )


def _costs(report: Report) -> Iterator[str]:
    from engine.costs import bucket_tokens

    buckets = report.buckets
    names = [f"from {bucket_tokens(b):,}" if b else "short contexts" for b in buckets]
    yield f"{'':<26}  " + "  ".join(f"{name:^15}" for name in names).rstrip()
    yield f"{'path':<26}  " + "  ".join(f"{'c':>4} {'k':>2} {'× plain':>7}" for _ in buckets)
    for path in report.paths:
        yield f"{path.name:<26}  " + "  ".join(_at(path, bucket) for bucket in buckets)


def _at(path: Path, bucket: int) -> str:
    arm = path.arm(bucket)
    return f"{path.c(bucket):>4.2f} {arm.k:>2} {arm.gain:>7.2f}"


def _copying(report: Report) -> Iterator[str]:
    yield ""
    yield f"{'copying, by what it goes by':<40} {'1st':>5} {'2nd':>5} {'later':>5}"
    for evidence, rates in sorted(report.copying.items()):
        shares = " ".join(f"{rate:>5.2f}" for rate in rates)
        yield f"  {evidence_in_words(evidence):<38} {shares}"


def evidence_in_words(evidence: int) -> str:
    """A class of evidence that copying goes by."""
    from engine.draft.copy import GUESS, KNOWN, MATCH_FROM, RUN_FROM, SEEN

    if evidence < len(MATCH_FROM):
        count = _from_to(MATCH_FROM, evidence)
        return f"the last {count} tokens said before" if evidence else "the last token said before"
    if evidence < KNOWN:
        return f"{_from_to(RUN_FROM, evidence - len(MATCH_FROM))} tokens on behind a change"
    others = {
        KNOWN: "in a change made before",
        SEEN: "in a change, one token agrees",
        GUESS: "in a change, one token of it known",
    }
    return others[evidence]


def _from_to(starts: Sequence[int], at: int) -> str:
    if at + 1 == len(starts):
        return f"{starts[at]} or more"
    last = starts[at + 1] - 1
    return f"{starts[at]}" if last == starts[at] else f"{starts[at]}–{last}"


def plot(report: Report) -> Iterator[str]:
    """Predicted (across) against measured (up), one letter a path; on the line they agree."""
    points = [(one, _predicted(report, one)) for one in report.timed if one.rounds]
    if not points:
        yield "nothing was decoded for real, so there is no measured speed beside the predicted one"
        return
    values = [value for one, predicted in points for value in (one.times_plain, predicted)]
    low, high = min(*values, 0.8) - 0.05, max(*values, 1.2) + 0.05
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def place(predicted: float, measured: float, sign: str) -> None:
        across = round((predicted - low) / (high - low) * (WIDTH - 1))
        up = round((measured - low) / (high - low) * (HEIGHT - 1))
        row = grid[HEIGHT - 1 - up]
        # Two letters on one place would hide each other.
        while row[across] not in " ·" and across + 1 < WIDTH:
            across += 1
        row[across] = sign

    for step in range(WIDTH):
        value = low + (high - low) * step / (WIDTH - 1)
        place(value, value, "·")
    for index, (one, predicted) in enumerate(points):
        place(predicted, one.times_plain, chr(ord("a") + index))
    yield "measured × plain (up) against predicted (across); on the dots they agree"
    for number, row in enumerate(grid):
        value = high - (high - low) * number / (HEIGHT - 1)
        yield f"{value:5.2f} │{''.join(row)}".rstrip()
    yield " " * 6 + "└" + "─" * WIDTH
    yield " " * 7 + f"{low:<.2f}" + f"{high:>{WIDTH - 4}.2f}"
    yield from _legend(report, points)


def _legend(report: Report, points: Sequence[tuple[Timed, float]]) -> Iterator[str]:
    yield f"     {'':<26}   {'× plain':^18} {'tokens a round':^18}".rstrip()
    yield (
        f"     {'path':<26} {'k':>2} {'predicted':>9} {'measured':>8} {'predicted':>9} "
        f"{'measured':>8} {'rounds':>6}"
    )
    for index, (one, predicted) in enumerate(points):
        path = next(path for path in report.paths if path.name == one.name)
        tokens = path.arm_at(report.buckets[0], one.k).tokens
        yield (
            f"  {chr(ord('a') + index)}  {one.name:<26} {one.k:>2} {predicted:>9.2f} "
            f"{one.times_plain:>8.2f} {tokens:>9.2f} {one.tokens_per_round:>8.2f} {one.rounds:>6}"
        )


def _predicted(report: Report, timed: Timed) -> float:
    path = next(path for path in report.paths if path.name == timed.name)
    return path.arm_at(report.buckets[0], timed.k).gain


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"
