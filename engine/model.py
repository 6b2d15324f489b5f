"""The target as three functions: `embed`, `run_layers(first, stop)` and `logits`.

Everything that differs between families is a value of `Architecture`. The passes work on flat
tokens: the spans of all rows one after another, so that a batch of ragged rows, a draft step and a
verify pass are the same call. Transformers' modules are never built; the tests hold this forward
to theirs for every family.

Invariant: in a span of at most `EXACT_ROWS` tokens, row i gets the same bits whatever the number of
rows (`operators.py` and `quant.py` say how). `fastpath.py` runs the same layers as one call in C,
to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import KVCache, Span
from engine.families import Architecture
from engine.linear import Linear
from engine.native.operators import NativeOperators, supports
from engine.operators import SLOT_BLOCK, Norm, Operators, Piece, TorchOperators
from engine.quant import unpack

if TYPE_CHECKING:
    from engine.native.bindings import Native


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

    pieces: Sequence[Piece]
    cos: Tensor  # (T, E)
    sin: Tensor  # (T, E), sign of the rotation folded in


class Model:
    """A decoder-only model that can be run in spans of layers."""

    def __init__(
        self,
        architecture: Architecture,
        tensors: Mapping[str, Tensor],
        *,
        context_tokens: int,
        native: Native | None = None,
    ) -> None:
        """Build from the tensors that `convert.py` names; all on one device. With `native`, C
        functions stand in for torch's operators where they cover the model."""
        self.architecture = architecture
        self.context_tokens = context_tokens
        self._embedding = tensors["embed.weight"]  # (V, D)
        self.dtype, self.device = self._embedding.dtype, self._embedding.device
        if native is not None and not supports(architecture, self.dtype, self.device):
            native = None
        self.native = native
        """The C functions that run this model, if they do."""
        self.operators: Operators = (
            TorchOperators(architecture, self.dtype, self.device)
            if native is None
            else NativeOperators(native, architecture)
        )
        self.layers = [_layer(architecture, tensors, i, native) for i in range(architecture.layers)]
        self.final_norm = _norm(architecture, tensors, "final_norm")
        self.head = _linear(tensors, "head", native)
        self._short_heads: dict[int, Linear] = {}
        self._cos, self._sin = _rotary_table(architecture, context_tokens + SLOT_BLOCK)
        self._cos = self._cos.to(self.device, self.dtype)
        self._sin = self._sin.to(self.device, self.dtype)

    @property
    def embedding(self) -> Tensor:  # (V, D)
        """The table itself, to share it with another model of the same shape."""
        return self._embedding

    @property
    def weight_bytes(self) -> int:
        """Bytes of all matrices that a token passes through, and of the embedding table."""
        linears = [m for layer in self.layers for m in (layer.qkv, layer.o, layer.up, layer.down)]
        return self._embedding.nbytes + sum(m.nbytes for m in (*linears, self.head))

    def pruned(
        self,
        neurons: Mapping[int, Tensor],  # layer -> (n,) int64, n a multiple of 64; none: whole
        ids: Tensor | None = None,  # (m,) int64, m a multiple of 32
    ) -> Model:
        """This model with only these neurons in the feed-forward blocks of these layers, which are
        then all that may be run of it, and with scores of only these token ids, in their order;
        the rest is the same memory."""
        small = copy(self)
        small.layers = [
            layer if i not in neurons else self._only(layer, neurons[i])
            for i, layer in enumerate(self.layers)
        ]
        kept = len(next(iter(neurons.values()))) if neurons else self.architecture.feed_forward
        small.architecture = msgspec.structs.replace(self.architecture, feed_forward=kept)
        if ids is not None:
            small.head, small._short_heads = self.head.rows(ids), {}
        return small

    def _only(self, layer: Layer, neurons: Tensor) -> Layer:
        gate_and_up = (neurons, neurons + self.architecture.feed_forward)
        rows = torch.cat(gate_and_up) if self.architecture.gated else neurons
        return replace(layer, up=layer.up.rows(rows), down=layer.down.columns(neurons))

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
        shared = self._prepare(spans)
        for index in range(first, stop):
            hidden = self._run_layer(index, hidden, shared, cache)
        return hidden

    def logits(
        self,
        hidden: Tensor,  # (T, D), of any layer: the final norm is part of this function
        vocab: int | None = None,
    ) -> Tensor:  # (T, V), or (T, vocab)
        """Scores of the next token, straight from a hidden state; with `vocab` (a multiple of 32)
        of the first so many ids only, which is all that a draft needs."""
        scores = self._head(vocab)(self.operators.norm(hidden, self.final_norm))
        scale = self.architecture.logits_scale
        return scores if scale == 1.0 else scores * scale

    def _head(self, vocab: int | None) -> Linear:
        if vocab is None or vocab >= self.head.out_features:
            return self.head
        if vocab not in self._short_heads:
            self._short_heads[vocab] = self.head.first(vocab)
        return self._short_heads[vocab]

    def neurons(
        self,
        layer: int,
        hidden: Tensor,  # (T, D), the states before it
        spans: Sequence[Span],
        cache: KVCache,
    ) -> Tensor:  # (T, F)
        """What the neurons of one layer's feed-forward block say of tokens; writes the layer's keys
        and values."""
        return self._half_way(layer, hidden, self._prepare(spans), cache)[1]

    def _run_layer(self, index: int, hidden: Tensor, shared: _Pass, cache: KVCache) -> Tensor:
        hidden, inner = self._half_way(index, hidden, shared, cache)
        down, scale = self.layers[index].down, self.architecture.residual_scale
        return self.operators.add(hidden, down(inner), scale)

    def _half_way(
        self, index: int, hidden: Tensor, shared: _Pass, cache: KVCache
    ) -> tuple[Tensor, Tensor]:  # (T, D), (T, F)
        """The states behind a layer's attention, and its neurons."""
        layer, ops, scale = self.layers[index], self.operators, self.architecture.residual_scale
        attended = self._attend(index, ops.norm(hidden, layer.attn_norm), shared, cache)
        hidden = ops.add(hidden, layer.o(attended), scale)
        return hidden, ops.activate(layer.up(ops.norm(hidden, layer.mlp_norm)))

    def _attend(self, index: int, x: Tensor, shared: _Pass, cache: KVCache) -> Tensor:
        arch, layer, ops = self.architecture, self.layers[index], self.operators
        heads = layer.qkv(x).view(x.shape[0], -1, arch.head_dim)  # (T, H + 2G, E)
        turned = heads[:, : arch.heads + arch.kv_heads]
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = torch.split(turned, [arch.heads, arch.kv_heads], dim=1)
            turned = torch.cat((ops.norm(queries, layer.q_norm), ops.norm(keys, layer.k_norm)), 1)
        turned = ops.rotate(turned, shared.cos, shared.sin)
        queries, keys = turned[:, : arch.heads], turned[:, arch.heads :]
        values = heads[:, arch.heads + arch.kv_heads :]
        counts = [piece.span.count for piece in shared.pieces]
        attended = []
        for piece, q, k, v in zip(
            shared.pieces, torch.split(queries, counts), torch.split(keys, counts),
            torch.split(values, counts), strict=True,
        ):  # fmt: skip
            cache.write(index, piece.span, k, v)
            attended.append(ops.attend(index, q, piece, cache))
        out = attended[0] if len(attended) == 1 else torch.cat(attended)
        return out.reshape(x.shape[0], -1)

    def _prepare(self, spans: Sequence[Span]) -> _Pass:
        if len(spans) == 1:
            at: slice | Tensor = slice(spans[0].start, spans[0].end)
        else:
            at = torch.cat([torch.arange(s.start, s.end, device=self.device) for s in spans])
        return _Pass(pieces=self.operators.plan(spans), cos=self._cos[at], sin=self._sin[at])


