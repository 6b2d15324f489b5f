"""Draft with the target's own first layers: exit at layer L, final norm, LM head (LayerSkip,
Elhoushi et al. 2024, §4.3): the draft path without a jump.

Keys and values of layers 0…L−1 are the target's own and stay; the verify pass starts at layer L.
"""

from __future__ import annotations

from torch import Tensor

from engine.acceptance import Prior
from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.draft.path import DraftPath, Leg
from engine.model import Model
from engine.protocol import Route
from engine.row import Row


class LayerSkipDrafter:
    """Runs `exit_layer` of the model's layers per drafted token."""

    route: Route = "layer_skip"
    tap_layer: int | None = None

    def __init__(self, model: Model, exit_layer: int) -> None:
        self._path = DraftPath(model=model, legs=(Leg(first=0, stop=exit_layer),))
        self.reusable_layers = exit_layer
        self.cost_key = f"the first {exit_layer} layers"

    def evidence(self, row: Row) -> int | None:
        """It can always draft; how well is another matter for every exit."""
        return self.reusable_layers

    def prior(self, evidence: int) -> Prior:
        """As hopeless as it measures on stock weights; a model trained for it shows otherwise."""
        return Prior(rates=(0.2, 0.3, 0.3), worth=6.0)

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """k early exits in a row."""
        return self._path.draft(row, k, cache)

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        """The model's own layers have nothing to learn."""
