"""Which path to take: every pair of layers by its closed form, judged on held-out answers.

All pairs are looked at briefly, the most promising ones thoroughly, each with the share of its
neurons that pays. It trains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.draft.head_file import Head, HeadAbout, head_of
from engine.draft.head_tensors import neuron_tensors, neurons_of, parted
from engine.train.agreement import judge_jump
from engine.train.moments import LinearJump, Moments
from engine.train.neurons import most_used
from engine.train.order import SHARES
from engine.train.prospect import PRUNED, Prospect, StepCosts, prospect, speed_up_of
from engine.train.samples import Marks, Sample
from engine.train.tail import Tail

if TYPE_CHECKING:
    from engine.native.bindings import Native

BRIEF_TOKENS = 500
THOROUGH = 4
"""Pairs that are judged on all held-out answers."""
EXPECTED_GAIN = 0.2
"""Share of the disagreements that training is expected to remove (measured: 0.23)."""


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
    used: Mapping[int, Tensor]
    """What each neuron of the tail's layers adds, see `used_neurons`."""
    front: Mapping[int, Tensor] = field(default_factory=dict)
    """The neurons of the first layer that the samples have gone through."""
    shares: Sequence[float] = SHARES
    listed: Tensor = field(default_factory=partial(torch.empty, 0))
    """Token ids as a head's file lists them."""

    def tail_of(self, tensors: Mapping[str, Tensor]) -> Tail:
        """The last layers with the neurons that a head keeps."""
        _, neurons = parted(neurons_of(tensors), self.tail.first)
        return self.tail.pruned(neurons) if neurons else self.tail

    def draft_cost(self, first: int, landing: int, tensors: Mapping[str, Tensor]) -> float:
        """c of a path."""
        arch = self.tail.architecture
        front, tail = (
            max(map(len, kept.values()), default=arch.feed_forward) / arch.feed_forward
            for kept in parted(neurons_of(tensors), landing)
        )
        share = self.tail.vocab / arch.vocab
        return self.costs.draft((first, front), (arch.layers - landing, tail), share)

    def judged(
        self, first: int, landing: int, tensors: Mapping[str, Tensor],
        fitted: LinearJump | None = None,
    ) -> Candidate:  # fmt: skip
        """One jump on all held-out answers, rounded and packed as it will be used."""
        tail, cost = self.tail_of(tensors), self.draft_cost(first, landing, tensors)
        jump = packed(tensors, self.tail.native)
        seen = judge_jump(tail, jump, self.held_out, first=first, landing=landing)
        return Candidate(
            first=first,
            landing=landing,
            tensors=tensors,
            agreement=seen.by_position,
            prospect=prospect(seen, self.costs, cost),
            fitted=fitted,
        )

    def pruned(
        self, fitted: LinearJump, first: int, landing: int, share: float
    ) -> dict[str, Tensor]:
        """A closed form of this path, and the neurons that its layers keep."""
        front = self.front if first == 1 else {}
        return fitted.tensors() | neuron_tensors({**front, **most_used(self.used, share, landing)})

    def briefly(self, first: int, landing: int, tensors: Mapping[str, Tensor]) -> float:
        """The speed-up that the first drafted token alone promises, on a few answers."""
        brief: list[Sample] = []
        for sample in self.held_out:
            brief.append(sample)
            if sum(s.tokens - s.answer_at for s in brief) >= BRIEF_TOKENS:
                break
        tail, cost = self.tail_of(tensors), self.draft_cost(first, landing, tensors)
        jump = packed(tensors, tail.native)
        seen = judge_jump(tail, jump, brief, first=first, landing=landing, steps=1)
        share = seen.by_position[0]
        share += EXPECTED_GAIN * (1 - share)
        return speed_up_of([share, 0.8 * share, 0.7 * share], self.costs, cost)


def candidates(
    moments: Moments, bench: Bench, marks: Marks, wanted: tuple[int, int] | None = None
) -> list[Candidate]:
    """The closed forms of the most promising pairs and of the one `wanted`, each with the share of
    its neurons that promises most, the best one first."""
    fitted = {
        (first, landing): moments.solve(first, landing)
        for landing in marks.jumps
        for first in marks.firsts
        if first < landing
    }

    def promise(pair: tuple[int, int], share: float) -> float:
        return bench.briefly(*pair, bench.pruned(fitted[pair], *pair, share))

    usual = min(bench.shares, key=lambda share: abs(share - PRUNED))
    brief = {pair: promise(pair, usual) for pair in fitted}
    pairs = sorted(brief, key=lambda pair: brief[pair], reverse=True)
    found = []
    for i, pair in enumerate(pairs):
        if i < THOROUGH or pair == wanted:
            share = max(bench.shares, key=partial(promise, pair))
            tensors = bench.pruned(fitted[pair], *pair, share)
            found.append(bench.judged(*pair, tensors, fitted[pair]))
    return sorted(found, key=lambda one: one.prospect.speed_up, reverse=True)


def packed(tensors: Mapping[str, Tensor], native: Native | None = None) -> Head:
    """A jump as the route runs it, with the C kernels or without."""
    about = HeadAbout(
        model_digest="", first=1, jump=1, vocab=1, agreement=(), made_with={}, stop_below=None
    )
    rounded = {name: _rounded(tensor) for name, tensor in tensors.items()}
    return head_of(about, rounded, native=native)


def _rounded(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.bfloat16 if tensor.is_floating_point() else tensor.dtype)


def described(candidate: Candidate) -> str:
    """A candidate as a note: path, agreement by position, and the speed-up it promises."""
    shares = " / ".join(f"{share:.3f}" for share in candidate.agreement)
    best, (_, kept) = (
        candidate.prospect,
        parted(neurons_of(candidate.tensors), candidate.landing),
    )
    neurons = f" with {len(next(iter(kept.values()))):,} neurons" if kept else ""
    return (
        f"first {candidate.first}, from {candidate.landing}{neurons}: agreement {shares}, "
        f"predicted {best.speed_up:.2f} × plain "
        f"(c {best.draft_cost:.2f}, k {best.k}, stop below {best.stop_below:g})"
    )
