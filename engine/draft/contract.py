"""What the round knows of a way to draft: whether it has something to offer, and a draft.

A drafter belongs to one request, so its state needs no bookkeeping and ends with the request.
Nothing here names a route; `reusable_layers` is the only difference between routes that the round
acts on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from engine.protocol import Route

if TYPE_CHECKING:
    from engine.cache import KVCache
    from engine.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """K tokens proposed to follow the row's last one."""

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

    def evidence(self, row: Row) -> int | None:
        """How good the next draft promises to be: a class with an acceptance record of its own,
        or None when there is nothing to draft."""
        ...

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """Draft 1 to `k` tokens after the row's last one. Only called after `evidence`."""
        ...
