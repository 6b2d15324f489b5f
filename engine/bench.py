"""Cases × arms, interleaved on this machine: medians, intervals, and ratios to plain decoding.

An arm decodes a case once when told to; our routes are arms, and so is whatever else can be asked
(`app` brings the peers). The arms of one case take turns, run by run, so that a slow minute falls
on all of them; the order turns with each repeat. Decoding only: prompts are read once and then
reused. Every run starts from the same acceptance records that the last one left, as in daily use,
but never from an earlier answer to the same question: that would be replay, not drafting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from engine.bench_results import ArmResult, Rounds, Run, Runs, arm_result
from engine.cases import Case, LeftOut
from engine.draft.earlier import Earlier
from engine.protocol import (
    EngineError,
    Failed,
    GenerateRequest,
    RequestError,
    RoundDone,
    RouteChoice,
    SamplingParams,
)
from engine.session import Session
from engine.trace import TraceFile

BASE: RouteChoice = "plain"
WARM_UP_TOKENS = 8
"""Of the run that reads the prompt and is not timed."""


class Arm(Protocol):
    """Something that decodes a case."""

    name: str

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case once. Raises `RequestError` where this arm can't, or can no longer."""
        ...


class CaseTime(Struct, frozen=True, kw_only=True):
    """How long a case took, all arms and repeats."""

    case: str
    seconds: float
    done: int
    of: int


Told = ArmResult | LeftOut | CaseTime


class RouteArm:
    """One of our own routes."""

    def __init__(
        self, session: Session, route: RouteChoice, trace: TraceFile | None = None
    ) -> None:
        """`trace` is where this arm's rounds are written to."""
        self.name: str = route
        self._session, self._route, self._trace = session, route, trace

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case. Raises `RequestError`, and `EngineError` if decoding fails."""
        request = GenerateRequest(
            id=f"{case.name}/{self._route}",
            prompt=case.prompt,
            sampling=sampling,
            route=self._route,
        )
        self._session.earlier.forget()
        self._session.earlier, self._session.trace = Earlier(), self._trace
        answer = self._session.start(request)
        rounds = Rounds()
        while not answer.done:
            for event in answer.step():
                if isinstance(event, Failed):
                    raise EngineError(event.code, event.message, event.hint)
                if isinstance(event, RoundDone):
                    count(rounds, event)
        usage = answer.usage()
        return Run(
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.output_tokens,
            decode_ms=usage.decode_ms,
            output=tuple(answer.row.output),
            rounds=rounds,
        )


def prompt_ids(session: Session, case: Case) -> list[int]:
    """The case's prompt as our token ids. Raises `RequestError` where the model can't take it."""
    return session.encode(GenerateRequest(id=case.name, prompt=case.prompt))


def count(rounds: Rounds, done: RoundDone) -> None:
    """Add a round to the sums."""
    rounds.rounds += 1
    rounds.by_route[done.route] = rounds.by_route.get(done.route, 0) + 1
    if not done.drafted:
        rounds.plain_ms += done.verify_ms
        return
    rounds.drafting += 1
    rounds.drafted += done.drafted
    rounds.tested += done.tested
    rounds.accepted += done.accepted
    rounds.draft_ms += done.draft_ms
    rounds.verify_ms += done.verify_ms


class Plan(Struct, frozen=True, kw_only=True):
    """How cases are run."""

    repeats: int
    sampling: SamplingParams
    max_tokens: int | None = None
    """None: what each case says."""

    def of(self, case: Case, repeat: int) -> SamplingParams:
        """What one run samples with: greedy as it is, else with a seed of its own, the same for
        all arms."""
        drawn = replace(self.sampling, max_tokens=self.max_tokens or case.max_tokens)
        if not drawn.temperature:
            return drawn
        return replace(drawn, seed=(drawn.seed or 0) + repeat)


def bench(
    arms: Sequence[Arm], cases: Sequence[Case], plan: Plan, report: Callable[[Told], None]
) -> dict[str, tuple[Case, Runs]]:
    """Run every case with every arm, `plan.repeats` times, and tell `report` what came of it.

    The first arm is the one that others are compared to. A case that it can't take is left out, as
    is another arm from a case that this one can't take, or that it failed in the middle of. Raises
    `RequestError` if no case is left.
    """
    found: dict[str, tuple[Case, Runs]] = {}
    reasons: dict[str, None] = {}

    def left_out(told: LeftOut) -> None:
        if told.arm is None:
            reasons[told.reason] = None
        report(told)

    for at, case in enumerate(cases):
        began = time.perf_counter()
        able = _able(arms, case, plan, left_out)
        if not able:
            continue
        runs = _interleaved(able, case, plan, left_out)
        found[case.name] = case, runs
        for arm in able:
            if arm.name not in runs:
                continue
            greedy = not plan.sampling.temperature
            report(arm_result(case, arm.name, runs, base=arms[0].name, greedy=greedy))
        seconds = time.perf_counter() - began
        report(CaseTime(case=case.name, seconds=seconds, done=at + 1, of=len(cases)))
    if not found:
        raise RequestError(
            "nothing_fits",
            f"none of the cases could be run: {'; '.join(reasons)}",
            "Choose other cases, or a model and a --context that take these.",
        )
    return found


def _able(
    arms: Sequence[Arm], case: Case, plan: Plan, report: Callable[[LeftOut], None]
) -> list[Arm]:
    """The arms that can take this case, each warmed up on it; none if the first can't."""
    able: list[Arm] = []
    for arm in arms:
        brief = replace(plan.of(case, 0), max_tokens=WARM_UP_TOKENS)
        try:
            arm.run(case, brief)
        except RequestError as error:
            base = arm is arms[0]
            report(LeftOut(case=case.name, reason=error.message, arm=None if base else arm.name))
            if base:
                return []
            continue
        able.append(arm)
    return able


def _interleaved(
    arms: Sequence[Arm], case: Case, plan: Plan, report: Callable[[LeftOut], None]
) -> Runs:
    """The runs of every arm that got through all of them; the first one has to."""
    runs: Runs = {arm.name: [] for arm in arms}
    for repeat in range(plan.repeats):
        for arm in in_turn(arms, repeat):
            if arm.name not in runs:
                continue
            try:
                runs[arm.name].append(arm.run(case, plan.of(case, repeat)))
            except RequestError as error:
                if arm is arms[0]:
                    raise
                report(LeftOut(case=case.name, reason=error.message, arm=arm.name))
                del runs[arm.name]
    return runs


def in_turn(arms: Sequence[Arm], repeat: int) -> list[Arm]:
    """The order of one repeat: one way and then the other, so that over two repeats every pair
    has gone in both orders; another arm begins each time."""
    turn = repeat // 2 % len(arms)
    order = [*arms[turn:], *arms[:turn]]
    return order[::-1] if repeat % 2 else order
