"""Agreement and cost put into the formula, and what to make of the result.

A path promises E(k) ÷ (k·c + r(k + 1)) × plain at its best k. Knows paths as figures only; what it
says to a person about them is a symptom, its suspect and a remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from engine.acceptance import Outlook
from engine.calibration.agreement import TEMPERATURES, ByPosition
from engine.costs import BucketCosts, bucket_tokens
from engine.draft_length import MIN_GAIN, Arm, best_arm
from engine.profile import three
from engine.protocol import Route

MOST_K = 8
ENOUGH = 0.65
"""Agreement below which the draft is to be bettered, not k."""
DEAR = 1.3
"""c this many times what its layers and head should cost points at something else."""


class Path(Struct, frozen=True, kw_only=True):
    """One way to draft by layers, with what was measured of it."""

    name: str
    route: Route
    layers: int
    """That a drafted token runs."""
    exit_layer: int | None
    """For an early exit; None for a path with a jump."""
    is_there: bool
    """Whether the route can draft so now; a jump has to be trained first."""
    agreement: Mapping[float, ByPosition]
    costs: Mapping[int, BucketCosts]
    """By bucket of context lengths."""
    stop_below: float | None = None

    def arm(self, bucket: int, temperature: float = 0.0) -> Arm:
        """What it promises at its best k."""
        outlook = Outlook(rates=three(self.agreement[temperature]))
        return best_arm(self.route, outlook, self.costs[bucket], MOST_K)

    def c(self, bucket: int) -> float:
        """One drafted token ÷ a plain round."""
        return self.costs[bucket].draft_ratio(self.route, 1)


class Timed(Struct, frozen=True, kw_only=True):
    """Real rounds of one path at a fixed k, beside plain ones of the same texts."""

    name: str
    k: int
    rounds: int
    tokens_per_round: float
    times_plain: float


class Report(Struct, frozen=True, kw_only=True):
    """A whole calibration."""

    requests: int
    tokens: int
    layers: int
    head_share: float
    """The output head's time as a share of a plain round."""
    paths: tuple[Path, ...]
    timed: tuple[Timed, ...]
    copying: Mapping[int, tuple[float, float, float]]
    """Class of evidence → shares of kept tokens of what copying would have said."""

    @property
    def buckets(self) -> list[int]:
        """Those that were measured, short contexts first."""
        return sorted(set.intersection(*(set(path.costs) for path in self.paths)))

    def best(self, bucket: int, *, there: bool) -> Path:
        """The path that promises most at these contexts; of those that are there, or of all."""
        paths = [path for path in self.paths if path.is_there or not there]
        return max(paths, key=lambda path: path.arm(bucket).gain)


def verdicts(report: Report) -> list[str]:
    """One sentence per range of contexts, and where nothing pays the diagnosis behind it."""
    said = []
    for bucket in report.buckets:
        best = report.best(bucket, there=True)
        arm, where = best.arm(bucket), f"from {bucket_tokens(bucket):,} tokens of context"
        if arm.gain >= MIN_GAIN:
            said.append(f"{where}: {best.name}, k {arm.k}, {arm.gain:.2f} × plain predicted")
        else:
            said.append(f"{where}: plain; the best path, {best.name}, promises {arm.gain:.2f} ×")
    if all(report.best(b, there=True).arm(b).gain < MIN_GAIN for b in report.buckets):
        said += diagnosis(report)
    return said


def diagnosis(report: Report) -> list[str]:
    """Why no path that is there pays, each time with what helps."""
    bucket = report.buckets[0]
    best = report.best(bucket, there=True)
    first = best.agreement[0.0][0]
    said = []
    if first < ENOUGH:
        trained = max(
            (path for path in report.paths if not path.is_there),
            key=lambda path: path.arm(bucket).gain,
            default=None,
        )
        remedy = "another exit or a trained head: sspec-assist train-head"
        if trained is not None:
            remedy += f" (already its first fit, {trained.name}, promises "
            remedy += f"{trained.arm(bucket).gain:.2f} ×)"
        said.append(f"α is {first:.2f}, below {ENOUGH}: {remedy}")
    should = best.layers / report.layers * (1 - report.head_share) + report.head_share
    if best.c(bucket) > DEAR * should:
        said.append(
            f"c is {best.c(bucket):.2f} where its layers and the head should take {should:.2f}: "
            "the rest is small operators and Python; sspec-assist doctor tells which kernels run"
        )
    if first >= ENOUGH and best.c(bucket) <= DEAR * should:
        said.append(
            f"α is {first:.2f} and still too little at c {best.c(bucket):.2f}: a cheaper path, "
            "fewer layers or a trained head: sspec-assist train-head"
        )
    hot = best.agreement[TEMPERATURES[-1]][0]
    if first >= ENOUGH > hot:
        said.append(f"at temperature 1 α falls to {hot:.2f}: a lower temperature keeps more")
    longest = report.buckets[-1]
    if longest != bucket and best.arm(longest).gain < best.arm(bucket).gain - 0.05:
        said.append("at long contexts attention takes its share: k shrinks, then plain takes over")
    return said


def chosen_exits(report: Report) -> dict[int, int]:
    """Bucket → the exit layer that promises most, paying or not: the arbiter knows which."""
    exits = [path for path in report.paths if path.exit_layer is not None]
    chosen = {}
    for bucket in report.buckets:
        best = max(exits, key=lambda path: path.arm(bucket).gain)
        assert best.exit_layer is not None
        chosen[bucket] = best.exit_layer
    return chosen


def worth_timing(report: Report, most: int) -> list[Path]:
    """The paths whose prediction is put to the test, the most promising first."""
    bucket = report.buckets[0]
    ranked: Sequence[Path] = sorted(report.paths, key=lambda path: -path.arm(bucket).gain)
    exits = [path for path in ranked if path.exit_layer is not None]
    wanted = [*ranked[: most - 1], *exits[:1], *ranked]
    return list({path.name: path for path in wanted}.values())[:most]
