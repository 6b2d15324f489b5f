"""What agreement is worth in time, by what passes and draft steps cost on this machine.

Owns the arithmetic of a round: k drafted tokens cost k draft steps and a pass of k + 1 rows, and
give the accepted ones and one more. Plain numbers and the judged drafts; no model.

Invariant: a prospect of 1 is plain decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from engine.train.agreement import Judged

PRUNED = 0.25
"""Share of the neurons with which a pruned layer is timed; others lie on the line through it."""
THRESHOLDS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)


class StepCosts(Struct, frozen=True, kw_only=True):
    """Times as shares of a plain step."""

    layer: float
    pruned: float
    """A layer with `PRUNED` of its neurons."""
    head: float
    """Of all token ids."""
    jump: float
    overhead: float
    """What a draft step costs beside its layers, jump and head."""
    pass_ratio: Mapping[int, float]
    """Rows → r(rows)."""

    def draft(self, first: tuple[int, float], tail: tuple[int, float], vocab_share: float) -> float:
        """c of a path of so many layers with such shares of their neurons, before the jump and
        after it, scoring this share of the vocabulary."""
        layers = sum(count * self._layer(share) for count, share in (first, tail))
        return layers + self.head * vocab_share + self.jump + self.overhead

    def _layer(self, neuron_share: float) -> float:
        return self.layer - (self.layer - self.pruned) * (1.0 - neuron_share) / (1.0 - PRUNED)


class Prospect(Struct, frozen=True, kw_only=True):
    """The best way to use a jump."""

    speed_up: float
    k: int
    stop_below: float
    draft_cost: float
    tokens_per_round: float


def prospect(judged: Judged, costs: StepCosts, draft_cost: float) -> Prospect:
    """The fastest k and threshold for these drafts, if every starting point were as likely."""
    most = min(judged.right.shape[1], max(costs.pass_ratio) - 1)
    options = (
        _speed(judged, costs, draft_cost, k, threshold)
        for k in range(1, most + 1)
        for threshold in (THRESHOLDS if k > 1 else (0.0,))
    )
    return max(options, key=lambda option: option.speed_up)


def speed_up_of(agreement: Sequence[float], costs: StepCosts, draft_cost: float) -> float:
    """The speed-up at the best fixed k, from agreement by position."""
    expected, chance, best = 1.0, 1.0, 0.0
    for k, share in enumerate(agreement, start=1):
        if k + 1 not in costs.pass_ratio:
            break
        chance *= share
        expected += chance
        best = max(best, expected / (k * draft_cost + costs.pass_ratio[k + 1]))
    return best


def _speed(
    judged: Judged, costs: StepCosts, draft_cost: float, k: int, threshold: float
) -> Prospect:
    """The route's own rule: one more token is drafted while the product of the probabilities so
    far is at least the threshold."""
    trust = judged.sure[:, :k].cumprod(dim=1)
    drafted = 1 + (trust[:, : k - 1] >= threshold).long().cumprod(dim=1).sum(dim=1)
    kept = judged.right[:, :k].long().cumprod(dim=1)
    emitted = 1 + kept.cumsum(dim=1).gather(1, drafted[:, None] - 1)[:, 0]
    passes = sum(
        costs.pass_ratio[rows] * int((drafted == rows - 1).sum()) for rows in range(2, k + 2)
    )
    spent = draft_cost * float(drafted.sum()) + passes
    return Prospect(
        speed_up=float(emitted.sum()) / spent,
        k=k,
        stop_below=threshold,
        draft_cost=draft_cost,
        tokens_per_round=float(emitted.float().mean()),
    )
