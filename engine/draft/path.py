"""A draft path: the layers of the model that a draft runs, and how it gets over the others.

    early exit   [0, L)                 → final norm, head
    exit head    [0, f) → jump → [j, N) → final norm, head

A leg is a run of stock layers; before it, a fitted jump may turn the state so far and the previous
token's exact state at the landing into one that these layers understand. The layers read the exact
keys and values of all earlier tokens from the one cache. What the first leg writes is the target's
own and stays, if its layers are the target's; what the others write is the draft's guess, and the
verify pass writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.draft.loop import draft_by_steps
from engine.model import Model
from engine.row import Row

Jump = Callable[[Tensor, Tensor], Tensor]
"""The state so far (1, D), the previous token's state at the landing (1, D) -> the state there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Layers `first` up to `stop`, entered through `jump` if there is one."""

    first: int
    stop: int
    jump: Jump | None = None
    model: Model | None = None
    """Whose layers these are, if not the path's own model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPath:
    """Legs in order, the first of them from layer 0; one jump at most."""

    model: Model
    legs: Sequence[Leg]
    vocab: int | None = None
    """Scores only so many of the first ids that the last leg's model knows; None: all."""
    ids: Tensor | None = None
    """(m,) int64, what these are, if not the token ids in their order."""
    stop_below: float | None = None
    """See `draft_by_steps`."""

    @property
    def reusable_layers(self) -> int:
        """Layers whose work the verify pass takes over: none of a leg in another model's layers."""
        return self.legs[0].stop if self.legs[0].model is None else 0

    @property
    def tap_layer(self) -> int | None:
        """Where the jump lands."""
        return next((leg.first for leg in self.legs if leg.jump is not None), None)

    def draft(self, row: Row, k: int, cache: KVCache) -> Draft:
        """Up to k tokens; leaves the slots of all but the last one written.

        From the second token on, the previous state at the landing is the draft's own.
        """
        model, landed = self.model, row.tapped

        def step(token: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal landed
            span = cache.extend(row.cache_row, 1)
            hidden = model.embed(token)
            kept = None if self.reusable_layers else hidden
            for leg in self.legs:
                if leg.jump is not None:
                    assert landed is not None, "without a tapped state there is nothing to offer"
                    hidden = landed = leg.jump(hidden, landed)
                layers = leg.model or model
                hidden = layers.run_layers(hidden, [span], cache, first=leg.first, stop=leg.stop)
                kept = hidden if kept is None else kept
            assert kept is not None, "a path has a first leg"
            return kept, (self.legs[-1].model or model).logits(hidden, self.vocab)

        return draft_by_steps(row, k, model, step, ids=self.ids, stop_below=self.stop_below)
