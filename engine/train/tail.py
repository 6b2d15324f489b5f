"""The last layers of a model as plain dense mathematics that gradients pass through.

The engine's own kernels have no backward pass, so the tail's matrices are written out once and the
layers computed again with torch's functions. Drafts live at positions of their own: a draft that
starts at token t sees the exact keys and values of all tokens before t, and its own, approximate
ones from t on. Many drafts of one text are computed in one call.

Invariant: from an exact state, the tail gives what the model's layers give, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.linear import Linear
from engine.model import Model
from engine.operators import Norm
from engine.train.samples import Sample

_LIFT = 2.0**40
"""Written-out columns are multiplied by this, so that the bias vanishes beside them."""
_BLOCK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A frozen matrix."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)

    def __call__(self, x: Tensor) -> Tensor:
        """x Wᵀ + b."""
        return F.linear(x, self.weight, self.bias)

    @property
    def columns_squared(self) -> Tensor:  # (in,) float32
        """How much an input adds to the output, squared, when it is 1."""
        return self.weight.float().square().sum(dim=0)


@torch.no_grad()
def written_out(linear: Linear, width: int, like: Tensor) -> Dense:
    """The matrix that a kernel multiplies by, from what it makes of the unit vectors.

    It asks the kernel instead of the layout, so it holds for every kind of quantization.
    """
    zero = torch.zeros((1, width), dtype=like.dtype, device=like.device)
    bias = linear(zero)[0].clone()
    columns = []
    for begin in range(0, width, _BLOCK):
        count = min(_BLOCK, width - begin)
        unit = torch.zeros((count, width), dtype=like.dtype, device=like.device)
        unit[torch.arange(count), begin + torch.arange(count)] = _LIFT
        columns.append((linear(unit) / _LIFT).t())
    return Dense(weight=torch.cat(columns, dim=1).contiguous(), bias=bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    attn_norm: Norm
    qkv: Dense
    q_norm: Norm | None
    k_norm: Norm | None
    o: Dense
    mlp_norm: Norm
    up: Dense
    down: Dense


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Drafts to compute together: of each sample, the tokens they start at."""

    samples: Sequence[Sample]
    at: Sequence[Tensor]  # per sample (n,) int64

    @property
    def counts(self) -> list[int]:
        """Drafts per sample."""
        return [len(at) for at in self.at]

    def gathered(self, layer: int, offset: int = 0) -> Tensor:  # (n, D)
        """The exact states before `layer` of the tokens `offset` after each start."""
        pairs = zip(self.samples, self.at, strict=True)
        return torch.cat([sample.states[layer][at + offset] for sample, at in pairs])

    def next_ids(self, offset: int = 0) -> Tensor:  # (n,) int64
        """The tokens that follow those `offset` after each start."""
        pairs = zip(self.samples, self.at, strict=True)
        return torch.cat([sample.ids[at + offset + 1] for sample, at in pairs])

    def best(self, offset: int = 0) -> Tensor:  # (n,) int64
        """What the full model would say there, greedily."""
        pairs = zip(self.samples, self.at, strict=True)
        return torch.cat([sample.best[at + offset] for sample, at in pairs])

    def total(self, offset: int = 0) -> Tensor:  # (n,) float32
        """The logarithm of the denominator of the full model's law there."""
        pairs = zip(self.samples, self.at, strict=True)
        return torch.cat([sample.total[at + offset] for sample, at in pairs])


@dataclass(slots=True)
class OwnSlots:
    """Keys and values that the drafts have made themselves, by layer, one entry a step."""

    keys: dict[int, list[Tensor]] = field(default_factory=dict)  # (n, G, E) each
    values: dict[int, list[Tensor]] = field(default_factory=dict)


