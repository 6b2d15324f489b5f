"""The target as three functions: `embed`, `run_layers(first, stop)` and `logits`.

Everything that differs between families is a value of `Architecture`. The passes work on flat
tokens: the spans of all rows one after another, so that a batch of ragged rows, a draft step and a
verify pass are the same call. Transformers' modules are never built; the tests hold this forward
to theirs for every family.

Invariant: in a span of at most `EXACT_ROWS` tokens, row i gets the same bits whatever the number of
rows. Attention keeps it by treating every query as a batch entry of its own over slots padded to a
multiple of 64 and masked, and by cutting a span where that multiple changes: the kernel's blocking
then depends on the position alone. Wider spans (prefill) take one causal call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import KVCache, Span
from engine.families import Architecture
from engine.quant import EXACT_ROWS, Linear, unpack

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
class Layer:
    """One decoder layer's weights; `qkv` and `up` (gate first) are fused."""

    attn_norm: Norm
    qkv: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    o: Linear
    mlp_norm: Norm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """What every layer of one pass shares."""

    spans: Sequence[Span]
    cos: Tensor  # (T, 1, E)
    sin: Tensor  # (T, 1, E), sign of the rotation folded in
    masks: Sequence[Tensor]  # per span, broadcastable to its attention scores


class Model:
    """A decoder-only model that can be run in spans of layers."""

    def __init__(
        self,
        architecture: Architecture,
        tensors: Mapping[str, Tensor],
        *,
        context_tokens: int,
    ) -> None:
        """Build from the tensors that `convert.py` names; all on one device."""
        self.architecture = architecture
        self.context_tokens = context_tokens
        self._embedding = tensors["embed.weight"]  # (V, D)
        self.dtype, self.device = self._embedding.dtype, self._embedding.device
        self.layers = [_layer(architecture, tensors, i) for i in range(architecture.layers)]
        self.final_norm = _norm(architecture, tensors, "final_norm")
        self.head = _linear(tensors, "head")
        self._cos, self._sin = _rotary_table(architecture, context_tokens + SLOT_BLOCK)
        self._cos = self._cos.to(self.device, self.dtype)
        self._sin = self._sin.to(self.device, self.dtype)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all matrices that a token passes through, and of the embedding table."""
        linears = [m for layer in self.layers for m in (layer.qkv, layer.o, layer.up, layer.down)]
        return self._embedding.nbytes + sum(m.nbytes for m in (*linears, self.head))

    def new_cache(self, rows: int) -> KVCache:
        """An empty cache of this model's shape and context."""
        return KVCache(
            self.architecture,
            rows=rows,
            slots=self.context_tokens,
            dtype=self.dtype,
            device=self.device,
            block=SLOT_BLOCK,
        )

    def embed(
        self,
        ids: Tensor,  # (T,) int64
    ) -> Tensor:  # (T, D)
        """Token embeddings."""
        hidden = F.embedding(ids, self._embedding)
        scale = self.architecture.embedding_scale
        return hidden if scale == 1.0 else hidden * torch.tensor(scale, dtype=self.dtype)

    def run_layers(
        self,
        hidden: Tensor,  # (T, D), the tokens of all spans in order
        spans: Sequence[Span],
        cache: KVCache,
        *,
        first: int,
        stop: int,
    ) -> Tensor:  # (T, D)
        """Run layers `first` up to `stop`, writing keys and values into the spans' slots."""
        shared = self._prepare([piece for span in spans for piece in self._pieces(span)])
        for index in range(first, stop):
            hidden = self._run_layer(index, hidden, shared, cache)
        return hidden

    def logits(
        self,
        hidden: Tensor,  # (T, D), of any layer: the final norm is part of this function
    ) -> Tensor:  # (T, V)
        """Scores of the next token, straight from a hidden state."""
        scores = self.head(self.final_norm(hidden))
        scale = self.architecture.logits_scale
        return scores if scale == 1.0 else scores * scale

    def _run_layer(self, index: int, hidden: Tensor, shared: _Pass, cache: KVCache) -> Tensor:
        layer, scale = self.layers[index], self.architecture.residual_scale
        attended = layer.o(self._attend(index, layer.attn_norm(hidden), shared, cache))
        hidden = torch.add(hidden, attended, alpha=scale)
        inner = layer.up(layer.mlp_norm(hidden))
        return torch.add(hidden, layer.down(self._activate(inner)), alpha=scale)

    def _activate(self, inner: Tensor) -> Tensor:  # (T, F) or (T, 2F) -> (T, F)
        kind = self.architecture.activation
        if not self.architecture.gated:
            return F.gelu(inner, approximate="tanh" if kind == "gelu_tanh" else "none")
        gate, up = inner.chunk(2, dim=-1)
        if kind == "silu":
            return F.silu(gate).mul_(up)
        return F.gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none").mul_(up)

    def _attend(self, index: int, x: Tensor, shared: _Pass, cache: KVCache) -> Tensor:
        arch, layer = self.architecture, self.layers[index]
        heads = layer.qkv(x).view(x.shape[0], -1, arch.head_dim)  # (T, H + 2G, E)
        turned = heads[:, : arch.heads + arch.kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = torch.split(turned, [arch.heads, arch.kv_heads], dim=1)
            turned = torch.cat((layer.q_norm(queries), layer.k_norm(keys)), dim=1)
        turned = _rotate(turned, shared.cos, shared.sin)
        queries, keys = turned[:, : arch.heads], turned[:, arch.heads :]
        values = heads[:, arch.heads + arch.kv_heads :]
        counts = [span.count for span in shared.spans]
        attended = []
        for span, mask, q, k, v in zip(
            shared.spans, shared.masks, torch.split(queries, counts), torch.split(keys, counts),
            torch.split(values, counts), strict=True,
        ):  # fmt: skip
            cache.write(index, span, k, v)
            attended.append(self._attend_span(index, q, span, mask, cache))
        out = attended[0] if len(attended) == 1 else torch.cat(attended)
        return out.reshape(x.shape[0], -1)

    def _attend_span(
        self, index: int, queries: Tensor, span: Span, mask: Tensor, cache: KVCache
    ) -> Tensor:  # (T, H, E)
        arch = self.architecture
        first, stop = _slots_read(span, arch.window)
        keys, values = cache.view(index, span.row, first, stop)
        if span.count <= EXACT_ROWS:
            grouped = queries.reshape(span.count, arch.kv_heads, -1, arch.head_dim)
            expand = (span.count, -1, -1, -1)
            return F.scaled_dot_product_attention(
                grouped, keys.expand(expand), values.expand(expand), mask,
                scale=arch.attention_scale,
            ).view(queries.shape)  # fmt: skip
        return F.scaled_dot_product_attention(
            queries.transpose(0, 1)[None], keys, values, mask,
            scale=arch.attention_scale, enable_gqa=arch.heads != arch.kv_heads,
        )[0].transpose(0, 1)  # fmt: skip

    def _pieces(self, span: Span) -> list[Span]:
        """A narrow span cut so that all tokens of a piece read the same slots.

        Masked slots add nothing, but the kernel sums 192 slots in another order than 256: a token
        must not read more of them because a later one needs them.
        """
        window = self.architecture.window
        if span.count > EXACT_ROWS:
            return [span]
        tokens = [Span(row=span.row, start=at, count=1) for at in range(span.start, span.end)]
        alike = (list(group) for _, group in groupby(tokens, lambda t: _slots_read(t, window)))
        return [Span(row=span.row, start=g[0].start, count=len(g)) for g in alike]

    def _prepare(self, spans: Sequence[Span]) -> _Pass:
        masks = [self._mask(span) for span in spans]
        if len(spans) == 1:
            at: slice | Tensor = slice(spans[0].start, spans[0].end)
        else:
            at = torch.cat([torch.arange(s.start, s.end, device=self.device) for s in spans])
        return _Pass(
            spans=spans, cos=self._cos[at][:, None], sin=self._sin[at][:, None], masks=masks
        )

    def _mask(self, span: Span) -> Tensor:
        """0 where a query may look, −∞ elsewhere: (T, 1, 1, slots) for narrow spans, (T, slots)
        for wide ones."""
        first, stop = _slots_read(span, self.architecture.window)
        position = torch.arange(span.start, span.end, device=self.device)[:, None]
        slot = torch.arange(first, stop, device=self.device)
        seen = slot <= position
        if self.architecture.window is not None:
            seen &= slot > position - self.architecture.window
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~seen, -torch.inf)
        return mask[:, None, None] if span.count <= EXACT_ROWS else mask


