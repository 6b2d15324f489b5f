"""A whole calibration, stage by stage within its time.

The model answers the requests, every path is judged on the answers and timed on this machine, the
most promising ones decode for real, and the profile is kept. Whatever ends it, nothing that was in
use before has changed until the last step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import torch

from engine.calibrate import route_costs
from engine.calibration.agreement import (
    ByPosition,
    exit_agreement,
    guess_agreement,
    jump_agreement,
)
from engine.calibration.figures import Path, Report, Timed, chosen_exits, worth_timing
from engine.calibration.speed import Arm, time_request
from engine.draft.contract import Drafter
from engine.draft.copy import CopyDrafter
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.head_file import Head
from engine.draft.layer_skip import LayerSkipDrafter
from engine.loading import Loaded
from engine.profile import Profile, three
from engine.protocol import RequestError
from engine.train.agreement import judge_jump
from engine.train.answers import Decoder, Question
from engine.train.candidates import Bench, Candidate, candidates, draft_vocabulary, packed
from engine.train.moments import Moments
from engine.train.prospect import prospect
from engine.train.samples import Marks, Sample
from engine.train.step_costs import step_costs
from engine.train.tail import Tail

ANSWERED, JUDGED, TIMED = 0.4, 0.7, 1.0
"""Shares of the time at which the stages end."""
EXITS_FROM, EXITS_TO = 0.3, 0.8
MOST_EXITS = 7
FIRSTS, TAILS = (1, 2), (6, 4, 2)
"""Layers before a jump and after it: enough to see what training could start from."""
JUMPS_SHOWN = 2
PATHS_TIMED = 4
COSTS_S = 1.5
"""Seconds for the costs of one path at one context length."""
JUDGED_TOKENS = 2000
"""Answered tokens that exits and jumps are judged on."""
LEAST_TOKENS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Judges:
    """What paths are judged with: answers, of which the last ones were not fitted to."""

    samples: Sequence[Sample]
    held_out: Sequence[Sample]


class Calibration:
    """One run of it."""

    def __init__(
        self,
        loaded: Loaded,
        questions: Sequence[Question],
        *,
        minutes: float,
        tell: Callable[[str, float], None],
    ) -> None:
        """`tell` hears the stage and the share of the time that is spent."""
        self._loaded, self._questions = loaded, questions
        self._tell = tell
        self._seconds = 60.0 * minutes
        self._began = time.monotonic()
        self._drafters: dict[str, Drafter] = {}
        self._tuned: tuple[int, float] | None = None

    @property
    def spent(self) -> float:
        """Share of the time."""
        return (time.monotonic() - self._began) / self._seconds

    def run(self) -> tuple[Report, Profile]:
        """Measure everything. Raises `RequestError` where the answers are too short to judge on."""
        layers = self._loaded.architecture.layers
        marks = _marks(layers)
        judges = self._answered(marks)
        report = Report(
            requests=len(judges.samples),
            tokens=sum(_length(sample) for sample in judges.samples),
            layers=layers,
            head_share=0.0,
            paths=(),
            timed=(),
            copying=guess_agreement(CopyDrafter(self._loaded.model.device), judges.samples),
        )
        jumps, report = self._jumps(marks, judges, report)
        report = _with(report, paths=(*self._exits(judges), *jumps))
        report = _with(report, timed=tuple(self._timed(report)))
        return report, self._profile(report)

    def _answered(self, marks: Marks) -> Judges:
        decoder = Decoder(self._loaded.model, marks, self._questions)
        samples: list[Sample] = []

        def go_on() -> bool:
            self._tell(f"the model answers request {len(samples) + 1}", self.spent)
            return self.spent < ANSWERED or sum(map(_length, samples)) < LEAST_TOKENS

        samples += (sample for _, sample in decoder.answers(go_on))
        samples += (sample for _, sample in decoder.rest())
        samples = [sample for sample in samples if _length(sample) > 4]
        if sum(map(_length, samples)) < LEAST_TOKENS:
            raise RequestError(
                "too_little_text",
                f"{len(self._questions)} requests gave fewer than {LEAST_TOKENS} tokens of answers",
                "Give more requests, or leave --requests out.",
            )
        some: list[Sample] = []
        for sample in samples:
            some.append(sample)
            if sum(map(_length, some)) >= JUDGED_TOKENS:
                break
        return Judges(samples=samples, held_out=some[: max(1, len(some) // 3)])

    def _exits(self, judges: Judges) -> Iterator[Path]:
        model, layers = self._loaded.model, self._loaded.architecture.layers
        self._tell("judging early exits", self.spent)
        exits = _exit_layers(layers)
        agreement = exit_agreement(model, judges.held_out, exits)
        for layer in exits:
            name, drafter = f"first {layer}", LayerSkipDrafter(model, layer)
            yield self._path(name, drafter, layer, agreement[layer], exit_layer=layer)

    def _jumps(self, marks: Marks, judges: Judges, report: Report) -> tuple[list[Path], Report]:
        """The closed forms of the most promising pairs, and the head that is there."""
        loaded, arch = self._loaded, self._loaded.architecture
        self._tell("fitting jumps", self.spent)
        wide = arch.hidden
        empty = {"jump.weight": torch.zeros((wide, 2 * wide)), "jump.bias": torch.zeros(wide)}
        costs = step_costs(loaded.model, packed(empty))
        fitted_on = [s for s in judges.samples if not any(s is h for h in judges.held_out)]
        vocab = draft_vocabulary(judges.samples, arch.vocab, costs)
        tail = Tail(loaded.model, min(marks.jumps), vocab)
        bench = Bench(tail=tail, held_out=judges.held_out, costs=costs)
        pairs = Marks(firsts=_few(arch.layers), jumps=marks.jumps, layers=arch.layers)
        found = candidates(Moments(fitted_on or judges.samples), bench, pairs)
        paths = [self._jump_path(one, tail, judges) for one in found[:JUMPS_SHOWN]]
        if loaded.head is not None:
            paths.append(self._head_path(loaded.head, bench, judges))
        return paths, _with(report, head_share=costs.head)

    def _jump_path(self, one: Candidate, tail: Tail, judges: Judges) -> Path:
        path = one.first, one.landing
        head = packed(one.tensors)
        about = _about(head, first=one.first, jump=one.landing, vocab=tail.vocab)
        agreement = jump_agreement(self._loaded.model, tail, head, judges.held_out, path)
        drafter = ExitHeadDrafter(self._loaded.model, about)
        layers = one.first + self._loaded.architecture.layers - one.landing
        name = f"first {one.first}, from {one.landing}, fitted"
        return self._path(name, drafter, layers, agreement, is_there=False)

    def _head_path(self, head: Head, bench: Bench, judges: Judges) -> Path:
        """The trained head, its vocabulary and where it should stop."""
        about, arch = head.about, self._loaded.architecture
        path = about.first, about.jump
        layers = about.first + arch.layers - about.jump
        vocab = min(about.vocab, bench.tail.vocab)
        tail = bench.tail if about.jump >= bench.tail.first else Tail(
            self._loaded.model, about.jump, vocab
        )  # fmt: skip
        agreement = jump_agreement(self._loaded.model, tail, head, judges.held_out, path)
        judged = judge_jump(tail, head, judges.held_out, first=path[0], landing=path[1])
        cost = bench.costs.draft(layers, vocab / arch.vocab)
        best = prospect(judged, bench.costs, cost)
        self._tuned = vocab, best.stop_below
        tuned = _about(head, first=path[0], jump=path[1], vocab=vocab, stop=best.stop_below)
        name = f"head, first {path[0]}, from {path[1]}"
        return self._path(name, ExitHeadDrafter(self._loaded.model, tuned), layers, agreement)

    def _path(
        self, name: str, drafter: Drafter, layers: int, agreement: dict[float, ByPosition],
        *, exit_layer: int | None = None, is_there: bool = True,
    ) -> Path:  # fmt: skip
        self._tell(f"timing {name}", self.spent)
        self._drafters[name] = drafter
        return Path(
            name=name,
            route=drafter.route,
            layers=layers,
            exit_layer=exit_layer,
            is_there=is_there,
            agreement=agreement,
            costs=route_costs(self._loaded.model, drafter, COSTS_S),
        )

    def _timed(self, report: Report) -> Iterator[Timed]:
        bucket = report.buckets[0]
        arms = [
            Arm(name=path.name, drafter=self._drafters[path.name], k=path.arm(bucket).k)
            for path in worth_timing(report, PATHS_TIMED)
        ]
        cache = self._loaded.model.new_cache(1)
        for number, question in enumerate(self._questions):
            if number and self.spent >= TIMED:
                break
            self._tell(f"real rounds, request {number + 1}", self.spent)
            time_request(self._loaded.model, cache, question, arms)
        yield from (arm.timed() for arm in arms)

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
            head_vocab=vocab,
            stop_below=stop,
        )


def _marks(layers: int) -> Marks:
    """The states that exits and jumps are judged from."""
    jumps = tuple(sorted({layers - tail for tail in TAILS if layers - tail > min(FIRSTS)}))
    firsts = tuple(sorted({*_few(layers), *_exit_layers(layers)}))
    return Marks(firsts=firsts, jumps=jumps or (layers - 1,), layers=layers)


def _few(layers: int) -> tuple[int, ...]:
    return tuple(first for first in FIRSTS if first < layers)


def _exit_layers(layers: int) -> list[int]:
    """Exits from 30 to 80 % of the depth, evenly, no more than are told apart."""
    low, high = max(1, round(EXITS_FROM * layers)), min(layers - 1, round(EXITS_TO * layers))
    steps = min(MOST_EXITS, high - low + 1)
    return sorted({round(low + (high - low) * i / max(1, steps - 1)) for i in range(steps)})


def _about(head: Head, *, first: int, jump: int, vocab: int, stop: float | None = None) -> Head:
    about = msgspec.structs.replace(
        head.about, first=first, jump=jump, vocab=vocab, stop_below=stop or None
    )
    return replace(head, about=about)


def _with(report: Report, **changed: object) -> Report:
    return msgspec.structs.replace(report, **changed)


def _length(sample: Sample) -> int:
    """Tokens of the answer."""
    return sample.tokens - sample.answer_at + 1
