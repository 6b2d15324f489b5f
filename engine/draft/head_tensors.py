"""The tensors of a head's file: the lists of neurons among them, and whether they all fit a model.

It reads and packs nothing. Invariant: for tensors that fit, `neurons_of` and what is made of them
can't fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.families import Architecture
from engine.nf4_tiles import BLOCK, TILE_ROWS

if TYPE_CHECKING:
    from engine.draft.head_file import HeadAbout

_NEURONS = "neurons."


def neurons_of(tensors: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The neurons that are kept by layer, as indices; empty where nothing is pruned."""
    return {
        int(name.removeprefix(_NEURONS)): kept.long()
        for name, kept in tensors.items()
        if name.startswith(_NEURONS)
    }


def neuron_tensors(neurons: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """The same as a file keeps them."""
    return {f"{_NEURONS}{layer}": kept.to(torch.int32) for layer, kept in neurons.items()}


def parted(neurons: Mapping[int, Tensor], jump: int) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Those of the layers before the jump, and those of the layers it leads to."""
    front = {layer: kept for layer, kept in neurons.items() if layer < jump}
    return front, {layer: kept for layer, kept in neurons.items() if layer >= jump}


def misfit(about: HeadAbout, tensors: Mapping[str, Tensor], arch: Architecture) -> str:
    """What does not fit this architecture, as a clause; empty when all does."""
    if not 1 <= about.first <= about.jump < arch.layers:
        return f"it jumps from layer {about.first} to {about.jump} of {arch.layers}"
    if not 0 < about.vocab <= arch.vocab or (about.vocab % TILE_ROWS and about.vocab < arch.vocab):
        return f"it scores {about.vocab} of {arch.vocab} token ids"
    wide = arch.hidden
    shapes: dict[str, tuple[int, ...]] = {"jump.weight": (wide, 2 * wide), "jump.bias": (wide,)}
    if "net.up" in tensors:
        inner = tensors["net.up"].shape[0]
        shapes |= {"net.up": (inner, 2 * wide), "net.down": (wide, inner)}
    for name, shape in shapes.items():
        found = tuple(tensors[name].shape) if name in tensors else "missing"
        if found != shape:
            return f"{name} is {found}, not {shape}"
    return _no_lists(tensors) or _misplaced(about, tensors, arch)


def _no_lists(tensors: Mapping[str, Tensor]) -> str:
    for name, listed in tensors.items():
        if name == "ids" or name.startswith(_NEURONS):
            numbered = name == "ids" or name.removeprefix(_NEURONS).isdecimal()
            if listed.dtype != torch.int32 or listed.dim() != 1 or not numbered:
                return f"{name} is no list of numbers"
    return ""


def _misplaced(about: HeadAbout, tensors: Mapping[str, Tensor], arch: Architecture) -> str:
    """The same for the lists, which are lists."""
    ids = tensors.get("ids")
    if ids is not None and not _are_ids(ids.tolist(), about.vocab, arch.vocab):
        return f"its {len(ids)} token ids are not {about.vocab} or more different ones"
    front, tail = parted(neurons_of(tensors), about.jump)
    if front and (about.first, [*front]) != (1, [0]):
        return f"it prunes the layers {sorted(front)} of the {about.first} before the jump"
    if tail and sorted(tail) != list(range(about.jump, arch.layers)):
        return f"it prunes the layers {sorted(tail)}, and drafts run those from {about.jump} on"
    return _stray(front, arch) or _stray(tail, arch)


def _are_ids(ids: list[int], least: int, vocab: int) -> bool:
    return len(ids) >= least and len({*ids}) == len(ids) and 0 <= min(ids) <= max(ids) < vocab


def _stray(neurons: Mapping[int, Tensor], arch: Architecture) -> str:
    """The same for the neurons that are kept on one side of the jump."""
    counts = {len(kept) for kept in neurons.values()}
    if neurons and (len(counts) > 1 or min(counts) % BLOCK or not min(counts)):
        return f"it keeps {sorted(counts)} neurons, not one multiple of {BLOCK} everywhere"
    for layer, kept in neurons.items():
        if not 0 <= int(kept.min()) <= int(kept.max()) < arch.feed_forward:
            return f"it keeps a neuron of layer {layer} beyond the {arch.feed_forward} there are"
    return ""
