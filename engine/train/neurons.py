"""Which neurons of the last layers drafts can't do without: those that the model's own answers use.

A draft step is bound by the bytes it reads, and most of them are feed-forward blocks. What a neuron
adds to the state is its value times its column of `down`, so neurons are ranked by the mean square
of that over exact states of answers. It decides neither how many are kept nor what becomes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.nf4_tiles import BLOCK
from engine.train.agreement import batches
from engine.train.samples import Sample
from engine.train.tail import OwnSlots, Tail, drafting_starts

ENOUGH_TOKENS = 8192
"""As many tokens of answers say which neurons they use."""
_BATCH = 512


@torch.no_grad()
def used_neurons(tail: Tail, samples: Sequence[Sample]) -> dict[int, Tensor]:  # layer -> (F,)
    """What each neuron adds to the state, in mean square, float32."""
    seen = {layer: tail.columns_squared(layer) for layer in tail.layers}
    squares = {layer: torch.zeros_like(one) for layer, one in seen.items()}
    tokens = 0

    def watch(layer: int, neurons: Tensor) -> None:
        squares[layer] += neurons.float().square().sum(dim=0)

    for starts in batches(drafting_starts(samples, 1), _BATCH):
        tail.run(starts.gathered(tail.first), starts, OwnSlots(), step=0, watch=watch)
        tokens += sum(starts.counts)
        if tokens >= ENOUGH_TOKENS:
            break
    return {layer: squares[layer] * seen[layer] / max(1, tokens) for layer in seen}


def kept_of(whole: int, share: float) -> int:
    """This share of so many neurons, as whole blocks; all of them where they are no more."""
    return min(whole, max(BLOCK, round(share * whole / BLOCK) * BLOCK))


def most_used(
    used: Mapping[int, Tensor], share: float, first: int
) -> dict[int, Tensor]:  # layer -> (n,) int64, ascending
    """About this share of the neurons of each layer from `first` on; nothing for all of them."""
    whole = len(next(iter(used.values())))
    count = kept_of(whole, share)
    if count == whole:
        return {}
    tail = {layer: one for layer, one in used.items() if layer >= first}
    return {layer: one.topk(count).indices.sort().values for layer, one in tail.items()}
