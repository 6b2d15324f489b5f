"""The operators of `engine/operators.py`, one C function each.

They are the functions that a whole pass in C is made of (`fastpath.py`), so a model may be run
either way and gets the same bits. CPU, bf16, RMS norms, gated feed-forward.

Invariant: row i gets the same bits whatever the number of rows and of spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.cache import KVCache, Span
from engine.native.bindings import Attention, Native
from engine.operators import Norm, Piece

if TYPE_CHECKING:
    from engine.families import Architecture

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}
"""`enum activation`."""
_MOST_HEAD_DIM, _MOST_KV_HEADS = 256, 64
_HEAD_STEP = 32


def supports(arch: Architecture, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the C functions cover this model."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and arch.norm == "rms"
        and arch.gated
        and arch.activation in ACTIVATIONS
        and arch.head_dim % _HEAD_STEP == 0
        and arch.head_dim <= _MOST_HEAD_DIM
        and arch.kv_heads <= _MOST_KV_HEADS
        and arch.hidden % 64 == 0
        and arch.feed_forward % 64 == 0
    )


def attention_scale(arch: Architecture) -> float:
    """What multiplies the scores."""
    return arch.head_dim**-0.5 if arch.attention_scale is None else arch.attention_scale


class NativeOperators:
    """Operators for a model that `supports` accepts."""

    def __init__(self, native: Native, arch: Architecture) -> None:
        self._native, self._arch = native, arch
        self._scratch = torch.zeros(0, dtype=torch.float32)

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
        wide = x.shape[-1]
        self._native.norm_rows(
            x.data_ptr(), norm.weight.data_ptr(), x.numel() // wide, wide, norm.eps, out.data_ptr()
        )
        return out

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
        cos, sin = cos.contiguous(), sin.contiguous()
        self._native.rotate_rows(
            x.data_ptr(), cos.data_ptr(), sin.data_ptr(), *x.shape, out.data_ptr()
        )
        return out

    def activate(self, inner: Tensor) -> Tensor:
        rows, wide = inner.shape[0], inner.shape[1] // 2
        out = inner.new_empty((rows, wide))
        kind = ACTIVATIONS[self._arch.activation]
        self._native.activate_rows(inner.data_ptr(), rows, wide, kind, out.data_ptr())
        return out

    def add(self, hidden: Tensor, x: Tensor, scale: float) -> Tensor:
        out = hidden.clone()
        self._native.add_scaled(out.data_ptr(), x.data_ptr(), out.numel(), scale)
        return out

    def plan(self, spans: Sequence[Span]) -> list[Piece]:
        return [Piece(span=span) for span in spans]

    def attend(self, layer: int, queries: Tensor, piece: Piece, cache: KVCache) -> Tensor:
        arch, threads = self._arch, torch.get_num_threads()
        keys, values = cache.keys[layer][piece.span.row], cache.values[layer][piece.span.row]
        slots = keys.shape[1]
        queries, out = queries.contiguous(), torch.empty(queries.shape, dtype=queries.dtype)
        room = self._native.attend_scratch(arch.heads, arch.kv_heads, arch.head_dim, slots, threads)
        if room > len(self._scratch):
            self._scratch = torch.zeros(room, dtype=torch.float32)
        arguments = Attention(
            q=queries.data_ptr(), k=keys.data_ptr(), v=values.data_ptr(), out=out.data_ptr(),
            scratch=self._scratch.data_ptr(), head_stride=slots * arch.head_dim,
            rows=piece.span.count, start=piece.span.start, window=arch.window or 0,
            heads=arch.heads, kv_heads=arch.kv_heads, head_dim=arch.head_dim,
            scale=attention_scale(arch),
        )  # fmt: skip
        self._native.run_attention(byref(arguments), threads)
        return out