def _rotary_table(arch: Architecture, positions: int) -> tuple[Tensor, Tensor]:  # (S, E) f32 each
    angle = torch.outer(
        torch.arange(positions, dtype=torch.float32),
        torch.tensor(arch.inv_freq, dtype=torch.float32),
    )
    cos, sin = angle.cos() * arch.rope_scale, angle.sin() * arch.rope_scale
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _layer(
    arch: Architecture, tensors: Mapping[str, Tensor], index: int, native: Native | None
) -> Layer:
    at = f"layers.{index}"
    return Layer(
        attn_norm=_norm(arch, tensors, f"{at}.attn_norm"),
        qkv=_linear(tensors, f"{at}.qkv", native),
        q_norm=_norm(arch, tensors, f"{at}.q_norm") if arch.qk_norm else None,
        k_norm=_norm(arch, tensors, f"{at}.k_norm") if arch.qk_norm else None,
        o=_linear(tensors, f"{at}.o", native),
        mlp_norm=_norm(arch, tensors, f"{at}.mlp_norm"),
        up=_linear(tensors, f"{at}.up", native),
        down=_linear(tensors, f"{at}.down", native),
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


def _linear(tensors: Mapping[str, Tensor], name: str, native: Native | None) -> Linear:
    """Gather `<name>.<part>`; the parts are quant's own."""
    parts = {
        part: tensors[f"{name}.{part}"]
        for part in ("dense", "int8", "scale", "tiles", "nf4", "absmax", "height", "shape")
        if f"{name}.{part}" in tensors
    }
    return unpack(parts, tensors.get(f"{name}.bias"), native)
