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
TELLING = 1.15
"""Figures that differ by this factor differ by more than chance."""
_HEAD = "a trained head (sspec-assist train-head)"


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

    def arm_at(self, bucket: int, k: int) -> Arm:
        """What it promises at this k."""
        outlook = Outlook(rates=three(self.agreement[0.0]))
        return best_arm(self.route, outlook, self.costs[bucket], k, exactly=True)

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
    c: float
    """One drafted token ÷ a plain round, as it was here."""

    @property
    def ratio(self) -> float:
        """A round ÷ a plain one."""
        return self.tokens_per_round / self.times_plain


class Report(Struct, frozen=True, kw_only=True):
    """A whole calibration."""

    requests: int
    """That were answered,"""
    asked: int
    """of so many."""
    tokens: int
    """Of their answers,"""
    judged: int
    """and how many of these the paths were judged on."""
    layers: int
    head_share: float
    """The output head's time as a share of a plain round; 0 where it was not measured."""
    paths: tuple[Path, ...]
    timed: tuple[Timed, ...]
    copying: Mapping[int, tuple[float, float, float]]
    """Class of evidence → shares of kept tokens of what copying would have said."""
    left_out: tuple[str, ...] = ()
    """What there was no time for."""
    budget_s: float = 0.0
    seconds: float = 0.0
    """What it took of that."""

    @property
    def buckets(self) -> list[int]:
        """Those that were measured, short contexts first."""
        return sorted(set.intersection(*(set(path.costs) for path in self.paths)))

    def best(self, bucket: int, *, there: bool) -> Path:
        """The path that promises most at these contexts; of those that are there, or of all."""
        paths = [path for path in self.paths if path.is_there or not there]
        return max(paths, key=lambda path: path.arm(bucket).gain)


def verdicts(report: Report) -> list[str]:
    """One sentence per range of contexts; where nothing pays the diagnosis behind it, else what a
    trained head would do better; and why real rounds were slower than predicted, if they were."""
    said = [_verdict(report, bucket) for bucket in report.buckets]
    losing = [
        bucket
        for bucket in report.buckets
        if report.best(bucket, there=True).arm(bucket).gain < MIN_GAIN
    ]
    said += diagnosis(report, losing[0]) if losing else []
    bucket = report.buckets[0]
    trained, best = _to_train(report, bucket), report.best(bucket, there=True)
    if trained is not None and bucket not in losing[:1]:
        gain = trained.arm(bucket).gain
        if gain > TELLING * best.arm(bucket).gain:
            said.append(f"{_HEAD}: already its first fit, {trained.name}, promises {gain:.2f} ×")
    short_of = (_unlike(report, timed) for timed in report.timed)
    return said + next(filter(None, short_of), [])


def _verdict(report: Report, bucket: int) -> str:
    best = report.best(bucket, there=True)
    arm, where = best.arm(bucket), where_of(bucket)
    if arm.gain < MIN_GAIN:
        return f"{where}: plain; the best path, {best.name}, promises {arm.gain:.2f} ×"
    said = f"{where}: {best.name}, k {arm.k}, {arm.gain:.2f} × plain predicted"
    timed = next((one for one in report.timed if one.name == best.name), None)
    if timed is not None and bucket == report.buckets[0]:
        said += f", {timed.times_plain:.2f} measured"
    return said


def where_of(bucket: int) -> str:
    """A range of contexts in words."""
    return f"from {bucket_tokens(bucket):,} tokens of context" if bucket else "short contexts"


def diagnosis(report: Report, bucket: int) -> list[str]:
    """Why no path that is there pays at these contexts, each time with what helps."""
    best = report.best(bucket, there=True)
    first = best.agreement[0.0][0]
    said = []
    if first < ENOUGH:
        trained = _to_train(report, bucket)
        remedy = _HEAD if best.exit_layer is None else f"another exit or {_HEAD}"
        if trained is not None:
            remedy += f" (already its first fit, {trained.name}, promises "
            remedy += f"{trained.arm(bucket).gain:.2f} ×)"
        said.append(f"α of {best.name} is {first:.2f}, below {ENOUGH}: {remedy}")
    should = best.layers / report.layers * (1 - report.head_share) + report.head_share
    is_dear = bool(report.head_share) and best.c(bucket) > DEAR * should
    if is_dear:
        said.append(
            f"c of {best.name} is {best.c(bucket):.2f} where its layers and the head should take "
            f"{should:.2f}: the rest is small operators and Python; sspec-assist doctor tells "
            "which kernels run"
        )
    elif first >= ENOUGH:
        said.append(
            f"α of {best.name} is {first:.2f} and still too little at c {best.c(bucket):.2f}: a "
            f"cheaper path, fewer layers or {_HEAD}"
        )
    hot = best.agreement[TEMPERATURES[-1]][0]
    if first >= ENOUGH > hot:
        said.append(f"at temperature 1 α falls to {hot:.2f}: a lower temperature keeps more")
    short = report.buckets[0]
    if bucket != short:
        said.append("at long contexts attention takes its share: k shrinks, then plain takes over")
    return said


def _to_train(report: Report, bucket: int) -> Path | None:
    """The path that pays once it is trained, if there is one."""
    paths = [path for path in report.paths if not path.is_there]
    best = max(paths, key=lambda path: path.arm(bucket).gain, default=None)
    return None if best is None or best.arm(bucket).gain < MIN_GAIN else best


def _unlike(report: Report, timed: Timed) -> list[str]:
    """Where real rounds of a path that should have paid fell short, and what of them."""
    path = next(path for path in report.paths if path.name == timed.name)
    bucket = report.buckets[0]
    promised = path.arm_at(bucket, timed.k)
    if promised.gain < MIN_GAIN or timed.times_plain * TELLING > promised.gain:
        return []
    causes = []
    if timed.tokens_per_round * TELLING < promised.tokens:
        causes.append(
            f"{timed.tokens_per_round:.2f} tokens a round where {promised.tokens:.2f} were "
            "promised: these answers are harder than those judged on; more --minutes asks more"
        )
    if timed.ratio > TELLING * promised.ratio:
        c = path.c(bucket)
        part = f"c was {timed.c:.2f} for {c:.2f}" if timed.c > TELLING * c else "the verifying pass"
        causes.append(
            f"a round took {timed.ratio:.2f} plain ones where {promised.ratio:.2f} were promised "
            f"({part}): something else ran meanwhile, or sspec-assist doctor tells which kernels do"
        )
    return [f"{timed.name} was slower than predicted: {cause}" for cause in causes]


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
