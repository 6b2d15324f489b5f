"""The first layer as drafts run it: with a quarter of its neurons, those that answers use most.

Only a single layer before the jump is pruned: it reads nothing but embeddings, so its keys and
values stay exact and the state behind it can be had for a whole text at once. The jump learns from
these states what a draft will give it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.model import Model
from engine.train.neurons import ENOUGH_TOKENS, most_used
from engine.train.prospect import PRUNED
from engine.train.samples import WIDE_TOKENS, Sample
from engine.train.tail import written_out


@torch.no_grad()
def front_neurons(model: Model, samples: Sequence[Sample]) -> dict[int, Tensor]:
    """The neurons that the first layer keeps; none where pruning would leave all."""
    whole = model.architecture.feed_forward
    cache, squares, tokens = model.new_cache(1), torch.zeros(whole, device=model.device), 0
    for sample in samples:
        ids = sample.ids[: min(WIDE_TOKENS, cache.slots)]
        cache.rollback(0, 0)
        span = cache.extend(0, len(ids))
        squares += model.neurons(0, model.embed(ids), [span], cache).float().square().sum(dim=0)
        tokens += len(ids)
        if tokens >= ENOUGH_TOKENS:
            break
    down = written_out(model.layers[0].down, whole, model.embed(ids[:1]))
    return most_used({0: squares * down.columns_squared}, PRUNED, 0)


class Front:
    """The first layer with some of its neurons, run over texts."""

    def __init__(self, model: Model, neurons: Mapping[int, Tensor]) -> None:
        """Without neurons nothing is changed."""
        self.neurons = neurons
        self._model = model.pruned(neurons) if neurons else None
        self._cache: KVCache | None = None

    @torch.no_grad()
    def __call__(self, sample: Sample) -> Sample:
        """The sample with the states that this layer leaves behind it."""
        if self._model is None or 1 not in sample.states:
            return sample
        self._cache = self._cache or self._model.new_cache(1)
        self._cache.rollback(0, 0)
        states = []
        for part in torch.split(sample.ids[:-1], WIDE_TOKENS):
            span, hidden = self._cache.extend(0, len(part)), self._model.embed(part)
            states.append(self._model.run_layers(hidden, [span], self._cache, first=0, stop=1))
        return replace(sample, states={**sample.states, 1: torch.cat(states)})
