"""What the round knows of a way to draft: whether it has something to offer, and a draft.

A drafter belongs to one request, so its state needs no bookkeeping and ends with the request.
Nothing here names a route; `reusable_layers` and `tap_layer` are the only differences between
routes that the round acts on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor

from engine.acceptance import Prior
from engine.protocol import Route

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """K ≥ 1 tokens proposed to follow the row's last one (none: K = 0 is plain decoding)."""

    tokens: Tensor  # (K,) int64
    probs: Tensor | None  # (K, V), the law each token was really drawn from; None: deterministic
    hidden: Tensor | None
    """(K, D), states after the reusable layers: of the row's last token and of every drafted
    token but the last one. None when no layer's work can be reused."""


class Drafter(Protocol):
    """One way to draft, for one request."""

    route: Route
    reusable_layers: int
    """Layers whose keys, values and states a draft leaves for the verify pass."""
    tap_layer: int | None
    """Wants to know the exact state before this layer of the last token in the cache (the one
    before the pending token), or None."""
    cost_key: str
    """What the time of a draft depends on, beside the model and the machine, in words."""

    def evidence(self, row: Row) -> int | None:
        """How good the next draft promises to be: a class with an acceptance record of its own,
        or None when there is nothing to draft."""
        ...

    def prior(self, evidence: int) -> Prior:
        """What to assume of that class until drafts of it were tested."""
        ...

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """Draft 1 to `k` tokens after the row's last one. Only called after `evidence`."""
        ...

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        """Learn from a round of the row that is over, whatever its route; the row has taken its
        tokens. `state` (1, D) is what was tapped, None if this round's pass could not be."""
        ...


@runtime_checkable
class Guesser(Protocol):
    """A drafter whose drafts take no pass: what it would say is compared with the text that came,
    round by round, whichever route made that text."""

    def guess(self, row: Row, k: int) -> Sequence[int]:
        """What `propose` would draft, up to `k` token ids; changes nothing. Only called after
        `evidence`."""
        ...


def tap_of(drafters: Iterable[Drafter]) -> int | None:
    """The layer whose input some of the drafters want to see."""
    return next((d.tap_layer for d in drafters if d.tap_layer is not None), None)
