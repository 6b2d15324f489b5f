"""What rounds cost on this machine, as ratios to a plain round, by context length and route.

`r(w)` is the time of a round that verifies w rows ÷ a plain round, `c` the time of one drafted
token ÷ the same. Ratios outlive a noisy minute, milliseconds do not: a start measures the ratios
once (`calibrate.py`), and rounds refine them by comparing themselves with a plain round of the same
moment, so that a busy machine slows both sides. No route is special here. Plain numbers, no torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from engine.protocol import Route

FIRST_BUCKET_TOKENS = 256
UNIT_WEIGHT = 0.1
"""Share of a new plain round in the moving average of what one takes."""
RATIO_WEIGHT = 0.05
"""Share of a new pair of rounds in their ratio: ratios belong to the kernels and move slowly."""
OUTLIER = 2.0
"""A round this many times off its prediction was interrupted, not measured."""
SAME_MOMENT = 4
"""A round is compared with a plain one that is at most so many rounds away."""
REACH = 3
"""So many row counts to both sides move along, each half as far as the one before."""


def bucket_of(context_tokens: int) -> int:
    """0 below 256 tokens, then one more per doubling."""
    return (context_tokens // FIRST_BUCKET_TOKENS).bit_length()


def bucket_tokens(bucket: int) -> int:
    """The context length at which a bucket begins (its middle is 1.5 times that)."""
    return FIRST_BUCKET_TOKENS << (bucket - 1) if bucket else 0


UNITS_MS = (1e-3, 1e6)
RATIOS = (0.0, 1e4)
"""What lies outside these was not measured; a free draft costs nothing."""
BUCKETS = range(40)


class BucketCosts(Struct, kw_only=True):
    """The costs at one range of context lengths."""

    unit_ms: float
    """One plain round."""
    passes: list[float]
    """r(w) at index w − 1, through all layers; r(1) = 1."""
    drafts: dict[Route, list[float]] = field(default_factory=dict)
    """Route → drafting k tokens at index k − 1; a route that is absent drafts for nothing."""
    rests: dict[Route, list[float]] = field(default_factory=dict)
    """Route → all but drafting of a round of w rows, at index w − 1, for a route whose draft leaves
    layers that need not run again."""

    def draft_ratio(self, route: Route, k: int) -> float:
        """What drafting `k` tokens takes."""
        drafts = self.drafts.get(route)
        return _at(drafts, k) if drafts and k else 0.0

    def rest_ratio(self, route: Route, rows: int) -> float:
        """What the rest of a round of so many rows takes."""
        return _at(self.rests.get(route, self.passes), rows)


class CostTable(Struct, kw_only=True):
    """Measured costs of one model on one device, kept between starts."""

    key: str = ""
    """What they hold for: model, device, threads and versions."""
    shapes: dict[Route, str] = field(default_factory=dict)
    """What each drafting route was when it was measured."""
    buckets: dict[int, BucketCosts] = field(default_factory=dict)
    busy: bool = False
    """Whether the machine had other work while they were measured, which bends the ratios."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for buckets that nobody can have measured, as a damaged file has."""
        for bucket, costs in self.buckets.items():
            _check(bucket in BUCKETS, f"there is no bucket {bucket}")
            low, high = UNITS_MS
            _check(low <= costs.unit_ms <= high, f"a plain round takes {costs.unit_ms} ms")
            for ratios in (costs.passes, *costs.rests.values()):
                _check(bool(ratios) and min(ratios) > 0.0, "a pass takes no time")
            for ratios in (costs.passes, *costs.rests.values(), *costs.drafts.values()):
                within = all(RATIOS[0] <= ratio <= RATIOS[1] for ratio in ratios)
                _check(bool(ratios) and within, "a ratio is missing or out of range")

    def at(self, context_tokens: int) -> BucketCosts:
        """The costs of the nearest measured bucket, copied into its own on first use."""
        bucket = bucket_of(context_tokens)
        if bucket not in self.buckets:
            source = self.nearest(bucket)
            self.buckets[bucket] = replace(
                source,
                passes=list(source.passes),
                drafts={route: list(ratios) for route, ratios in source.drafts.items()},
                rests={route: list(ratios) for route, ratios in source.rests.items()},
            )
        return self.buckets[bucket]

    def nearest(self, bucket: int) -> BucketCosts:
        """The measured costs nearest to a bucket, the lower one of two; changes nothing."""
        return self.buckets[min(self.buckets, key=lambda known: (abs(known - bucket), known))]

    def unit_ms(self, context_tokens: int) -> float:
        """What a plain round takes at this context length."""
        return self.nearest(bucket_of(context_tokens)).unit_ms

    def round_ratio(self, context_tokens: int, *, route: Route, k: int) -> float:
        """Predicted time of a round ÷ a plain round: k·c + r(k + 1), less what the draft saves the
        verify pass."""
        costs = self.nearest(bucket_of(context_tokens))
        return costs.draft_ratio(route, k) + costs.rest_ratio(route, k + 1)

    def plain_tokens_per_s(self, context_tokens: int) -> float:
        """Speed of plain decoding at this context length."""
        return 1e3 / self.unit_ms(context_tokens)

    def observe_plain(self, context_tokens: int, round_ms: float) -> None:
        """Refresh what a plain round takes with one that took `round_ms`."""
        costs = self.at(context_tokens)
        bounded = min(round_ms, OUTLIER * costs.unit_ms)
        costs.unit_ms += UNIT_WEIGHT * (bounded - costs.unit_ms)

    def observe_draft(
        self, context_tokens: int, *, route: Route, k: int, draft: float, rest: float
    ) -> None:
        """Refine c and r(k + 1) with a round of k drafted tokens, given in plain rounds."""
        costs = self.at(context_tokens)
        known = costs.drafts.get(route)
        if known is None:
            rest += draft
        else:
            factor = _factor(_at(known, k), draft)
            known[:] = [ratio * factor for ratio in known]
        table = costs.rests.get(route, costs.passes)
        factor = _factor(_at(table, k + 1), rest)
        for index in range(max(1, k - REACH), min(len(table), k + REACH + 1)):
            table[index] *= factor ** (0.5 ** abs(index - k))


