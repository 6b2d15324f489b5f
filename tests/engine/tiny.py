"""A random model small enough for laws and properties: built straight from tensors, no files."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.config import Quant
from engine.families import Architecture
from engine.model import Model
from engine.protocol import SamplingParams
from engine.quant import pack
from engine.row import Chain, Row

LOUD, DEAD, CALLED = 7, 9, 11
"""Of `planted`: a neuron with a large column of `down`, one with none, one with large values."""


def tiny_architecture(layers: int = 4, vocab: int = 96, window: int | None = None) -> Architecture:
    """64 wide, two query heads per kv head."""
    half = 8
    return Architecture(
        family="llama",
        layers=layers,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=2 * half,
        feed_forward=128,
        vocab=vocab,
        context_tokens=1024,
        window=window,
        inv_freq=tuple(10_000 ** (-i / half) for i in range(half)),
    )


def tiny_tensors(
    arch: Architecture, quant: Quant, seed: int = 0, dtype: torch.dtype = torch.bfloat16
) -> dict[str, Tensor]:
    """Seeded weights under the names that conversion gives them."""
    random = torch.Generator().manual_seed(seed)

    def matrix(out: int, wide: int) -> Tensor:
        return (torch.randn(out, wide, generator=random) * 2.5 / wide**0.5).to(dtype)

    linears = {"head": matrix(arch.vocab, arch.hidden)}
    tensors = {
        "embed.weight": torch.randn(arch.vocab, arch.hidden, generator=random).to(dtype),
        "final_norm.weight": torch.ones(arch.hidden, dtype=dtype),
    }
    fused = (arch.heads + 2 * arch.kv_heads) * arch.head_dim
    for i in range(arch.layers):
        at = f"layers.{i}"
        tensors[f"{at}.attn_norm.weight"] = torch.ones(arch.hidden, dtype=dtype)
        tensors[f"{at}.mlp_norm.weight"] = torch.ones(arch.hidden, dtype=dtype)
        tensors[f"{at}.qkv.bias"] = torch.randn(fused, generator=random).to(dtype) * 0.1
        linears[f"{at}.qkv"] = matrix(fused, arch.hidden)
        linears[f"{at}.o"] = matrix(arch.hidden, arch.heads * arch.head_dim)
        linears[f"{at}.up"] = matrix(2 * arch.feed_forward, arch.hidden)
        linears[f"{at}.down"] = matrix(arch.hidden, arch.feed_forward)
    for name, weight in linears.items():
        tensors |= {f"{name}.{part}": t for part, t in pack(weight, quant, "cpu").items()}
    return tensors


def tiny_model(
    quant: Quant = "nf4", *, context: int = 512, window: int | None = None, seed: int = 0
) -> Model:
    """A whole random model."""
    arch = tiny_architecture(window=window)
    return Model(arch, tiny_tensors(arch, quant, seed), context_tokens=context)


def new_row(
    prompt: list[int],
    params: SamplingParams | None = None,
    *,
    cache_row: int = 0,
    max_tokens: int = 32,
    stop_ids: frozenset[int] = frozenset(),
) -> Row:
    """A request over raw token ids."""
    tokens = list(prompt)
    return Row(
        id="test",
        tokens=tokens,
        prompt_tokens=len(tokens),
        cache_row=cache_row,
        chain=Chain(params or SamplingParams(), tokens, torch.device("cpu")),
        stop_ids=stop_ids,
        max_tokens=max_tokens,
    )


def planted(layer: int) -> Model:
    """A model with neurons in one layer that matter more than all others, and one that can't."""
    arch = tiny_architecture()
    tensors = tiny_tensors(arch, "none")
    down, up = (tensors[f"layers.{layer}.{name}.dense"] for name in ("down", "up"))
    down[:, LOUD] *= 30
    down[:, DEAD] = 0
    up[arch.feed_forward + CALLED] *= 20
    return Model(arch, tensors, context_tokens=512)


def same_slots(ours: KVCache, theirs: KVCache) -> bool:
    """Whether the first rows hold as many tokens, with the same bits for their keys and values."""
    size, pairs = (
        ours.lengths[0],
        zip((*ours.keys, *ours.values), (*theirs.keys, *theirs.values), strict=True),
    )
    return theirs.lengths[0] == size and all(
        torch.equal(one[0, :, :size], other[0, :, :size]) for one, other in pairs
    )
