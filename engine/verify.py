"""The acceptance rule: a draft and the target's laws in, accepted tokens and the next one out.

Speculative sampling (Leviathan et al. 2023, §2.3; Chen et al. 2023, Theorem 1): a drafted token x,
drawn from q, is kept with probability min(1, p(x)/q(x)); at the first rejection the next token is
drawn from the residual max(0, p − q), renormalised; when all are kept, one more comes from the law
after the last. Every emitted token then follows p. Three cases bend the formula, not the rule:

- a deterministic draft (copied text) has q = 1 at its token: keep with p(x), and the residual is p
  without x;
- a residual without mass (p = q up to rounding) falls back to p;
- greedy is argmax equality, a function of its own.

Pure: no state, no generator; randomness enters as `uniforms`. Rows may be ragged: positions at or
beyond a row's `lengths` are never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.sampling import draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one round yields for each row."""

    accepted: Tensor  # (B,) int64, drafted tokens kept
    next: Tensor  # (B,) int64, the token after them: recovered, or bonus when all were kept


def accept_greedy(
    tokens: Tensor,  # (B, K) int64, drafted
    lengths: Tensor,  # (B,) int64, how many of them are real
    best: Tensor,  # (B, K + 1) int64, the target's argmax after the context and after each draft
) -> Verdict:
    """Keep drafted tokens as long as each equals the target's own choice."""
    agrees = (tokens == best[:, :-1]) & _inside(lengths, tokens.shape[1])
    accepted = _leading(agrees)
    return Verdict(accepted=accepted, next=best.gather(1, accepted[:, None]).squeeze(1))


def accept_sampled(
    tokens: Tensor,  # (B, K) int64, drafted
    lengths: Tensor,  # (B,) int64
    proposal: Tensor | None,  # (B, K, V) q of each drafted token, or None: deterministic
    target: Tensor,  # (B, K + 1, V) p after the context and after each draft
    uniforms: Tensor,  # (B, K + 1) in [0, 1): K tests, then the draw
) -> Verdict:
    """Keep a prefix by rejection sampling and draw the token that follows it."""
    inside = _inside(lengths, tokens.shape[1])
    ratio = acceptance(tokens, proposal, target[:, :-1])
    accepted = _leading((uniforms[:, :-1] < ratio) & inside)
    rows = torch.arange(tokens.shape[0], device=tokens.device)
    law = target[rows, accepted]  # (B, V)
    rejected = accepted < lengths
    if bool(rejected.any()):
        at = accepted.clamp(max=tokens.shape[1] - 1)
        rest = residual(law, None if proposal is None else proposal[rows, at], tokens[rows, at])
        law = torch.where(rejected[:, None], rest, law)
    return Verdict(accepted=accepted, next=draw(law, uniforms[:, -1]))


def acceptance(
    tokens: Tensor,  # (B, K) int64
    proposal: Tensor | None,  # (B, K, V) or None
    target: Tensor,  # (B, K, V)
) -> Tensor:  # (B, K)
    """min(1, p(x)/q(x)) of every drafted token, had all before it been kept."""
    wanted = target.gather(2, tokens[..., None]).squeeze(2)
    if proposal is None:
        return wanted
    offered = proposal.gather(2, tokens[..., None]).squeeze(2)
    return (wanted / offered.clamp_min(torch.finfo(offered.dtype).tiny)).clamp(max=1.0)


def residual(
    target: Tensor,  # (B, V) p at the rejected position
    proposal: Tensor | None,  # (B, V) q there, or None
    token: Tensor,  # (B,) int64, the rejected token
) -> Tensor:  # (B, V), rows sum to 1
    """max(0, p − q) renormalised; p itself where nothing is left."""
    if proposal is None:
        left = target.scatter(1, token[:, None], 0.0)
    else:
        left = (target - proposal).clamp_min(0.0)
    mass = left.sum(dim=1, keepdim=True)
    return torch.where(mass > 0, left / mass.clamp_min(torch.finfo(mass.dtype).tiny), target)


def _inside(lengths: Tensor, k: int) -> Tensor:  # (B, K) bool
    return torch.arange(k, device=lengths.device) < lengths[:, None]


def _leading(kept: Tensor) -> Tensor:  # (B, K) bool -> (B,) int64
    """How many entries are true before the first false."""
    return kept.cumprod(dim=1).sum(dim=1)
