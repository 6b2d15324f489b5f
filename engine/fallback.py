"""From which context length on drafting is not expected to pay, by what was measured so far.

A forecast for a person to look at; no round depends on it. It knows only routes that were really
tested, at the costs of the nearest context length that was measured. Plain numbers, and looking
changes none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from engine.costs import CostTable, bucket_of, bucket_tokens
from engine.draft_length import MIN_GAIN, MIN_K, Acceptance
from engine.protocol import Route

Record = tuple[Route, int]


def fallback_tokens(
    costs: CostTable,
    records: Mapping[Record, Acceptance],
    tested: Collection[Record],
    *,
    max_k: int,
    limit: int,
) -> int | None:
    """The context from which not even the best tested route would win `MIN_GAIN`.

    None where one does up to `limit`, and where nothing was tested yet. 0: drafting never pays.
    """
    if not tested:
        return None
    looked_at = replace(costs, buckets=dict(costs.buckets))  # looking up a bucket adds it

    def pays(context_tokens: int) -> bool:
        return any(
            records[route, evidence].expected_tokens(k)
            >= MIN_GAIN
            * looked_at.round_ratio(context_tokens, k=k, drafted_by_layers=route == "layer_skip")
            for route, evidence in tested
            for k in range(min(MIN_K, max_k), max_k + 1)
        )

    beginnings = [bucket_tokens(bucket) for bucket in range(bucket_of(limit) + 1)]
    found: int | None = None
    for context_tokens in reversed(beginnings):
        if pays(context_tokens):
            break
        found = context_tokens
    return found
