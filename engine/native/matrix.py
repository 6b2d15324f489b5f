"""An NF4 matrix multiplied by the C kernel; `nf4_tiles.py` has its layout.

Rows are rounded to 8 bits in blocks of 64 on their way in: what bounds a pass of a few rows is how
many products an instruction makes, and with bf16 it is half as many. Knows no model.

Invariant: row i gets the same bits whatever the number of rows.
"""

from __future__ import annotations

from ctypes import byref

import torch
from torch import Tensor

from engine.native.bindings import Matrix, Native, Product, address
from engine.nf4_tiles import columns_of, rows_of


class NativeNF4Linear:
    """NF4 in tiles of 32 outputs."""

    def __init__(
        self,
        native: Native,
        tiles: Tensor,  # (out padded to 32, in / 2) uint8
        absmax: Tensor,  # (in / 64, out padded to 32) bf16
        height: int,
        bias: Tensor | None,  # (out,) bf16 or None
    ) -> None:
        self._native = native
        self.tiles, self.absmax, self.bias = tiles, absmax, bias
        self.out_features = height
        self.in_features = tiles.shape[1] * 2
        self.nbytes = tiles.nbytes + absmax.nbytes
        self.matrix = Matrix(
            tiles=address(tiles), absmax=address(absmax), bias=address(bias),
            wide=self.in_features, height=height, absmax_stride=absmax.shape[1],
        )  # fmt: skip

    def __call__(self, x: Tensor) -> Tensor:
        return self.after(x, None, 0.0)

    def after(
        self,
        x: Tensor,  # (T, in)
        norm: Tensor | None,  # (in,), weight of an RMS norm
        eps: float,
    ) -> Tensor:  # (T, out)
        """The product with x, or with x normalised."""
        x, rows, threads = x.contiguous(), x.shape[0], torch.get_num_threads()
        out = torch.empty((rows, self.out_features), dtype=x.dtype)
        room = self._native.product_scratch(rows, self.in_features, threads)
        scratch = torch.empty(room, dtype=torch.uint8)
        call = Product(
            matrix=self.matrix, x=x.data_ptr(), out=out.data_ptr(), scratch=scratch.data_ptr(),
            norm=address(norm), rows=rows, eps=eps, threads=threads,
        )  # fmt: skip
        self._native.run_product(byref(call))
        return out

    def first(self, outputs: int) -> NativeNF4Linear:
        """The matrix of the first `outputs` rows over the same memory."""
        bias = None if self.bias is None else self.bias[:outputs]
        return NativeNF4Linear(self._native, self.tiles, self.absmax, outputs, bias)

    def rows(self, ids: Tensor) -> NativeNF4Linear:
        """The matrix of these outputs only, in memory of its own."""
        bias = None if self.bias is None else self.bias[ids]
        tiles, absmax = rows_of((self.tiles, self.absmax), ids)
        return NativeNF4Linear(self._native, tiles, absmax, len(ids), bias)

    def columns(self, ids: Tensor) -> NativeNF4Linear:
        """The matrix of these inputs only, in memory of its own."""
        tiles, absmax = columns_of((self.tiles, self.absmax), ids)
        return NativeNF4Linear(self._native, tiles, absmax, self.out_features, self.bias)
