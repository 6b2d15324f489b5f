"""A weight matrix as the layers see it, and the two kinds that torch multiplies without help.

How the others are packed is `quant.py`'s. It knows no model and no file.

Invariant: on CPU every `Linear` gives row i of a call the same bits whatever the number of rows,
up to `EXACT_ROWS` rows; greedy speculation is bit-identical to plain decoding because of it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

DENSE_ROWS = 8
"""Rows of every small dense multiplication: one shape, hence one order of summation."""
EXACT_ROWS = 64
"""Up to here a call is promised to be row-invariant; prefill passes may be wider."""


class Linear(Protocol):
    """One matrix, with its bias if it has one."""

    out_features: int
    nbytes: int

    def __call__(
        self,
        x: Tensor,  # (T, in) contiguous
    ) -> Tensor:  # (T, out), same dtype as x
        """x Wᵀ + b."""
        ...

    def first(self, outputs: int) -> Linear:
        """The matrix of the first `outputs` rows (a multiple of 32) over the same
        memory."""
        ...

    def rows(
        self,
        ids: Tensor,  # (n,) int64
    ) -> Linear:
        """The matrix of these outputs only, in memory of its own."""
        ...

    def columns(
        self,
        ids: Tensor,  # (n,) int64, n a multiple of 64
    ) -> Linear:
        """The matrix of these inputs only, in memory of its own; the bias is the same."""
        ...


class DenseLinear:
    """Unquantized. torch picks its kernel, and so its rounding, by the number of rows; calls of a
    few rows are therefore cut and filled up to one height."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self.out_features = weight.shape[0]
        self.nbytes = weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if rows > EXACT_ROWS or x.device.type != "cpu":
            return F.linear(x, self.weight, self.bias)
        padded = F.pad(x, (0, 0, 0, -rows % DENSE_ROWS))
        blocks = [
            F.linear(block, self.weight, self.bias) for block in torch.split(padded, DENSE_ROWS)
        ]
        return (blocks[0] if len(blocks) == 1 else torch.cat(blocks))[:rows]

    def first(self, outputs: int) -> Linear:
        return DenseLinear(self.weight[:outputs], head_of(self.bias, outputs))

    def rows(self, ids: Tensor) -> Linear:
        return DenseLinear(self.weight[ids], picked(self.bias, ids))

    def columns(self, ids: Tensor) -> Linear:
        return DenseLinear(self.weight[:, ids], self.bias)


class Int8Linear:
    """One scale per output (symmetric, weights only); torch's kernel is row-invariant as it is."""

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        self.weight, self.scale, self.bias = weight, scale, bias
        self.out_features = weight.shape[0]
        self.nbytes = weight.nbytes + scale.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        out = torch._weight_int8pack_mm(x, self.weight, self.scale)
        return out if self.bias is None else out.add_(self.bias)

    def first(self, outputs: int) -> Linear:
        bias = head_of(self.bias, outputs)
        return Int8Linear(self.weight[:outputs], self.scale[:outputs], bias)

    def rows(self, ids: Tensor) -> Linear:
        return Int8Linear(self.weight[ids], self.scale[ids], picked(self.bias, ids))

    def columns(self, ids: Tensor) -> Linear:
        return Int8Linear(self.weight[:, ids], self.scale, self.bias)


def head_of(bias: Tensor | None, outputs: int) -> Tensor | None:
    """The first entries of a bias, if there is one."""
    return None if bias is None else bias[:outputs]


def picked(bias: Tensor | None, ids: Tensor) -> Tensor | None:
    """These entries of a bias, if there is one."""
    return None if bias is None else bias[ids]
