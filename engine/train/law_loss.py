"""How far a draft's law is from the full model's, with the gradient of its final states.

Only the draft's ids count: the full model's probabilities of the others are left out, so a position
where it means one of those weighs less. The scores of a whole vocabulary are never kept: loss and
gradient of a few rows are made together, and the rows' scores dropped.

Invariant: the head is frozen; no gradient of it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.train.samples import Sample
from engine.train.tail import Starts, Tail

_ROWS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """The full model's law at the tokens that some drafts run over."""

    probs: Tensor  # (R, vocab)
    entropy: Tensor  # (R,) float32, −Σ p log p over these ids
    rows: Tensor  # (n,) int64, the row of each start; the next token's is one further


@torch.no_grad()
def laws_over(tail: Tail, starts: Starts, steps: int) -> Laws:
    """The laws from each sample's first start to its last draft's last token."""
    probs, entropy, rows, begun = [], [], [], 0
    for sample, at in zip(starts.samples, starts.at, strict=True):
        low, high = int(at.min()), int(at.max()) + steps
        rows.append(at - low + begun)
        begun += high - low
        for part in torch.split(torch.arange(low, high), _ROWS):
            law, entropies = _law(tail, sample, part)
            probs.append(law.to(tail.dtype))
            entropy.append(entropies)
    return Laws(probs=torch.cat(probs), entropy=torch.cat(entropy), rows=torch.cat(rows))


def _law(tail: Tail, sample: Sample, at: Tensor) -> tuple[Tensor, Tensor]:
    final = sample.states[tail.architecture.layers][at]
    log = tail.scores(final) - sample.total[at][:, None]
    law = log.exp()
    return law, -(law * log).sum(dim=-1)


def divergence(tail: Tail, hidden: Tensor, laws: Laws, step: int) -> Tensor:  # ()
    """Mean KL of the draft's law from the full model's, restricted to the draft's ids."""
    rows = laws.rows + step
    crossed: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        tail.normed(hidden), tail, laws.probs, rows
    )
    return crossed - laws.entropy[rows].mean()


class _CrossEntropy(torch.autograd.Function):
    """Mean of −Σ p log q over rows; q is the softmax of the head's first rows."""

    @staticmethod
    def forward(ctx: Any, normed: Tensor, tail: Tail, probs: Tensor, rows: Tensor) -> Tensor:
        scale, total = tail.architecture.logits_scale, normed.new_zeros((), dtype=torch.float32)
        gradient = torch.empty_like(normed)
        for at in torch.split(torch.arange(len(normed)), _ROWS):
            scores = F.linear(normed[at], tail.head.weight, tail.head.bias).float() * scale
            law = probs[rows[at]].float()
            mass, log_sum = law.sum(dim=-1), scores.logsumexp(dim=-1)
            total += (mass * log_sum).sum() - (law * scores).sum()
            excess = (scores - log_sum[:, None]).exp_().mul_(mass[:, None]).sub_(law)
            gradient[at] = (excess.mul_(scale).to(normed.dtype)) @ tail.head.weight
        ctx.save_for_backward(gradient)
        ctx.rows = len(normed)
        return total / len(normed)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * (grad_outputs[0] / ctx.rows).to(gradient.dtype), None, None, None