class Tail:
    """Layers `first` to the end, final norm, and the head's rows of the first `vocab` of `ids` (of
    all token ids without), all frozen."""

    def __init__(self, model: Model, first: int, vocab: int, ids: Tensor | None = None) -> None:
        arch = model.architecture
        self.architecture, self.first, self.vocab = arch, first, vocab
        self.ids = (torch.arange(vocab) if ids is None else ids[:vocab]).to(model.device)
        self._model, self.native = model, model.native
        like = model.embed(torch.zeros(1, dtype=torch.int64, device=model.device))
        self.dtype = like.dtype
        attention = arch.heads * arch.head_dim
        self._layers = {
            index: _Layer(
                attn_norm=layer.attn_norm,
                qkv=written_out(layer.qkv, arch.hidden, like),
                q_norm=layer.q_norm,
                k_norm=layer.k_norm,
                o=written_out(layer.o, attention, like),
                mlp_norm=layer.mlp_norm,
                up=written_out(layer.up, arch.hidden, like),
                down=written_out(layer.down, arch.feed_forward, like),
            )
            for index, layer in enumerate(model.layers)
            if index >= first
        }
        self._final_norm = model.final_norm
        self.head = written_out(model.head.rows(self.ids), arch.hidden, like)
        positions = torch.arange(model.context_tokens + 1, dtype=torch.float32)
        angle = torch.outer(positions, torch.tensor(arch.inv_freq, dtype=torch.float32))
        both = torch.cat((angle, angle), dim=-1)
        self._cos = (both.cos() * arch.rope_scale).to(like)
        self._sin = (both.sin() * arch.rope_scale).to(like)

    def pruned(self, neurons: Mapping[int, Tensor]) -> Tail:
        """With only these neurons of each layer, rounded as the route's own pruned model has them;
        the layers that are not named are not there."""
        small, arch = copy(self), self.architecture
        small.first = min(neurons)
        small._layers = {
            index: self._only(index, kept.to(self.head.weight.device), arch.feed_forward)
            for index, kept in neurons.items()
        }
        return small

    def _only(self, index: int, kept: Tensor, whole: int) -> _Layer:
        layer, rows = self._layers[index], kept
        if self.architecture.gated:
            rows = torch.cat((kept, kept + whole))
        down = self._model.layers[index].down.columns(kept)
        return replace(
            layer,
            up=Dense(weight=layer.up.weight[rows], bias=layer.up.bias[rows]),
            down=written_out(down, len(kept), layer.up.weight),
        )

    @property
    def layers(self) -> Sequence[int]:
        """The indices of its layers."""
        return tuple(self._layers)

    def columns_squared(self, index: int) -> Tensor:  # (F,) float32
        """How much a neuron of this layer adds to a state, squared, when it is 1."""
        return self._layers[index].down.columns_squared

    def normed(self, hidden: Tensor) -> Tensor:
        """The final norm, which the head multiplies."""
        return self._final_norm(hidden)

    def scores(self, hidden: Tensor) -> Tensor:  # (n, D) -> (n, vocab) float32
        """Logits of its `ids`."""
        return self.head(self.normed(hidden)).float() * self.architecture.logits_scale

    def run(
        self,
        hidden: Tensor,  # (n, D), states before layer `first` of the tokens at + step
        starts: Starts,
        own: OwnSlots,
        *,
        step: int,
        first: int | None = None,
        watch: Callable[[int, Tensor], None] = lambda *_: None,
    ) -> Tensor:  # (n, D)
        """One draft step through the tail; leaves its keys and values in `own`. `watch` sees each
        layer's index and its neurons (n, F)."""
        position = torch.cat(list(starts.at)) + step
        cos, sin = self._cos[position][:, None], self._sin[position][:, None]
        begin, scale = self.first if first is None else first, self.architecture.residual_scale
        for index in range(begin, self.architecture.layers):
            layer = self._layers[index]
            heads = self._heads(layer, layer.attn_norm(hidden), cos, sin)
            attended = self._attend(index, heads, starts, own, step)
            hidden = torch.add(hidden, layer.o(attended), alpha=scale)
            inner = self._activate(layer.up(layer.mlp_norm(hidden)))
            watch(index, inner)
            hidden = torch.add(hidden, layer.down(inner), alpha=scale)
        return hidden

    def _heads(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # (n, H, E), (n, G, E), (n, G, E)
        arch = self.architecture
        heads = layer.qkv(x).view(len(x), -1, arch.head_dim)
        q, k, v = torch.split(heads, [arch.heads, arch.kv_heads, arch.kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = layer.q_norm(q), layer.k_norm(k)
        return _turned(q, cos, sin), _turned(k, cos, sin), v

    def _attend(
        self, index: int, heads: tuple[Tensor, Tensor, Tensor], starts: Starts, own: OwnSlots,
        step: int,
    ) -> Tensor:  # (n, H · E)  # fmt: skip
        arch, (queries, key, value) = self.architecture, heads
        own.keys.setdefault(index, []).append(key)
        own.values.setdefault(index, []).append(value)
        counts = starts.counts
        made_k = torch.split(torch.stack(own.keys[index], dim=1), counts)  # (n, steps, G, E) each
        made_v = torch.split(torch.stack(own.values[index], dim=1), counts)
        out = []
        for i, q in enumerate(torch.split(queries, counts)):
            sample, at = starts.samples[i], starts.at[i]
            grouped = q.view(len(q), arch.kv_heads, -1, arch.head_dim)
            out.append(
                self._attend_sample(
                    grouped, (sample.keys[index], sample.values[index]),
                    (made_k[i], made_v[i]), self._mask(at, sample.tokens, step),
                )
            )  # fmt: skip
        return torch.cat(out).reshape(len(queries), -1)

    def _attend_sample(
        self,
        q: Tensor,  # (n, G, R, E)
        exact: tuple[Tensor, Tensor],  # (T, G, E) each
        made: tuple[Tensor, Tensor],  # (n, steps, G, E) each
        mask: Tensor,  # (n, 1, 1, T + steps)
    ) -> Tensor:  # (n, G, R, E)
        scale = self.architecture.attention_scale or self.architecture.head_dim**-0.5
        seen = torch.einsum("ngre,tge->ngrt", q, exact[0])
        own = torch.einsum("ngre,nsge->ngrs", q, made[0])
        scores = torch.cat((seen, own), dim=-1).float() * scale + mask
        weights = scores.softmax(dim=-1).to(q.dtype)
        slots = exact[0].shape[0]
        from_exact = torch.einsum("ngrt,tge->ngre", weights[..., :slots], exact[1])
        return from_exact + torch.einsum("ngrs,nsge->ngre", weights[..., slots:], made[1])

    def _mask(self, at: Tensor, slots: int, step: int) -> Tensor:  # (n, 1, 1, T + step + 1)
        """Exact slots before the start, own slots from there on, within the model's window."""
        slot = torch.arange(slots, device=at.device)
        seen = slot < at[:, None]
        made = torch.ones((len(at), step + 1), dtype=torch.bool, device=at.device)
        window = self.architecture.window
        if window is not None:
            seen &= slot > at[:, None] + step - window
            made &= torch.arange(step, -1, -1, device=at.device) < window
        mask = torch.zeros((len(at), slots + step + 1), device=at.device)
        mask.masked_fill_(~torch.cat((seen, made), dim=1), -torch.inf)
        return mask[:, None, None]

    def _activate(self, inner: Tensor) -> Tensor:
        kind, gated = self.architecture.activation, self.architecture.gated
        gate, up = inner.chunk(2, dim=-1) if gated else (inner, None)
        if kind == "silu":
            gate = F.silu(gate)
        else:
            gate = F.gelu(gate, approximate="tanh" if kind == "gelu_tanh" else "none")
        return gate if up is None else gate * up


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in halves; x is (n, heads, E), cos and sin (n, 1, E)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def drafting_starts(samples: Sequence[Sample], steps: int) -> Starts:
    """Every token of the answers from which `steps` tokens can be drafted and judged."""
    kept = [s for s in samples if s.tokens - steps >= max(1, s.answer_at - 1)]
    at = [
        torch.arange(max(1, s.answer_at - 1), s.tokens - steps + 1, device=s.ids.device)
        for s in kept
    ]
    return Starts(samples=kept, at=at)
