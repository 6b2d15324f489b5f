"""The same model, its layers run by one call in C: no Python and no allocation per operator.

`FastModel` is a `Model` whose `run_layers` and `logits` take the short way. It fills the C structs
once, per cache and per model; a pass sets rows, spans and the stretch of layers. What it may not do
is compute anything by itself: `native/pass.c` calls the functions that `native/operators.py` does.

Invariant: the same bits as `Model` with the same operators, for every width and every stretch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import byref
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine.cache import KVCache, Span
from engine.families import Architecture
from engine.model import Layer, Model
from engine.native.bindings import LayerWeights, Native, Pass, SpanPlace, address
from engine.native.matrix import NativeNF4Linear
from engine.native.operators import ACTIVATIONS, attention_scale, supports

_FIRST_ROWS = 64
"""Rows that there is scratch for from the start; wider passes get more when they come."""


class FastModel(Model):
    """A model whose every matrix is in NF4 tiles, on a CPU with the kernels."""

    def __init__(
        self,
        architecture: Architecture,
        tensors: Mapping[str, Tensor],
        *,
        context_tokens: int,
        native: Native,
    ) -> None:
        super().__init__(architecture, tensors, context_tokens=context_tokens, native=native)
        self._kernels = native
        self._blocks: WeakKeyDictionary[KVCache, tuple[ctypes.Array[ctypes.c_void_p], ...]] = (
            WeakKeyDictionary()
        )
        self._point_at_layers()

    def pruned(self, neurons: Mapping[int, Tensor], ids: Tensor | None = None) -> FastModel:
        """As `Model.pruned`."""
        small = super().pruned(neurons, ids)
        assert isinstance(small, FastModel)
        small._point_at_layers()
        return small

    def _point_at_layers(self) -> None:
        """Fill the structs anew, with scratch of their own."""
        layers = map(_layer_weights, self.layers)
        self._weights = (LayerWeights * self.architecture.layers)(*layers)
        self._scratch = torch.zeros(0, dtype=torch.uint8)
        self._pass = self._new_pass()

    def run_layers(
        self,
        hidden: Tensor,  # (T, D)
        spans: Sequence[Span],
        cache: KVCache,
        *,
        first: int,
        stop: int,
    ) -> Tensor:  # (T, D)
        """As `Model.run_layers`."""
        out = hidden.clone(memory_format=torch.contiguous_format)
        if first == stop:
            return out
        call, rows = self._pass, len(hidden)
        call.threads = torch.get_num_threads()
        call.keys, call.values = map(ctypes.addressof, self._blocks_of(cache))
        call.slots = cache.keys[0].shape[2]
        places = (SpanPlace * len(spans))(*(SpanPlace(s.row, s.start, s.count) for s in spans))
        call.spans, call.span_count = ctypes.addressof(places), len(spans)
        call.state, call.rows, call.first, call.stop = out.data_ptr(), rows, first, stop
        self._make_room(rows, len(spans))
        self._kernels.run_layers(byref(call))
        return out

    def logits(
        self,
        hidden: Tensor,  # (T, D)
        vocab: int | None = None,
    ) -> Tensor:  # (T, V), or (T, vocab)
        """As `Model.logits`."""
        head = self._head(vocab)
        assert isinstance(head, NativeNF4Linear), "only such models take this path"
        scores = head.after(hidden, self.final_norm.weight, self.final_norm.eps)
        scale = self.architecture.logits_scale
        return scores if scale == 1.0 else scores * scale

    def _new_pass(self) -> Pass:
        arch = self.architecture
        return Pass(
            layers=ctypes.addressof(self._weights), cos=address(self._cos), sin=address(self._sin),
            hidden=arch.hidden, heads=arch.heads, kv_heads=arch.kv_heads, head_dim=arch.head_dim,
            feed_forward=arch.feed_forward, window=arch.window or 0,
            activation=ACTIVATIONS[arch.activation], eps=arch.norm_eps,
            attention_scale=attention_scale(arch), residual_scale=arch.residual_scale,
        )  # fmt: skip

    def _make_room(self, rows: int, spans: int) -> None:
        rows, layers = max(rows, _FIRST_ROWS), self.architecture.layers
        needed = self._kernels.pass_scratch(byref(self._pass), rows, spans, layers)
        if needed > len(self._scratch):
            self._scratch = torch.zeros(needed, dtype=torch.uint8)
        self._pass.scratch = self._scratch.data_ptr()

    def _blocks_of(self, cache: KVCache) -> tuple[ctypes.Array[ctypes.c_void_p], ...]:
        """Addresses of every layer's keys, and of its values."""
        found = self._blocks.get(cache)
        if found is None:
            arrays = ctypes.c_void_p * len(cache.keys)
            found = tuple(
                arrays(*(block.data_ptr() for block in blocks))
                for blocks in (cache.keys, cache.values)
            )
            self._blocks[cache] = found
        return found


def runs_fast(arch: Architecture, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `FastModel` can run this model."""
    embedding = tensors["embed.weight"]
    matrices = [f"layers.{i}.{name}" for i in range(arch.layers) for name in _MATRICES]
    return supports(arch, embedding.dtype, embedding.device) and all(
        f"{name}.tiles" in tensors for name in (*matrices, "head")
    )


_MATRICES = ("qkv", "o", "up", "down")


def _layer_weights(layer: Layer) -> LayerWeights:
    matrices = {}
    for name in _MATRICES:
        linear = getattr(layer, name)
        assert isinstance(linear, NativeNF4Linear), f"{name} is not in tiles"
        matrices[name] = linear.matrix
    q_norm = None if layer.q_norm is None else address(layer.q_norm.weight)
    k_norm = None if layer.k_norm is None else address(layer.k_norm.weight)
    return LayerWeights(
        **matrices,
        attn_norm=address(layer.attn_norm.weight),
        mlp_norm=address(layer.mlp_norm.weight),
        q_norm=q_norm,
        k_norm=k_norm,
    )
