"""Weight matrices in memory: how each is packed once, and how it multiplies a few rows.

This is the only file that knows bitsandbytes. On a CPU with AVX512-BF16 its NF4 kernel is called
straight through ctypes: importing the package costs two seconds of a three-second start, a call
through its Python costs more than the smallest multiplications, and the packed layout it would make
anew at every start is what `convert.py` keeps on disk.

Invariant: what `pack` made, `unpack` turns into a `Linear` with the weights that stand there.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.config import Quant
from engine.linear import DenseLinear, Int8Linear, Linear, head_of, picked
from engine.native.matrix import NativeNF4Linear
from engine.nf4_tiles import BLOCK, TILE_ROWS, columns_of, quantized, rows_of

if TYPE_CHECKING:
    from bitsandbytes.functional import QuantState

    from engine.native.bindings import Native


@cache
def cpu_library() -> ctypes.CDLL | None:
    """bitsandbytes' CPU library if this processor can run its packed NF4 kernel, else None."""
    spec = importlib.util.find_spec("bitsandbytes")
    if spec is None or spec.origin is None:
        return None
    try:
        library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("libbitsandbytes_cpu.*"))))
        library.has_avx512bf16_cpu.restype = ctypes.c_bool
        if not library.has_avx512bf16_cpu():
            return None
    except (StopIteration, OSError, AttributeError):
        return None
    kernel = library.gemv_4bit_inference_cpu_nf4_bf16
    kernel.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3
    kernel.restype = None
    return library


def pack(
    weight: Tensor,  # (out, in) float
    quant: Quant,
    device_type: str,
) -> dict[str, Tensor]:
    """The tensors that stand for `weight` on disk, in the layout that this device multiplies."""
    if quant == "none":
        return {"dense": weight.contiguous()}
    if quant == "int8":
        scale = (weight.float().abs().amax(dim=1) / 127).clamp_min(1e-12)
        whole = (weight.float() / scale[:, None]).round_().clamp_(-127, 127)
        return {"int8": whole.to(torch.int8), "scale": scale.to(torch.bfloat16)}
    if device_type == "cpu" and cpu_library() is not None and weight.shape[1] % BLOCK == 0:
        tiles, scales = quantized(F.pad(weight, (0, 0, 0, -len(weight) % TILE_ROWS)))
        return {"tiles": tiles, "absmax": scales, "height": torch.tensor(len(weight))}
    codes, absmax = _nf4(weight)
    height = torch.tensor(weight.shape, dtype=torch.int64)
    return {"nf4": codes, "absmax": absmax, "shape": height}


def unpack(
    parts: Mapping[str, Tensor],
    bias: Tensor | None,  # (out,) or None
    native: Native | None = None,
) -> Linear:
    """The matrix that `pack` stored, multiplied by `native` where it can."""
    if "dense" in parts:
        return DenseLinear(parts["dense"], bias)
    if "int8" in parts:
        return Int8Linear(parts["int8"], parts["scale"], bias)
    if "tiles" in parts and native is not None:
        return NativeNF4Linear(native, parts["tiles"], parts["absmax"], int(parts["height"]), bias)
    if "tiles" in parts:
        return TiledNF4Linear(parts["tiles"], parts["absmax"], int(parts["height"]), bias)
    out_features, in_features = (int(size) for size in parts["shape"])
    return BlockNF4Linear(parts["nf4"], parts["absmax"], (out_features, in_features), bias)


