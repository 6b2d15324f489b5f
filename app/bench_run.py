"""The run of `bench`: arms taken together, results told as they come, then what they add up to.

What is timed is the engine's business (`engine.bench`). Invariant: every figure printed was
measured in this run; the table goes to `out` line by line, how long it takes to `err`, and JSON is
one document at the end that holds all of it, or what was measured until something ended the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from app.bench_table import (
    HEADER,
    coverage_line,
    floor_line,
    kind_lines,
    left_out_line,
    result_line,
    time_line,
)
from app.measure import say, subject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.bench import Arm, Plan, Told
    from engine.bench_results import ArmResult, KindResult, Runs
    from engine.cases import Case, LeftOut
    from engine.floor import Floor
    from engine.session import Session

DRAWN = (
    "Temperature above 0: every run draws a text of its own from the same law (the same seed gives "
    "the same law with and without drafts, not the same text), so texts are not compared."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What one `bench` runs."""

    session: Session
    arms: Sequence[Arm]
    """The first is what the others are compared to."""
    peers: tuple[str, ...]
    """Names of the arms that are not ours."""
    cases: Sequence[Case]
    plan: Plan
    unchosen: int
    """Cases that were not chosen."""
    floor: bool = False
    """Whether the memory's speed is measured too, before the cases."""


@dataclass(slots=True, kw_only=True)
class _Found:
    """Filled as it comes."""

    results: list[ArmResult] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    kinds: list[KindResult] = field(default_factory=list)
    against_peers: list[list[KindResult]] = field(default_factory=list)
    floor: Floor | None = None
    complete: bool = False


def run_bench(what: Bench, out: TextIO, err: TextIO, *, as_json: bool) -> None:
    """Time all arms on the cases; a table to read, or one JSON document."""
    found = _Found()
    if as_json:
        try:
            _run(what, found, lambda _: None, err)
        finally:
            if found.results:
                say(out, msgspec.json.format(msgspec.json.encode(_record(what, found))).decode())
        return
    say(out, subject(what.session))
    _run(what, found, lambda line: say(out, line), err)
    for line in _closing(what, found):
        say(out, line)


def _run(what: Bench, found: _Found, tell: Callable[[str], None], err: TextIO) -> None:
    from engine.bench import CaseTime, bench
    from engine.cases import LeftOut
    from engine.floor import floor_of

    if what.floor:
        found.floor = floor_of(what.session)
        tell(floor_line(found.floor))
    tell(HEADER)

    def report(told: Told) -> None:
        if isinstance(told, CaseTime):
            say(err, time_line(told))
        elif isinstance(told, LeftOut):
            found.left_out.append(told)
            tell(left_out_line(told))
        else:
            found.results.append(told)
            tell(result_line(told))

    runs = bench(what.arms, what.cases, what.plan, report)
    found.kinds, found.against_peers = _sums(what, runs)
    found.complete = True


def _sums(
    what: Bench, runs: dict[str, tuple[Case, Runs]]
) -> tuple[list[KindResult], list[list[KindResult]]]:
    """Every arm of ours against plain; plain and auto against each peer."""
    from engine.bench_results import kind_results

    base, *others = [arm.name for arm in what.arms]
    ours = [name for name in others if name not in what.peers]
    kinds = [result for arm in ours for result in kind_results(runs, arm, base)]
    best = ["auto"] if "auto" in ours else ours[:1]
    against = [kind_results(runs, arm, peer) for peer in what.peers for arm in (base, *best)]
    return kinds, [results for results in against if results]


def _closing(what: Bench, found: _Found) -> list[str]:
    lines = []
    for arm in dict.fromkeys(result.arm for result in found.kinds):
        lines += kind_lines([result for result in found.kinds if result.arm == arm])
    for results in found.against_peers:
        lines += kind_lines(results)
    lines += ["", coverage_line(found.results[0].tokens_per_s, what.plan.repeats)]
    if what.plan.sampling.temperature:
        lines.append(DRAWN)
    if what.unchosen:
        lines.append(f"{what.unchosen} more cases were not asked for; --full runs all of them.")
    return lines


def _record(what: Bench, found: _Found) -> dict[str, Any]:
    loaded = what.session.loaded
    return {
        "model": what.session.name,
        "quant": loaded.quant,
        "device": loaded.device,
        "complete": found.complete,
        "repeats": what.plan.repeats,
        "sampling": what.plan.sampling,
        "floor": found.floor,
        "cases": [case.name for case in what.cases],
        "cases_not_chosen": what.unchosen,
        "results": found.results,
        "kinds": found.kinds,
        "against_peers": [result for results in found.against_peers for result in results],
        "left_out": found.left_out,
    }
