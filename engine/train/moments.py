"""The closed form: for every pair of layers the linear map that predicts one state from two others.

For a pair (first, jump) the input is the token's state after the first layers beside the previous
token's state at the landing; the target is the token's own state there. Second moments are
accumulated once and shared: a pair only puts blocks of them together and solves.

Invariant: inputs are centred and scaled to unit variance before the ridge is added, so that a
state's few enormous components do not decide how much all others are damped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.train.samples import Sample

RIDGE_TOKENS = 800.0
"""The ridge, in tokens of evidence against every correlation: little text is trusted little."""
_CHUNK = 4096
UNSETTLED = 4
"""The first tokens of a text hold states unlike all others and are left out."""
_Key = tuple[str, int]
"""Which state (of this token, `now`, or of the one before it, `past`) and before which layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearJump:
    """x ↦ W x + b for x = (state now, state past), and how its inputs and outputs are spread."""

    weight: Tensor  # (D, 2D) float32
    bias: Tensor  # (D,) float32
    mean_in: Tensor  # (2D,) float32
    scale_in: Tensor  # (2D,) float32, standard deviation of each input
    scale_out: Tensor  # (D,) float32, that of what the map leaves unexplained of each output

    def tensors(self) -> dict[str, Tensor]:
        """As a head's file keeps it."""
        return {"jump.weight": self.weight, "jump.bias": self.bias}


class Moments:
    """Weighted second moments over the tokens of some samples, blocks made when asked for."""

    def __init__(
        self, samples: Sequence[Sample], *, answer_weight: float = 2.0, prompt_weight: float = 1.0
    ) -> None:
        """Tokens of answers count `answer_weight`, those of prompts `prompt_weight`; with 0 they
        are left out."""
        picked = []
        for sample in samples:
            device = sample.best.device
            weight = torch.full((sample.tokens,), prompt_weight, device=device)
            weight[max(1, sample.answer_at - 1) :] = answer_weight
            weight[:UNSETTLED] = 0.0
            index = weight.nonzero()[:, 0]
            picked.append(_Picked(sample=sample, at=index, weight=weight[index]))
        self._groups = list(_grouped([p for p in picked if len(p.at)]))
        self._whole = sum(float(p.weight.sum()) for p in picked)
        self._scales: dict[_Key, tuple[Tensor, Tensor]] = {}
        self._blocks: dict[tuple[_Key, _Key], Tensor] = {}

    @property
    def tokens(self) -> int:
        """How many tokens count."""
        return sum(len(p.at) for group in self._groups for p in group)

    @torch.no_grad()
    def solve(self, first: int, jump: int) -> LinearJump:
        """The ridge regression of one pair."""
        now, past, target = ("now", first), ("past", jump), ("now", jump)
        inputs = (now, past)
        gram = torch.cat([torch.cat([self._block(a, b) for b in inputs], dim=1) for a in inputs])
        cross = torch.cat([self._block(a, target) for a in inputs])  # (2D, D)
        damped = gram + RIDGE_TOKENS / self._whole * torch.eye(len(gram), device=gram.device)
        turn = torch.cholesky_solve(cross, torch.linalg.cholesky(damped))  # (2D, D), unit scales
        left = (1.0 - (turn * cross).sum(dim=0)).clamp_min(1e-4)  # unexplained variance
        scale_in = torch.cat([self._scale(key)[1] for key in inputs])
        mean_in = torch.cat([self._scale(key)[0] for key in inputs])
        mean_out, scale_out = self._scale(target)
        weight = turn.t() * scale_out[:, None] / scale_in
        return LinearJump(
            weight=weight.contiguous(),
            bias=mean_out - weight @ mean_in,
            mean_in=mean_in,
            scale_in=scale_in,
            scale_out=scale_out * left.sqrt(),
        )

    def _scale(self, key: _Key) -> tuple[Tensor, Tensor]:
        """Mean and spread of one kind of state."""
        if key not in self._scales:
            like = self._groups[0][0].sample.states[key[1]][0].float()
            mean, square = torch.zeros_like(like), torch.zeros_like(like)
            for group in self._groups:
                mean += _weights(group) @ _rows(group, key) / self._whole
            for group in self._groups:
                square += _weights(group) @ (_rows(group, key) - mean).square() / self._whole
            self._scales[key] = mean, square.sqrt().clamp_min(1e-6)
        return self._scales[key]

    def _block(self, a: _Key, b: _Key) -> Tensor:  # (D, D)
        """Correlations of two kinds of states."""
        if (b, a) in self._blocks:
            return self._blocks[b, a].t()
        if (a, b) not in self._blocks:
            (mean_a, scale_a), (mean_b, scale_b) = self._scale(a), self._scale(b)
            summed = mean_a.new_zeros((len(mean_a), len(mean_b)))
            for group in self._groups:
                left = (_rows(group, a) - mean_a) / scale_a * _weights(group)[:, None]
                summed.addmm_(left.t(), (_rows(group, b) - mean_b) / scale_b)
            self._blocks[a, b] = summed / self._whole
        return self._blocks[a, b]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picked:
    sample: Sample
    at: Tensor  # (n,) int64
    weight: Tensor  # (n,) float32


def _grouped(picked: Sequence[_Picked]) -> Iterator[list[_Picked]]:
    """Groups of samples that are multiplied together."""
    group: list[_Picked] = []
    for one in picked:
        group.append(one)
        if sum(len(p.at) for p in group) >= _CHUNK:
            yield group
            group = []
    if group:
        yield group


def _weights(group: Sequence[_Picked]) -> Tensor:  # (n,)
    return torch.cat([p.weight for p in group])


def _rows(group: Sequence[_Picked], key: _Key) -> Tensor:  # (n, D) float32
    kind, layer = key
    back = 1 if kind == "past" else 0
    return torch.cat([p.sample.states[layer][p.at - back] for p in group]).float()