def _slots_read(span: Span, window: int | None) -> tuple[int, int]:
    """The slots that a span's attention reads, both ends on block borders (the cache's size is a
    multiple of the block)."""
    stop = -(-span.end // SLOT_BLOCK) * SLOT_BLOCK
    if window is None:
        return 0, stop
    return max(0, span.start - window + 1) // SLOT_BLOCK * SLOT_BLOCK, stop


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021, §3.4.2, halves instead of pairs); x is (T, heads, E)."""
    left, right = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((right, left), dim=-1), sin)


def _rotary_table(arch: Architecture, positions: int) -> tuple[Tensor, Tensor]:  # (S, E) f32 each
    angle = torch.outer(
        torch.arange(positions, dtype=torch.float32),
        torch.tensor(arch.inv_freq, dtype=torch.float32),
    )
    cos, sin = angle.cos() * arch.rope_scale, angle.sin() * arch.rope_scale
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _layer(arch: Architecture, tensors: Mapping[str, Tensor], index: int) -> Layer:
    at = f"layers.{index}"
    return Layer(
        attn_norm=_norm(arch, tensors, f"{at}.attn_norm"),
        qkv=_linear(tensors, f"{at}.qkv"),
        q_norm=_norm(arch, tensors, f"{at}.q_norm") if arch.qk_norm else None,
        k_norm=_norm(arch, tensors, f"{at}.k_norm") if arch.qk_norm else None,
        o=_linear(tensors, f"{at}.o"),
        mlp_norm=_norm(arch, tensors, f"{at}.mlp_norm"),
        up=_linear(tensors, f"{at}.up"),
        down=_linear(tensors, f"{at}.down"),
    )


def _norm(arch: Architecture, tensors: Mapping[str, Tensor], name: str) -> Norm:
    weight = tensors[f"{name}.weight"]
    if arch.norm_offset:
        weight = (weight.float() + arch.norm_offset).to(weight.dtype)
    return Norm(
        weight=weight,
        bias=tensors.get(f"{name}.bias"),
        eps=arch.norm_eps,
        rms=arch.norm == "rms",
    )


def _linear(tensors: Mapping[str, Tensor], name: str) -> Linear:
    """Gather `<name>.<part>`; the parts are quant's own."""
    parts = {
        part: tensors[f"{name}.{part}"]
        for part in ("dense", "int8", "scale", "tiles", "nf4", "absmax", "height", "shape")
        if f"{name}.{part}" in tensors
    }
    return unpack(parts, tensors.get(f"{name}.bias"))
