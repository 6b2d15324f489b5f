"""From which context length on drafting is not expected to pay, by what was measured so far.

A forecast for a person to look at; no round depends on it. It knows only routes that were really
tested, at the costs of the nearest context length that was measured. Plain numbers, and looking
changes none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.acceptance import Acceptance
from engine.costs import CostTable, bucket_of, bucket_tokens
from engine.draft_length import MIN_GAIN, best_arm
from engine.protocol import Route


def fallback_tokens(
    costs: CostTable, records: Mapping[tuple[Route, int], Acceptance], *, max_k: int, limit: int
) -> int | None:
    """The context from which not even the best route that was tried would win `MIN_GAIN`.

    None where one does up to `limit`, and where none was tried yet. 0: drafting never pays.
    """
    tried = [(route, record.outlook()) for (route, _), record in records.items() if record.tried]
    if not tried:
        return None

    def pays(context_tokens: int) -> bool:
        at = costs.nearest(bucket_of(context_tokens))
        return any(best_arm(route, outlook, at, max_k).gain >= MIN_GAIN for route, outlook in tried)

    beginnings = [bucket_tokens(bucket) for bucket in range(bucket_of(limit) + 1)]
    found: int | None = None
    for context_tokens in reversed(beginnings):
        if pays(context_tokens):
            break
        found = context_tokens
    return found
