"""A whole calibration, stage by stage within its time.

The model answers the requests, every path is judged on the answers and timed on this machine, the
most promising ones decode for real. Whatever ends it, `kept` is what there is by then: nothing
before the first costs, and after that a report and a profile that leave out the rest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from engine.calibration.agreement import guess_agreement
from engine.calibration.answers import Judges, answered, length
from engine.calibration.figures import Report, chosen_exits, worth_timing
from engine.calibration.pace import Clock, Pace, Tell
from engine.calibration.path_costs import path_costs
from engine.calibration.sketches import Sketches, judged, marks_for
from engine.calibration.speed import MOST_TOKENS, Arm, Trial
from engine.cost_arms import contexts_of
from engine.costs import BucketCosts, bucket_of, bucket_tokens
from engine.draft.copy import CopyDrafter
from engine.loading import Loaded
from engine.pretend import Stage
from engine.profile import Profile, three
from engine.train.answers import Question

COSTED = 0.85
"""Share of the time at which the last costs should be known."""
COSTS_S = 12.0
"""Seconds for the costs of all paths at one context length, at most."""
PATHS_TIMED = 4
LONGER = 1.3
"""A context takes about so many times as long as the one before."""
SLACK = 1.3
"""And real rounds this many times what the costs say, the reading of prompts included."""
LEAST_TOKENS = 16
"""Of an answer that is decoded for real."""

Kept = tuple[Report, Profile]


class Calibration:
    """One run of it."""

    def __init__(
        self,
        loaded: Loaded,
        questions: Sequence[Question],
        *,
        minutes: float,
        tell: Tell,
        clock: Clock = time.monotonic,
    ) -> None:
        """`tell` hears the stage, the share of the time that is spent and a note."""
        self._loaded, self._questions = loaded, questions
        self._pace = Pace(minutes, tell, clock)
        self._report: Report | None = None
        self._tuned: tuple[int, float] | None = None

    @property
    def kept(self) -> Kept | None:
        """What was found so far, None while that is nothing to go by."""
        if self._report is None:
            return None
        left_out = tuple(self._pace.left_out)
        report = _with(self._report, left_out=left_out, seconds=self._pace.taken)
        return report, self._profile(report)

    def run(self) -> Kept:
        """Measure everything. Raises `RequestError` where there is too little text or time to
        judge on."""
        loaded, pace = self._loaded, self._pace
        marks = marks_for(loaded.architecture.layers, loaded.head)
        judges = answered(loaded.model, self._questions, marks, pace)
        sketches = judged(loaded, judges, pace)
        self._tuned = sketches.tuned
        self._costed(sketches, self._begun(judges, sketches))
        self._timed(sketches)
        assert self.kept is not None
        return self.kept

    def _begun(self, judges: Judges, sketches: Sketches) -> Report:
        arch = self._loaded.architecture
        return Report(
            requests=len(judges.all),
            asked=len(self._questions),
            tokens=sum(map(length, judges.all)),
            judged=sum(map(length, judges.held_out)),
            layers=arch.layers,
            head_share=sketches.head_share,
            paths=(),
            timed=(),
            copying=guess_agreement(CopyDrafter(self._loaded.model.device), judges.all),
            budget_s=self._pace.seconds,
        )

    def _costed(self, sketches: Sketches, report: Report) -> None:
        """Time all paths at one context length after another, short ones first."""
        model, pace = self._loaded.model, self._pace
        stage = Stage(model=model, cache=model.new_cache(1), drafters=[])
        costs: dict[str, dict[int, BucketCosts]] = {one.name: {} for one in sketches.paths}
        drafters = {one.name: one.drafter for one in sketches.paths}
        contexts = contexts_of(stage.cache)
        took = 0.0
        for at, context in enumerate(contexts):
            left = pace.left(COSTED)
            if at and LONGER * took > left:
                tokens = [f"{bucket_tokens(bucket_of(one)):,}" for one in contexts[at:]]
                pace.left_out.append(f"contexts from {' and '.join(tokens)} tokens: no time")
                break
            pace.tell("timing paths", f"{context:,} tokens of context")
            began = pace.taken
            seconds = min(COSTS_S, left / (len(contexts) - at))
            for name, found in path_costs(stage, context, drafters, seconds).items():
                costs[name][bucket_of(context)] = found
            took = pace.taken - began
            paths = tuple(one.path(dict(costs[one.name])) for one in sketches.paths)
            self._report = _with(report, paths=paths)

    def _timed(self, sketches: Sketches) -> None:
        """Decode with the most promising paths, as many as there is time for."""
        assert self._report is not None
        report, model, pace = self._report, self._loaded.model, self._pace
        bucket = report.buckets[0]
        step_s = SLACK * report.paths[0].costs[bucket].unit_ms / 1e3
        most = min(PATHS_TIMED, int(pace.left() / (LEAST_TOKENS * step_s)) - 2)
        if most < 1:
            pace.left_out.append("real rounds beside the prediction: no time")
            return
        drafters = {one.name: one.drafter for one in sketches.paths}
        arms = [
            Arm(name=path.name, drafter=drafters[path.name], k=path.arm(bucket).k)
            for path in worth_timing(report, most)
        ]
        tokens = min(MOST_TOKENS, int(pace.left() / ((len(arms) + 2) * step_s)))
        trial = Trial(model, model.new_cache(1), max_tokens=tokens)
        took = 0.0
        for number, question in enumerate(self._questions):
            if number and pace.left() < took:
                break
            pace.tell("real rounds", f"request {number + 1}")
            began = pace.taken
            trial.decode(question, arms)
            took = max(took, pace.taken - began)
            timed = tuple(arm.timed() for arm in arms if arm.rounds)
            self._report = _with(report, timed=timed)

    def _profile(self, report: Report) -> Profile:
        exits = chosen_exits(report)
        agreement = {
            path.route: three(path.agreement[0.0])
            for path in report.paths
            if path.is_there
            and (path.exit_layer is None or path.exit_layer == exits[report.buckets[0]])
        }
        copying = {f"copy/{evidence}": rates for evidence, rates in report.copying.items()}
        vocab, stop = self._tuned or (None, None)
        return Profile(
            weights_digest=self._loaded.weights_digest,
            requests=report.requests,
            tokens=report.tokens,
            exit_layers=exits,
            agreement=agreement | copying,
            head="" if self._loaded.head is None else self._loaded.head.about.identity,
            head_vocab=vocab,
            stop_below=stop,
        )


def _with(report: Report, **changed: object) -> Report:
    return msgspec.structs.replace(report, **changed)
