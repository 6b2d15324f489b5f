"""What a bench has found: one arm of one case, an arm over a kind, one arm against another.

Everything is computed from the runs alone, after they are over. A ratio is formed within a repeat,
between neighbours in time, before medians are taken. Words: `c` is the time of one drafted token,
`r` that of a verify pass, both ÷ the plain round of the same repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from engine.cases import KINDS, Case, Kind
from engine.intervals import Interval, geometric_mean, interval


class Rounds(Struct, kw_only=True):
    """Sums over the rounds of one run, in milliseconds and tokens."""

    rounds: int = 0
    drafting: int = 0
    """Rounds that drafted."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    """Of drafting rounds."""
    plain_ms: float = 0.0
    """Of rounds that drafted nothing: their pass."""
    by_route: dict[str, int] = {}


class Run(Struct, frozen=True, kw_only=True):
    """One answer, decoded once."""

    prompt_tokens: int
    output_tokens: int
    decode_ms: float
    output: tuple[int, ...] | None = None
    """Token ids, where the arm tells them."""
    rounds: Rounds | None = None
    """None for an arm whose inside is not seen."""

    @property
    def tokens_per_s(self) -> float:
        """Decoding speed, prompt reading left out."""
        return 1e3 * self.output_tokens / self.decode_ms


class ArmResult(Struct, frozen=True, kw_only=True):
    """One arm of one case over all repeats."""

    case: str
    kind: Kind
    arm: str
    prompt_tokens: int
    output_tokens: int
    tokens_per_s: Interval
    times_plain: Interval
    """Over the repeats: this run's speed ÷ the plain run's of the same repeat."""
    tested: int = 0
    accepted: int = 0
    tokens_per_round: float | None = None
    draft_cost: float | None = None
    """c, mean over the drafted tokens; None where nothing was drafted."""
    verify_cost: float | None = None
    """r, mean over the drafting rounds."""
    verify_rows: float | None = None
    """Mean rows w that `verify_cost` belongs to."""
    draft_share: float | None = None
    verify_share: float | None = None
    """Shares of the decoding time; the plain rounds of a drafting arm count as verifying."""
    by_route: dict[str, int] = {}
    """Rounds by route."""
    same_text: bool | None = None
    """Whether every greedy run gave the plain run's tokens; None where that is not promised."""

    @property
    def other_share(self) -> float | None:
        """What is neither drafting nor verifying."""
        if self.draft_share is None or self.verify_share is None:
            return None
        return max(0.0, 1 - self.draft_share - self.verify_share)


class KindResult(Struct, frozen=True, kw_only=True):
    """One arm over the cases of one kind, or over kinds (`kind` None: each kind counts once)."""

    kind: Kind | None
    arm: str
    against: str
    cases: int
    ratio: float
    """Geometric mean of the cases' medians of speed ÷ the speed of `against`."""
    low: float
    high: float
    """The interval of the geometric mean over the repeats."""
    coverage: float
    worst_case: str
    worst: float


Runs = dict[str, list[Run]]
"""Arm → its runs, one per repeat."""


def arm_result(case: Case, arm: str, runs: Runs, *, base: str, greedy: bool) -> ArmResult:
    """One arm's runs of one case, summed up against those of the arm `base`."""
    ours, plain = runs[arm], runs[base]
    sums = [run.rounds for run in ours if run.rounds is not None]
    inside = _inside(ours, plain, sums) if sums else {}
    outputs = [run.output for run in ours]
    same = all(output == plain[0].output for output in outputs)
    return ArmResult(
        case=case.name,
        kind=case.kind,
        arm=arm,
        prompt_tokens=ours[0].prompt_tokens,
        output_tokens=ours[0].output_tokens,
        tokens_per_s=interval([run.tokens_per_s for run in ours]),
        times_plain=interval(_ratios(ours, plain)),
        same_text=same if greedy and None not in outputs else None,
        **inside,
    )


def kind_results(found: dict[str, tuple[Case, Runs]], arm: str, against: str) -> list[KindResult]:
    """The arm `arm` against `against`, kind by kind and then over the kinds; cases that one of the
    two did not run are left out. Empty if none is left."""
    by_kind: dict[Kind, dict[str, list[float]]] = {}
    for case, runs in found.values():
        if arm in runs and against in runs:
            ratios = _ratios(runs[arm], runs[against])
            by_kind.setdefault(case.kind, {})[case.name] = ratios
    results = [
        _over([by_kind[kind]], arm=arm, against=against, kind=kind)
        for kind in KINDS
        if kind in by_kind
    ]
    if len(results) > 1:
        results.append(_over(list(by_kind.values()), arm=arm, against=against, kind=None))
    return results


def _over(
    kinds: Sequence[dict[str, list[float]]], *, arm: str, against: str, kind: Kind | None
) -> KindResult:
    """Each kind's geometric mean over its cases, then that of the kinds: of the medians for the
    figure itself, repeat by repeat for its interval."""
    medians = {name: interval(ratios).median for cases in kinds for name, ratios in cases.items()}
    repeats = min(len(ratios) for cases in kinds for ratios in cases.values())
    around = interval(
        [
            geometric_mean(
                [geometric_mean([ratios[i] for ratios in cases.values()]) for cases in kinds]
            )
            for i in range(repeats)
        ]
    )
    ratio = geometric_mean([geometric_mean([medians[name] for name in cases]) for cases in kinds])
    worst = min(medians, key=lambda name: medians[name])
    return KindResult(
        kind=kind,
        arm=arm,
        against=against,
        cases=len(medians),
        ratio=ratio,
        low=min(around.low, ratio),
        high=max(around.high, ratio),
        coverage=around.coverage,
        worst_case=worst,
        worst=medians[worst],
    )


def _ratios(ours: Iterable[Run], theirs: Iterable[Run]) -> list[float]:
    return [run.tokens_per_s / other.tokens_per_s for run, other in zip(ours, theirs, strict=True)]


def _inside(ours: Sequence[Run], plain: Sequence[Run], sums: Sequence[Rounds]) -> dict[str, Any]:
    """The fields of `ArmResult` that only an arm of our own can fill."""
    # What one plain round took in the same repeat, so that c and r are ratios of neighbours.
    units = [run.decode_ms / run.output_tokens for run in plain]
    drafted = sum(s.drafted for s in sums)
    drafting = sum(s.drafting for s in sums)
    total = sum(run.decode_ms for run in ours)
    routes: dict[str, int] = {}
    for one in sums:
        for route, count in one.by_route.items():
            routes[route] = routes.get(route, 0) + count
    verify = sum(s.verify_ms + s.plain_ms for s in sums)
    return {
        "tested": sum(s.tested for s in sums),
        "accepted": sum(s.accepted for s in sums),
        "tokens_per_round": sum(r.output_tokens for r in ours) / sum(s.rounds for s in sums),
        "draft_cost": _mean_cost([s.draft_ms for s in sums], units, drafted),
        "verify_cost": _mean_cost([s.verify_ms for s in sums], units, drafting),
        "verify_rows": 1 + drafted / drafting if drafting else None,
        "draft_share": sum(s.draft_ms for s in sums) / total,
        "verify_share": min(verify / total, 1.0),
        "by_route": routes,
    }


def _mean_cost(times: Sequence[float], units: Sequence[float], count: int) -> float | None:
    if not count:
        return None
    return sum(time / unit for time, unit in zip(times, units, strict=True)) / count
