"""Cases × routes, interleaved on this machine: medians, and ratios to plain decoding.

The arms of one case take turns, run by run, so that a slow minute falls on all of them; the order
turns with each repeat. Decoding only: prompts are prefilled once per arm and then reused. Every
run starts from the same acceptance records that the last one left, as in daily use.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from msgspec import Struct

from engine.cases import Case, LeftOut
from engine.protocol import (
    EngineError,
    Failed,
    GenerateRequest,
    RequestError,
    RouteChoice,
    SamplingParams,
    Usage,
)
from engine.session import Session

ARMS: tuple[RouteChoice, ...] = ("plain", "copy", "layer_skip", "auto")


class ArmResult(Struct, frozen=True, kw_only=True):
    """One arm of one case over all repeats."""

    case: str
    kind: str
    arm: RouteChoice
    prompt_tokens: int
    output_tokens: int
    tokens_per_s: float
    """Median over the repeats."""
    slowest_tokens_per_s: float
    fastest_tokens_per_s: float
    times_plain: float
    """Median over the repeats of this run's speed ÷ the plain run's of the same repeat."""
    tested: int
    accepted: int
    tokens_per_round: float
    same_text: bool
    """Whether every greedy run gave the plain run's tokens."""


class _Run(Struct, frozen=True, kw_only=True):
    usage: Usage
    output: list[int]

    @property
    def speed(self) -> float:
        return 1e3 * self.usage.output_tokens / self.usage.decode_ms


def bench(
    session: Session,
    cases: Sequence[Case],
    *,
    repeats: int,
    sampling: SamplingParams,
    report: Callable[[ArmResult | LeftOut], None],
) -> list[ArmResult]:
    """Run every case that fits with every arm, `repeats` times; one result per case and arm."""
    results: list[ArmResult] = []
    for case in cases:
        try:
            runs = _interleaved(session, case, repeats, sampling)
        except RequestError as error:
            report(LeftOut(case=case.name, reason=error.message))
            continue
        for arm in ARMS:
            result = _summary(case, arm, runs)
            results.append(result)
            report(result)
    if not results:
        raise RequestError(
            "nothing_fits",
            f"no built-in case fits {session.context_tokens} tokens of context",
            "Start with a larger --context.",
        )
    return results


def _interleaved(
    session: Session, case: Case, repeats: int, sampling: SamplingParams
) -> dict[RouteChoice, list[_Run]]:
    runs: dict[RouteChoice, list[_Run]] = {arm: [] for arm in ARMS}
    _run(session, case, "plain", sampling)  # fills the prompt's cache row
    for repeat in range(repeats):
        turn = repeat % len(ARMS)
        for arm in (*ARMS[turn:], *ARMS[:turn]):
            runs[arm].append(_run(session, case, arm, sampling))
    return runs


def _run(session: Session, case: Case, arm: RouteChoice, sampling: SamplingParams) -> _Run:
    request = GenerateRequest(
        id=f"{case.name}/{arm}", prompt=case.prompt, sampling=sampling, route=arm
    )
    answer = session.start(request)
    while not answer.done:
        for event in answer.step():
            if isinstance(event, Failed):
                raise EngineError(event.code, event.message, event.hint)
    return _Run(usage=answer.usage(), output=answer.row.output)


def _summary(case: Case, arm: RouteChoice, runs: dict[RouteChoice, list[_Run]]) -> ArmResult:
    ours, plain = runs[arm], runs["plain"]
    speeds = [run.speed for run in ours]
    ratios = [run.speed / base.speed for run, base in zip(ours, plain, strict=True)]
    produced = sum(run.usage.output_tokens for run in ours)
    return ArmResult(
        case=case.name,
        kind=case.kind,
        arm=arm,
        prompt_tokens=ours[0].usage.prompt_tokens,
        output_tokens=ours[0].usage.output_tokens,
        tokens_per_s=statistics.median(speeds),
        slowest_tokens_per_s=min(speeds),
        fastest_tokens_per_s=max(speeds),
        times_plain=statistics.median(ratios),
        tested=sum(run.usage.tested for run in ours),
        accepted=sum(run.usage.accepted for run in ours),
        tokens_per_round=produced / sum(run.usage.rounds for run in ours),
        same_text=all(run.output == plain[0].output for run in ours),
    )
