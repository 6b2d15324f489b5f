"""Training a jump through the frozen last layers against the full model's own law.

Every batch drafts a few tokens from each token of some answers, the later ones on the draft's own
states, and compares every draft's law with the full model's at the same place. Time decides how
long: the learning rate falls to zero with the budget, and held-out answers say when it no longer
pays.

Invariant: only the jump changes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from engine.train.agreement import batches
from engine.train.jump_net import JumpNet
from engine.train.law_loss import divergence, laws_over
from engine.train.samples import Sample
from engine.train.tail import OwnSlots, Starts, Tail, drafting_starts

logger = logging.getLogger(__name__)

STEP_WEIGHTS = (1.0, 0.6, 0.35)
"""How much the 1st, 2nd, 3rd drafted token counts: about as often as each is reached."""
BATCH_TOKENS = 768
LEARNING_RATE = 6e-4
WARM_UP = 0.03
"""Share of the time in which the learning rate rises."""


class Distiller:
    """Trains the jump of one path; each `step` is one batch."""

    def __init__(
        self, tail: Tail, net: JumpNet, samples: Sequence[Sample], *, first: int, landing: int,
        learning_rate: float = LEARNING_RATE,
    ) -> None:  # fmt: skip
        self._tail, self._net, self._samples = tail, net, samples
        self._first, self._landing = first, landing
        self._rate = learning_rate
        self._optimizer = torch.optim.AdamW(net.parameters(), lr=learning_rate, weight_decay=0.01)
        self._random = torch.Generator().manual_seed(0)
        self._batches: Iterator[Starts] = iter(())
        self.epochs = 0

    def step(self, progress: float) -> float:
        """One batch at this share of the budget (0 to 1); the weighted divergence before it."""
        starts = self._next()
        loss = self._loss(starts)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * _schedule(progress)
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _loss(self, starts: Starts) -> Tensor:
        steps = len(STEP_WEIGHTS)
        laws = laws_over(self._tail, starts, steps)
        jump, own = self._net.prepared(), OwnSlots()
        past, loss = starts.gathered(self._landing, -1), torch.zeros((), device=laws.rows.device)
        for step, weight in enumerate(STEP_WEIGHTS):
            past = jump(starts.gathered(self._first, step), past)
            hidden = self._tail.run(past, starts, own, step=step, first=self._landing)
            loss = loss + weight * divergence(self._tail, hidden, laws, step)
        return loss / sum(STEP_WEIGHTS)

    def _next(self) -> Starts:
        found = next(self._batches, None)
        if found is None:
            order = torch.randperm(len(self._samples), generator=self._random).tolist()
            shuffled = [self._samples[i] for i in order]
            self._batches = batches(drafting_starts(shuffled, len(STEP_WEIGHTS)), BATCH_TOKENS)
            self.epochs += 1
            found = next(self._batches)
        return found


def _schedule(progress: float) -> float:
    """Rises, then falls as a cosine to zero."""
    if progress < WARM_UP:
        return max(progress / WARM_UP, 0.05)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def distil(
    distiller: Distiller,
    *,
    progress: Callable[[], float],
    judge: Callable[[], float],
    tell: Callable[[float, float], None],
    checks: int = 8,
    patience: int = 3,
) -> None:
    """Train until `progress` reaches 1, or `judge` (higher is better) has not grown for `patience`
    checks; `tell` gets the mean loss since the last check and what `judge` said."""
    best, stalled, losses = judge(), 0, []
    next_check = progress() + (1 - progress()) / checks
    apart = next_check - progress()
    while (now := progress()) < 1.0:
        losses.append(distiller.step(now))
        if progress() < next_check:
            continue
        next_check = progress() + apart
        found = judge()
        tell(sum(losses) / len(losses), found)
        losses = []
        stalled = 0 if found > best * 1.002 else stalled + 1
        best = max(best, found)
        if stalled >= patience:
            logger.info("held-out gain has stalled")
            return
