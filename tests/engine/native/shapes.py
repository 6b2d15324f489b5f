"""Tiny models with the traits of real families, in widths that the kernels take."""

from __future__ import annotations

import torch
from msgspec.structs import replace
from torch import Tensor

from engine.families import Architecture
from tests.engine.tiny import tiny_architecture, tiny_tensors

CONTEXT = 640


def _shaped(heads: int, kv_heads: int, head_dim: int, **traits: object) -> Architecture:
    half = head_dim // 2
    return replace(
        tiny_architecture(layers=2, vocab=100),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        inv_freq=tuple(10_000 ** (-i / half) for i in range(half)),
        **traits,
    )


SHAPES = {
    "llama": _shaped(4, 4, 64, hidden=256, feed_forward=192),
    "qwen2": _shaped(6, 2, 64, hidden=128, feed_forward=320),
    "qwen3": _shaped(4, 2, 128, hidden=192, qk_norm=True),
    "gemma": _shaped(
        2, 1, 256, hidden=128, norm_offset=1.0, activation="gelu_tanh", embedding_scale=128**0.5
    ),
    "smollm": _shaped(9, 3, 64, hidden=576, feed_forward=128),
    "granite": _shaped(
        4, 2, 32, hidden=128, residual_scale=0.22, attention_scale=0.03, logits_scale=0.125
    ),
    "mistral": _shaped(4, 2, 64, hidden=128, window=100),
}


def tensors_of(arch: Architecture) -> dict[str, Tensor]:
    """Seeded weights in NF4 tiles, with q/k norms where the shape has them."""
    random = torch.Generator().manual_seed(5)
    tensors = tiny_tensors(arch, "nf4")
    for index in range(arch.layers if arch.qk_norm else 0):
        for name in ("q_norm", "k_norm"):
            weight = 1 + 0.1 * torch.randn(arch.head_dim, generator=random)
            tensors[f"layers.{index}.{name}.weight"] = weight.to(torch.bfloat16)
    return tensors
