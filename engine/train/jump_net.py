"""The jump as something to train: the closed form, a correction to it, and a small gated network.

Training moves numbers of unit size: inputs and outputs are scaled by their spread, and the scales
are folded into the matrices whenever these are used or kept. Invariant: what is trained is exactly
what the head's file holds, rounded to the target's dtype in every forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.train.moments import LinearJump


class JumpNet(nn.Module):
    """W x + b + down · silu(up · x)."""

    def __init__(self, start: LinearJump, width: int, dtype: torch.dtype, seed: int = 0) -> None:
        """Begins as `start`: the correction is zero, and so is what the network adds."""
        super().__init__()
        wide, twice = start.weight.shape
        random = torch.Generator().manual_seed(seed)
        self._start, self._dtype = start, dtype
        self._size = (start.scale_in.square() + start.mean_in.square()).sqrt()
        zeros = start.weight.new_zeros
        self.turn = nn.Parameter(zeros((wide, twice)))
        self.shift = nn.Parameter(zeros(wide))
        mixed = torch.randn(width, twice, generator=random) * twice**-0.5
        self.up = nn.Parameter(mixed.to(start.weight))
        self.down = nn.Parameter(zeros((wide, width)))

    @classmethod
    def resumed(
        cls, tensors: Mapping[str, Tensor], fitted: LinearJump, dtype: torch.dtype
    ) -> JumpNet:
        """Goes on from a head that was trained before, with the scales of a new closed form."""
        start = replace(
            fitted, weight=tensors["jump.weight"].float(), bias=tensors["jump.bias"].float()
        )
        net = cls(start, len(tensors["net.up"]), dtype)
        with torch.no_grad():
            net.up.copy_(tensors["net.up"].float() * net._size)
            net.down.copy_(tensors["net.down"].float() / start.scale_out[:, None])
        return net

    def tensors(self) -> dict[str, Tensor]:
        """As a head's file keeps it; gradients pass through."""
        start = self._start
        correction = start.scale_out[:, None] * self.turn / start.scale_in
        shift = start.scale_out * self.shift - correction @ start.mean_in
        folded = {
            "jump.weight": start.weight + correction,
            "jump.bias": start.bias + shift,
        }
        if len(self.up):
            folded["net.up"] = self.up / self._size
            folded["net.down"] = start.scale_out[:, None] * self.down
        return folded

    def prepared(self) -> AppliedJump:
        """The jump with this moment's numbers."""
        return AppliedJump(self.tensors(), self._dtype)


class AppliedJump:
    """A head's tensors, rounded, as a function of two states."""

    def __init__(self, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self._direct = tensors["jump.weight"].to(dtype), tensors["jump.bias"].to(dtype)
        self._net = tuple(tensors[n].to(dtype) for n in ("net.up", "net.down") if n in tensors)

    def __call__(self, now: Tensor, past: Tensor) -> Tensor:
        """(n, D), (n, D) -> (n, D)."""
        x = torch.cat((now, past), dim=-1)
        landed = F.linear(x, *self._direct)
        if not self._net:
            return landed
        up, down = self._net
        return landed + F.linear(F.silu(F.linear(x, up)), down)
