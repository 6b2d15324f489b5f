"""Which path to take: every pair of layers by its closed form, judged on held-out answers.

All pairs are looked at briefly, the most promising ones thoroughly. Owns the size of the drafts'
vocabulary as well, for it is a choice by the same arithmetic. It trains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.draft.head_file import Head, HeadAbout, head_of
from engine.train.agreement import judge_jump
from engine.train.moments import LinearJump, Moments
from engine.train.prospect import Prospect, StepCosts, prospect, speed_up_of
from engine.train.samples import Marks, Sample
from engine.train.tail import Tail

BRIEF_TOKENS = 500
THOROUGH = 4
"""Pairs that are judged on all held-out answers."""
EXPECTED_GAIN = 0.2
"""Share of the disagreements that training is expected to remove (measured: 0.23)."""
_VOCAB_STEP = 4096
_GUESS = 0.65
"""Agreement that the choice of a vocabulary assumes inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A jump and what it is worth."""

    first: int
    landing: int
    tensors: Mapping[str, Tensor]
    agreement: tuple[float, ...]
    prospect: Prospect
    fitted: LinearJump | None = None
    """The closed form, where it is one."""

    def hoped(self, costs: StepCosts) -> float:
        """The speed-up to expect once it was trained."""
        better = [share + EXPECTED_GAIN * (1 - share) for share in self.agreement]
        return speed_up_of(better, costs, self.prospect.draft_cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What jumps are judged with."""

    tail: Tail
    held_out: Sequence[Sample]
    costs: StepCosts

    def judged(
        self, first: int, landing: int, tensors: Mapping[str, Tensor],
        fitted: LinearJump | None = None,
    ) -> Candidate:  # fmt: skip
        """One jump on all held-out answers, rounded and packed as it will be used."""
        seen = judge_jump(self.tail, packed(tensors), self.held_out, first=first, landing=landing)
        arch = self.tail.architecture
        cost = self.costs.draft(first + arch.layers - landing, self.tail.vocab / arch.vocab)
        return Candidate(
            first=first,
            landing=landing,
            tensors=tensors,
            agreement=seen.by_position,
            prospect=prospect(seen, self.costs, cost),
            fitted=fitted,
        )

    def briefly(self, first: int, landing: int, fitted: LinearJump) -> float:
        """The speed-up that the first drafted token alone promises, on a few answers."""
        brief: list[Sample] = []
        for sample in self.held_out:
            brief.append(sample)
            if sum(s.tokens - s.answer_at for s in brief) >= BRIEF_TOKENS:
                break
        jump = packed(fitted.tensors())
        seen = judge_jump(self.tail, jump, brief, first=first, landing=landing, steps=1)
        share, arch = seen.by_position[0], self.tail.architecture
        cost = self.costs.draft(first + arch.layers - landing, self.tail.vocab / arch.vocab)
        share += EXPECTED_GAIN * (1 - share)
        return speed_up_of([share, 0.8 * share, 0.7 * share], self.costs, cost)


def candidates(
    moments: Moments, bench: Bench, marks: Marks, wanted: tuple[int, int] | None = None
) -> list[Candidate]:
    """The closed forms of the most promising pairs and of the one `wanted`, the best one first."""
    fitted = {
        (first, landing): moments.solve(first, landing)
        for landing in marks.jumps
        for first in marks.firsts
        if first < landing
    }
    brief = {pair: bench.briefly(*pair, jump) for pair, jump in fitted.items()}
    pairs = sorted(brief, key=lambda pair: brief[pair], reverse=True)
    pairs = [pair for i, pair in enumerate(pairs) if i < THOROUGH or pair == wanted]
    found = [bench.judged(*pair, fitted[pair].tensors(), fitted[pair]) for pair in pairs]
    return sorted(found, key=lambda one: one.prospect.speed_up, reverse=True)


def draft_vocabulary(samples: Sequence[Sample], vocab: int, costs: StepCosts) -> int:
    """How many of the first token ids the drafts should score."""
    meant = torch.cat([s.best[s.best >= 0] for s in samples])
    sizes = [*range(2 * _VOCAB_STEP, vocab, _VOCAB_STEP), vocab]
    base = costs.layer * 4 + costs.jump + costs.overhead + costs.pass_ratio[2]

    def worth(size: int) -> float:
        covered = float((meant < size).float().mean())
        return (1.0 + _GUESS * covered) / (base + costs.head * size / vocab)

    chosen: int = max(sizes, key=worth)
    return chosen


def packed(tensors: Mapping[str, Tensor]) -> Head:
    """A jump as the route runs it."""
    about = HeadAbout(
        model_digest="", first=1, jump=1, vocab=1, agreement=(), made_with={}, stop_below=None
    )
    return head_of(about, {name: t.detach().to(torch.bfloat16) for name, t in tensors.items()})


def described(candidate: Candidate) -> str:
    """A candidate as a note: path, agreement by position, and the speed-up it promises."""
    shares = " / ".join(f"{share:.3f}" for share in candidate.agreement)
    best = candidate.prospect
    return (
        f"first {candidate.first}, from {candidate.landing}: agreement {shares}, "
        f"predicted {best.speed_up:.2f} × plain "
        f"(c {best.draft_cost:.2f}, k {best.k}, stop below {best.stop_below:g})"
    )
