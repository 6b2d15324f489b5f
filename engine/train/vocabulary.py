"""Which token ids drafts score: those that the model's own answers use most, and how many of them.

The head is the widest matrix of a draft step, and few of its rows are ever wanted. An id that the
answers never used comes behind all that they did, in the tokenizer's order, where frequent merges
come first. Plain counting; the size is a choice by the arithmetic of a round.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.train.prospect import PRUNED, StepCosts
from engine.train.samples import Sample

LISTED = 32768
"""Ids that a head's file lists at least, for a calibration that wants more of them."""
_STEP = 2048
_AGREED = 0.65
"""Agreement that the choice of a size assumes inside it."""
_TAIL_LAYERS = 6


def ids_by_use(samples: Sequence[Sample], vocab: int) -> Tensor:  # (vocab,) int64
    """All ids, the most used first."""
    counts = torch.bincount(_meant(samples).cpu(), minlength=vocab)
    return counts.argsort(descending=True, stable=True)


def vocabulary_size(samples: Sequence[Sample], ids: Tensor, vocab: int, costs: StepCosts) -> int:
    """How many of `ids` (of a model with `vocab` ids) the drafts should score, from answers that
    had no say in their order."""
    rank = torch.full((vocab,), vocab)
    rank[ids.cpu()] = torch.arange(len(ids))
    wanted = rank[_meant(samples).cpu()]
    sizes = [*range(_STEP, len(ids), _STEP), len(ids)]
    base = costs.draft((1, PRUNED), (_TAIL_LAYERS, PRUNED), 0.0) + costs.pass_ratio[2]

    def worth(size: int) -> float:
        covered = float((wanted < size).float().mean())
        return (1.0 + _AGREED * covered) / (base + costs.head * size / vocab)

    chosen: int = max(sizes, key=worth)
    return chosen


def _meant(samples: Sequence[Sample]) -> Tensor:
    """What the model says next, all along its answers."""
    return torch.cat([sample.best[sample.best >= 0] for sample in samples])
