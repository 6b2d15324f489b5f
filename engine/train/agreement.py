"""What a jump's drafts are worth on texts that it was not made from.

Drafts are computed as the route computes them: from the second token on, the previous state at the
landing and the keys and values of the drafted tokens are the draft's own. What is counted is how
often the draft's first choice is the full model's, given that the tokens drafted before were those
of the text, and how sure the draft was. It knows no cost.

Invariant: nothing here depends on how the jump was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.train.samples import Sample
from engine.train.tail import OwnSlots, Starts, Tail, drafting_starts

Jump = Callable[[Tensor, Tensor], Tensor]
"""The state after the first layers (n, D), the previous token's at the landing (n, D) -> (n, D)."""
STEPS = 4
"""Drafted tokens that are judged."""
_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Drafts from many starting points, judged token by token."""

    right: Tensor  # (n, steps) bool, the draft's first choice is the full model's
    followed: Tensor  # (n, steps) bool, it is the token of the text, so that the next step counts
    sure: Tensor  # (n, steps) float32, probability of that choice

    @property
    def reached(self) -> Tensor:  # (n, steps) bool
        """Whether all tokens before were those of the text."""
        before = self.followed[:, :-1].cumprod(dim=1).bool()
        return torch.cat((torch.ones_like(self.right[:, :1]), before), dim=1)

    @property
    def by_position(self) -> tuple[float, ...]:
        """Share of right tokens among those reached, by position in the draft."""
        reached = self.reached
        right = (self.right & reached).sum(dim=0) / reached.sum(dim=0).clamp_min(1)
        return tuple(float(share) for share in right)


@torch.no_grad()
def judge_jump(
    tail: Tail,
    jump: Jump,
    samples: Sequence[Sample],
    *,
    first: int,
    landing: int,
    steps: int = STEPS,
) -> Judged:
    """Draft `steps` tokens from every token of the answers of `samples`."""
    kept: tuple[list[Tensor], ...] = ([], [], [])
    for starts in batches(drafting_starts(samples, steps), _TOKENS):
        past, own = starts.gathered(landing, -1), OwnSlots()
        columns = []
        for step in range(steps):
            past = jump(starts.gathered(first, step), past)
            scores = tail.scores(tail.run(past, starts, own, step=step, first=landing))
            top, place = scores.max(dim=-1)
            choice = tail.ids[place]
            columns.append((
                choice == starts.best(step),
                choice == starts.next_ids(step),
                (top - scores.logsumexp(dim=-1)).exp(),
            ))  # fmt: skip
        for column, judged in zip(kept, zip(*columns, strict=True), strict=True):
            column.append(torch.stack(judged, dim=1))
    right, followed, sure = map(torch.cat, kept)
    return Judged(right=right, followed=followed, sure=sure)


def batches(starts: Starts, tokens: int) -> Iterator[Starts]:
    """The same drafts in groups of whole samples, about `tokens` of them each."""
    samples: list[Sample] = []
    at: list[Tensor] = []
    for sample, where in zip(starts.samples, starts.at, strict=True):
        samples.append(sample)
        at.append(where)
        if sum(map(len, at)) >= tokens:
            yield Starts(samples=samples, at=at)
            samples, at = [], []
    if samples:
        yield Starts(samples=samples, at=at)