class Pairing:
    """Rounds of one answer, each compared with a plain one of the same moment."""

    def __init__(self, costs: CostTable) -> None:
        self._costs = costs
        self._drafted: deque[_Drafted | None] = deque(maxlen=SAME_MOMENT)
        self._plain_ms: deque[float | None] = deque(maxlen=SAME_MOMENT)

    def see(
        self, context_tokens: int, *, route: Route, k: int, draft_ms: float, round_ms: float
    ) -> None:
        """Take in a round; `k` is what it drafted, 0 for a plain one."""
        if not k:
            round_ms = max(round_ms, 1e-3)  # a clock may stand still
            self._costs.observe_plain(context_tokens, round_ms)
            for earlier in self._drafted:
                if earlier is not None:
                    self._compare(earlier, round_ms)
            self._drafted.clear()
            self._plain_ms.append(round_ms)
            return
        done = _Drafted(
            context=context_tokens, route=route, k=k, draft_ms=draft_ms, round_ms=round_ms
        )
        plain = [ms for ms in self._plain_ms if ms is not None]
        if plain:
            self._compare(done, plain[-1])
        else:
            self._drafted.append(done)
        self._plain_ms.append(None)

    def _compare(self, done: _Drafted, plain_ms: float) -> None:
        self._costs.observe_draft(
            done.context,
            route=done.route,
            k=done.k,
            draft=done.draft_ms / plain_ms,
            rest=(done.round_ms - done.draft_ms) / plain_ms,
        )


class _Drafted(Struct, frozen=True, kw_only=True):
    context: int
    route: Route
    k: int
    draft_ms: float
    round_ms: float


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def between(measured: Mapping[int, float], most: int) -> list[float]:
    """Values for 1…`most` at index n − 1, in a line between those that were measured, in
    proportion to n past the last of them."""
    known = sorted(measured)
    dense: list[float] = []
    for n in range(1, most + 1):
        below = max((w for w in known if w <= n), default=known[0])
        above = min((w for w in known if w >= n), default=None)
        if above is None:
            dense.append(measured[below] * n / below)
        elif above == below or n < below:
            dense.append(measured[below])
        else:
            share = (n - below) / (above - below)
            dense.append(measured[below] + share * (measured[above] - measured[below]))
    return dense


def _at(ratios: Sequence[float], count: int) -> float:
    if count <= len(ratios):
        return ratios[count - 1]
    return ratios[-1] * count / len(ratios)


def _factor(old: float, seen: float) -> float:
    """What to multiply a ratio by after a pair of rounds showed `seen`."""
    bounded = min(max(seen, old / OUTLIER), old * OUTLIER)
    return (old + RATIO_WEIGHT * (bounded - old)) / old
