"""Draft with the model's own weights at a lower cost: the NF4 twin of an int8 or bf16 target.

The twin has the target's embeddings and, to four bits, its matrices, so it says the same nearly
always. It runs all layers on the target's own cache: it reads the exact keys and values of the text
and writes its approximate ones behind them, which the verify pass overwrites from the first layer
on. Nothing it did is kept, so nothing of it can reach the text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from engine.acceptance import Prior
from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.draft.loop import draft_by_steps
from engine.model import Model
from engine.protocol import Route
from engine.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The same weights in NF4, or why there are none."""

    model: Model | None
    reason: str = ""
    """A clause for a person who asked for the route."""
    remedy: str = ""


NO_TWIN = Twin(
    model=None,
    reason="it was not loaded with this model",
    remedy="Start with --route low_precision.",
)


class LowPrecisionDrafter:
    """Runs the twin for every drafted token."""

    route: Route = "low_precision"
    reusable_layers = 0
    tap_layer: int | None = None
    cost_key = "the whole twin"

    def __init__(self, twin: Model) -> None:
        self._twin = twin

    def evidence(self, row: Row) -> int | None:
        """It can always draft, and knows nothing beforehand."""
        return 0

    def prior(self, evidence: int) -> Prior:
        """Four bits change the most likely token seldom."""
        return Prior(rates=(0.9, 0.9, 0.9), worth=8.0)

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """k tokens; leaves the slots of all but the last one written, not to be kept."""
        twin = self._twin
        layers = twin.architecture.layers

        def step(token: Tensor) -> tuple[Tensor, Tensor]:
            span = cache.extend(row.cache_row, 1)
            state = twin.run_layers(twin.embed(token), [span], cache, first=0, stop=layers)
            return state, twin.logits(state)

        return replace(draft_by_steps(row, k, twin, step), hidden=None)

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        """The weights are all it knows."""
