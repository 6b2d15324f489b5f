"""A calibration as lines for a terminal: the table, predicted against measured, the verdict.

Everything shown comes from the report; nothing is measured or decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.calibration.figures import Path, Report, Timed

WIDTH, HEIGHT = 56, 14


def lines_of(report: Report) -> Iterator[str]:
    """The whole report."""
    from engine.calibration.figures import verdicts

    yield f"{report.requests} requests, {report.tokens:,} tokens of answers judged"
    yield ""
    yield from _table(report)
    yield ""
    yield from plot(report)
    if report.copying:
        yield ""
        yield "copying, by class of evidence: α of the 1st / 2nd / later tokens"
        for evidence, rates in sorted(report.copying.items()):
            yield f"  {evidence:>3}  " + " / ".join(f"{rate:.2f}" for rate in rates)
    yield ""
    yield from verdicts(report)


def _table(report: Report) -> Iterator[str]:
    from engine.costs import bucket_tokens

    buckets = report.buckets
    yield (
        f"{'path':<26} {'layers':>6}  {'α by position, T 0':<22} {'T 0.7':>5} {'T 1':>5}  "
        + "  ".join(f"{f'from {bucket_tokens(b):,}':>20}" for b in buckets)
    )
    yield (
        f"{'':<26} {'':>6}  {'':<22} {'':>5} {'':>5}  "
        + "  ".join(f"{'c':>6} {'k':>3} {'× plain':>9}" for _ in buckets)
    )
    for path in report.paths:
        shares = " ".join(f"{share:.2f}" for share in path.agreement[0.0])
        yield (
            f"{path.name:<26} {path.layers:>6}  {shares:<22} {path.agreement[0.7][0]:>5.2f} "
            f"{path.agreement[1.0][0]:>5.2f}  " + "  ".join(_at(path, b) for b in buckets)
        )


def _at(path: Path, bucket: int) -> str:
    arm = path.arm(bucket)
    return f"{path.c(bucket):>6.2f} {arm.k:>3} {arm.gain:>9.2f}"


def plot(report: Report) -> Iterator[str]:
    """Predicted (across) against measured (up), one letter a path; on the line they agree."""
    points = [(one, _predicted(report, one)) for one in report.timed if one.rounds]
    if not points:
        return
    values = [value for one, predicted in points for value in (one.times_plain, predicted)]
    low, high = min(*values, 0.8) - 0.05, max(*values, 1.2) + 0.05
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def place(predicted: float, measured: float, sign: str) -> None:
        across = round((predicted - low) / (high - low) * (WIDTH - 1))
        up = round((measured - low) / (high - low) * (HEIGHT - 1))
        grid[HEIGHT - 1 - up][across] = sign

    for step in range(WIDTH):
        value = low + (high - low) * step / (WIDTH - 1)
        place(value, value, "·")
    for index, (one, predicted) in enumerate(points):
        place(predicted, one.times_plain, chr(ord("a") + index))
    yield "measured × plain (up) against predicted (across); on the dots they agree"
    for number, row in enumerate(grid):
        value = high - (high - low) * number / (HEIGHT - 1)
        yield f"{value:5.2f} │" + "".join(row).rstrip()
    yield " " * 6 + "└" + "─" * WIDTH
    yield " " * 7 + f"{low:<.2f}" + f"{high:>{WIDTH - 4}.2f}"
    yield from _legend(points)


def _legend(points: Sequence[tuple[Timed, float]]) -> Iterator[str]:
    for index, (one, predicted) in enumerate(points):
        yield (
            f"  {chr(ord('a') + index)}  {one.name}, k {one.k}: {predicted:.2f} predicted, "
            f"{one.times_plain:.2f} measured, {one.tokens_per_round:.2f} tokens a round over "
            f"{one.rounds} rounds"
        )


def _predicted(report: Report, timed: Timed) -> float:
    path = next(path for path in report.paths if path.name == timed.name)
    return path.arm(report.buckets[0]).gain
