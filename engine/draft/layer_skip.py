"""Draft with the target's own first layers: exit at layer L, final norm, LM head (LayerSkip,
Elhoushi et al. 2024, §4.3).

Keys and values of layers 0…L−1 are the target's own and stay; the verify pass starts at layer L.
"""

from __future__ import annotations

from torch import Tensor

from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.draft.loop import draft_by_steps
from engine.model import Model
from engine.protocol import Route
from engine.row import Row


class LayerSkipDrafter:
    """Runs `exit_layer` of the model's layers per drafted token."""

    route: Route = "layer_skip"

    def __init__(self, model: Model, exit_layer: int) -> None:
        self._model = model
        self.reusable_layers = exit_layer

    def evidence(self, row: Row) -> int | None:
        """It can always draft, and knows nothing beforehand."""
        return 0

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """k early exits in a row; leaves k more slots of layers below L written."""
        model = self._model

        def step(token: Tensor) -> tuple[Tensor, Tensor]:
            span = cache.extend(row.cache_row, 1)
            state = model.run_layers(
                model.embed(token), [span], cache, first=0, stop=self.reusable_layers
            )
            return state, model.logits(state)

        return draft_by_steps(row, k, model.device, step)