class TiledNF4Linear:
    """NF4 in tiles of 32 outputs, multiplied by bitsandbytes' AVX512-BF16 kernel."""

    def __init__(
        self,
        tiles: Tensor,  # (out padded to 32, in / 2) uint8
        absmax: Tensor,  # (in / 64, out padded to 32) bf16
        height: int,
        bias: Tensor | None,  # (out,) bf16 or None
    ) -> None:
        library = cpu_library()
        assert library is not None, "tiles are packed only where the kernel exists"
        self.kernel = library.gemv_4bit_inference_cpu_nf4_bf16
        self.tiles, self.absmax, self.bias = tiles, absmax, bias
        self.out_features = height
        self.nbytes = tiles.nbytes + absmax.nbytes
        self._tall, self._wide = tiles.shape[0], tiles.shape[1] * 2
        self._tiles_at, self._absmax_at = tiles.data_ptr(), absmax.data_ptr()

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        out = x.new_empty((rows, self._tall))
        self.kernel(
            rows, self._tall, self._wide,
            x.data_ptr(), self._tiles_at, self._absmax_at, out.data_ptr(),
            BLOCK, self._wide, self._tall,
        )  # fmt: skip
        if self._tall != self.out_features:
            out = out[:, : self.out_features].contiguous()
        return out if self.bias is None else out.add_(self.bias)

    def first(self, outputs: int) -> Linear:
        # The scales of one block of inputs lie side by side, so they are copied (1/16 of it all).
        absmax = self.absmax[:, :outputs].contiguous()
        return TiledNF4Linear(self.tiles[:outputs], absmax, outputs, head_of(self.bias, outputs))

    def rows(self, ids: Tensor) -> Linear:
        tiles, absmax = rows_of((self.tiles, self.absmax), ids)
        return TiledNF4Linear(tiles, absmax, len(ids), picked(self.bias, ids))

    def columns(self, ids: Tensor) -> Linear:
        tiles, absmax = columns_of((self.tiles, self.absmax), ids)
        return TiledNF4Linear(tiles, absmax, self.out_features, self.bias)


class BlockNF4Linear:
    """NF4 in bitsandbytes' own order: its fused kernel on CUDA; on a CPU without AVX512-BF16 the
    matrix is written out at every call, so rows are almost free and row-invariance is
    `DenseLinear`'s."""

    def __init__(
        self,
        codes: Tensor,  # (out · in / 2,) uint8
        absmax: Tensor,  # (out · in / 64,) f32
        shape: tuple[int, int],
        bias: Tensor | None,
    ) -> None:
        self.codes, self.absmax, self.shape, self.bias = codes, absmax, shape, bias
        self.out_features = shape[0]
        self.nbytes = codes.nbytes + absmax.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        if x.device.type == "cuda":
            import bitsandbytes

            codes, state = self.codes.t(), self._state(x.dtype)
            out: Tensor = bitsandbytes.matmul_4bit(x, codes, state, bias=self.bias)
            return out
        return DenseLinear(self._dense(x.dtype), self.bias)(x)

    def _state(self, dtype: torch.dtype) -> QuantState:
        from bitsandbytes import functional as bnb

        return bnb.QuantState(
            absmax=self.absmax,
            shape=torch.Size(self.shape),
            blocksize=BLOCK,
            quant_type="nf4",
            dtype=dtype,
        )

    def _dense(self, dtype: torch.dtype) -> Tensor:
        from bitsandbytes import functional as bnb

        weight: Tensor = bnb.dequantize_4bit(self.codes.view(-1, 1), self._state(dtype))
        return weight.to(dtype)

    def first(self, outputs: int) -> Linear:
        weights = outputs * self.shape[1]
        return BlockNF4Linear(
            self.codes[: weights // 2],
            self.absmax[: weights // BLOCK],
            (outputs, self.shape[1]),
            head_of(self.bias, outputs),
        )

    def rows(self, ids: Tensor) -> Linear:
        return _in_blocks(self._dense(torch.float32)[ids], picked(self.bias, ids))

    def columns(self, ids: Tensor) -> Linear:
        return _in_blocks(self._dense(torch.float32)[:, ids], self.bias)


def _in_blocks(weight: Tensor, bias: Tensor | None) -> Linear:
    codes, absmax = _nf4(weight)
    return BlockNF4Linear(codes, absmax, (weight.shape[0], weight.shape[1]), bias)


def _nf4(weight: Tensor) -> tuple[Tensor, Tensor]:
    from bitsandbytes import functional as bnb

    codes, state = bnb.quantize_4bit(
        weight.contiguous(), blocksize=BLOCK, quant_type="nf4", compress_statistics=False
    )
    return codes, state.absmax
