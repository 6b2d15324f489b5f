"""What passes cost on this machine, as ratios to the one-row pass, by context length.

`r(w)` is the time of a w-row pass ÷ the one-row pass, `c` the time of one drafted token ÷ the same.
Ratios outlive a noisy minute, milliseconds do not: a start measures the ratios once
(`calibrate.py`) and every round refines them, while the one-row pass itself is a moving average of
its own, refreshed by each plain round. Plain numbers, no torch.
"""

from __future__ import annotations

from msgspec import Struct, field

FIRST_BUCKET_TOKENS = 256
UNIT_WEIGHT = 0.1
"""Share of a new plain round in the moving average of the one-row pass."""
RATIO_WEIGHT = 0.05
"""Share of a new speculative round in its ratio: ratios belong to the kernels and move slowly."""
OUTLIER = 2.0
"""A round this many times off its prediction was interrupted, not measured."""


def bucket_of(context_tokens: int) -> int:
    """0 below 256 tokens, then one more per doubling."""
    return (context_tokens // FIRST_BUCKET_TOKENS).bit_length()


def bucket_tokens(bucket: int) -> int:
    """The context length at which a bucket begins (its middle is 1.5 times that)."""
    return FIRST_BUCKET_TOKENS << (bucket - 1) if bucket else 0


class BucketCosts(Struct, kw_only=True):
    """The costs at one range of context lengths."""

    unit_ms: float
    """One plain round: a one-row pass and all that goes with it."""
    pass_ratio: dict[int, float]
    """Rows w → r(w) of a pass through all layers; r(1) = 1."""
    draft_ratio: float
    """c: one layer_skip draft token."""
    tail_ratio: dict[int, float]
    """Rows w → time of the same verify pass that starts at the exit layer, ÷ the one-row pass."""


class CostTable(Struct, kw_only=True):
    """Measured costs of one model on one device, kept between starts."""

    exit_layer: int
    layers: int
    buckets: dict[int, BucketCosts] = field(default_factory=dict)

    def at(self, context_tokens: int) -> BucketCosts:
        """The costs of the nearest measured bucket, copied into its own on first use."""
        bucket = bucket_of(context_tokens)
        if bucket not in self.buckets:
            nearest = min(self.buckets, key=lambda known: (abs(known - bucket), known))
            source = self.buckets[nearest]
            self.buckets[bucket] = BucketCosts(
                unit_ms=source.unit_ms,
                pass_ratio=dict(source.pass_ratio),
                draft_ratio=source.draft_ratio,
                tail_ratio=dict(source.tail_ratio),
            )
        return self.buckets[bucket]

    def round_ratio(self, context_tokens: int, *, k: int, drafted_by_layers: bool) -> float:
        """Predicted time of a round ÷ a plain round: k·c + r(k + 1), with the verify pass starting
        at the exit layer when the draft ran the layers below it."""
        costs = self.at(context_tokens)
        if drafted_by_layers:
            return k * costs.draft_ratio + _between(costs.tail_ratio, k + 1)
        return _between(costs.pass_ratio, k + 1)

    def plain_tokens_per_s(self, context_tokens: int) -> float:
        """Speed of plain decoding at this context length."""
        return 1e3 / self.at(context_tokens).unit_ms

    def observe_plain(self, context_tokens: int, round_ms: float) -> None:
        """Refresh the one-row pass with a plain round that took `round_ms`."""
        costs = self.at(context_tokens)
        bounded = min(round_ms, OUTLIER * costs.unit_ms)
        costs.unit_ms += UNIT_WEIGHT * (bounded - costs.unit_ms)

    def observe_draft(
        self, context_tokens: int, *, k: int, draft_ms: float, rest_ms: float, by_layers: bool
    ) -> None:
        """Refine c and r(k + 1) with a round of k drafted tokens; `rest_ms` is all but drafting."""
        costs = self.at(context_tokens)
        table = costs.tail_ratio if by_layers else costs.pass_ratio
        rest = rest_ms if by_layers else rest_ms + draft_ms
        table[k + 1] = _moved(_between(table, k + 1), rest / costs.unit_ms)
        if by_layers:
            # The last draft token's own lower layers run in the verify step.
            costs.draft_ratio = _moved(costs.draft_ratio, draft_ms / k / costs.unit_ms)


def _moved(old: float, seen: float) -> float:
    bounded = min(max(seen, old / OUTLIER), old * OUTLIER)
    return old + RATIO_WEIGHT * (bounded - old)


def _between(table: dict[int, float], rows: int) -> float:
    """The ratio for `rows`, interpolated between measured row counts, prolonged past the last."""
    if rows in table:
        return table[rows]
    below = max((w for w in table if w < rows), default=None)
    above = min((w for w in table if w > rows), default=None)
    if below is None:
        return table[min(table)]
    if above is None:
        return table[below] * rows / below
    share = (rows - below) / (above - below)
    return table[below] + share * (table[above] - table[below])
