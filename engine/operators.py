"""What lies between a layer's matrices, in torch: norm, rotation, activation, residual, attention.

`model.py` calls `Operators`; this is the form that runs on every device. The same in C is
`native/operators.py`, and a process uses one of them for everything it compares.

Invariant: in a span of at most `EXACT_ROWS` tokens, row i gets the same bits whatever the number of
rows. Attention keeps it by treating every query as a batch entry of its own over slots padded to a
multiple of 64 and masked, and by cutting a span where that multiple changes: the kernel's blocking
then depends on the position alone. Wider spans (prefill) take one causal call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import KVCache, Span
from engine.families import Architecture
from engine.linear import EXACT_ROWS

SLOT_BLOCK = 64
"""Attention reads whole blocks of slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """RMS or layer norm."""

    weight: Tensor  # (D,) or (E,)
    bias: Tensor | None
    eps: float
    rms: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        size = self.weight.shape
        if self.rms:
            return F.rms_norm(x, size, self.weight, self.eps)
        return F.layer_norm(x, size, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens whose attention is one call."""

    span: Span
    mask: Tensor | None = None  # broadcastable to the scores, where the operator needs one


class Operators(Protocol):
    """The operators of one model."""

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        """Normalise the last dimension."""
        ...

    def rotate(
        self,
        x: Tensor,  # (T, heads, E)
        cos: Tensor,  # (T, E)
        sin: Tensor,  # (T, E), sign of the rotation folded in
    ) -> Tensor:
        """Rotary embedding (Su et al. 2021, §3.4.2, halves instead of pairs)."""
        ...

    def activate(self, inner: Tensor) -> Tensor:  # (T, F) or (T, 2F), gate first -> (T, F)
        """The feed-forward's activation, times what it gates."""
        ...

    def add(self, hidden: Tensor, x: Tensor, scale: float) -> Tensor:
        """hidden + scale · x."""
        ...

    def plan(self, spans: Sequence[Span]) -> list[Piece]:
        """The spans' tokens, in order, as calls of `attend`; shared by all layers of a pass."""
        ...

    def attend(
        self, layer: int, queries: Tensor, piece: Piece, cache: KVCache
    ) -> Tensor:  # (T, H, E) both
        """Attention of a piece's queries over its row; keys and values are already written."""
        ...


class TorchOperators:
    """Every device, dtype and family."""

    def __init__(self, arch: Architecture, dtype: torch.dtype, device: torch.device) -> None:
        self._arch, self._dtype, self._device = arch, dtype, device

    def norm(self, x: Tensor, norm: Norm) -> Tensor:
        return norm(x)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=-1)
        turned = torch.cat((right, left), dim=-1)
        return torch.addcmul(x * cos[:, None], turned, sin[:, None])

    def activate(self, inner: Tensor) -> Tensor:
        kind = self._arch.activation
        if not self._arch.gated:
            return F.gelu(inner, approximate="tanh" if kind == "gelu_tanh" else "none")
        gate, up = inner.chunk(2, dim=-1)
        if kind == "silu":
            return F.silu(gate).mul_(up)
        return F.gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none").mul_(up)

    def add(self, hidden: Tensor, x: Tensor, scale: float) -> Tensor:
        return torch.add(hidden, x, alpha=scale)

    def plan(self, spans: Sequence[Span]) -> list[Piece]:
        pieces = [piece for span in spans for piece in self._pieces(span)]
        return [Piece(span=piece, mask=self._mask(piece)) for piece in pieces]

    def attend(self, layer: int, queries: Tensor, piece: Piece, cache: KVCache) -> Tensor:
        arch, span = self._arch, piece.span
        first, stop = _slots_read(span, arch.window)
        keys, values = cache.view(layer, span.row, first, stop)
        if span.count <= EXACT_ROWS:
            grouped = queries.reshape(span.count, arch.kv_heads, -1, arch.head_dim)
            expand = (span.count, -1, -1, -1)
            return F.scaled_dot_product_attention(
                grouped, keys.expand(expand), values.expand(expand), piece.mask,
                scale=arch.attention_scale,
            ).view(queries.shape)  # fmt: skip
        return F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None], keys, values, piece.mask,
            scale=arch.attention_scale, enable_gqa=arch.heads != arch.kv_heads,
        )[0].transpose(0, 1)  # fmt: skip

    def _pieces(self, span: Span) -> list[Span]:
        """A narrow span cut so that all tokens of a piece read the same slots.

        Masked slots add nothing, but the kernel sums 192 slots in another order than 256: a token
        must not read more of them because a later one needs them.
        """
        window = self._arch.window
        if span.count > EXACT_ROWS:
            return [span]
        tokens = [Span(row=span.row, start=at, count=1) for at in range(span.start, span.end)]
        alike = (list(group) for _, group in groupby(tokens, lambda t: _slots_read(t, window)))
        return [Span(row=span.row, start=g[0].start, count=len(g)) for g in alike]

    def _mask(self, span: Span) -> Tensor:
        """0 where a query may look, −∞ elsewhere: (T, 1, 1, slots) for narrow spans, (T, slots)
        for wide ones."""
        first, stop = _slots_read(span, self._arch.window)
        position = torch.arange(span.start, span.end, device=self._device)[:, None]
        slot = torch.arange(first, stop, device=self._device)
        seen = slot <= position
        if self._arch.window is not None:
            seen &= slot > position - self._arch.window
        mask = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
        mask.masked_fill_(~seen, -torch.inf)
        return mask[:, None, None] if span.count <= EXACT_ROWS else mask


def _slots_read(span: Span, window: int | None) -> tuple[int, int]:
    """The slots that a span's attention reads, both ends on block borders (the cache's size is a
    multiple of the block)."""
    stop = -(-span.end // SLOT_BLOCK) * SLOT_BLOCK
    if window is None:
        return 0, stop
    return max(0, span.start - window + 1) // SLOT_BLOCK * SLOT_BLOCK, stop
