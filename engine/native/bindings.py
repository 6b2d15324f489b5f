"""The C library's functions and structs as ctypes sees them.

Mirrors `native.h`, `pass.h`, `layer.h`, `attention_block.h` and `operators.c`; holds addresses,
never tensors: who fills a struct keeps what it points to alive. Knows no model.

Invariant: every call runs on the threads of the OpenMP runtime that torch uses, as many as torch
is set to.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

_ENTRIES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


class Matrix(Structure):
    """`struct matrix`: NF4 tiles, scales, bias."""

    _fields_: ClassVar = [
        ("tiles", c_void_p), ("absmax", c_void_p), ("bias", c_void_p),
        ("wide", c_int64), ("height", c_int64), ("absmax_stride", c_int64),
    ]  # fmt: skip


class Product(Structure):
    """`struct product`: one matrix times some rows, with the norm before it if any."""

    _fields_: ClassVar = [
        ("matrix", Matrix), ("x", c_void_p), ("norm", c_void_p), ("out", c_void_p),
        ("scratch", c_void_p), ("rows", c_int64), ("eps", c_float), ("threads", c_int32),
    ]  # fmt: skip


class Attention(Structure):
    """`struct attend_args`: new queries of one cache row."""

    _fields_: ClassVar = [
        ("q", c_void_p), ("k", c_void_p), ("v", c_void_p), ("out", c_void_p),
        ("scratch", c_void_p), ("head_stride", c_int64), ("rows", c_int32), ("start", c_int32),
        ("window", c_int32), ("heads", c_int32), ("kv_heads", c_int32), ("head_dim", c_int32),
        ("scale", c_float),
    ]  # fmt: skip


class LayerWeights(Structure):
    """`struct layer`."""

    _fields_: ClassVar = [
        ("qkv", Matrix), ("o", Matrix), ("up", Matrix), ("down", Matrix),
        ("attn_norm", c_void_p), ("mlp_norm", c_void_p), ("q_norm", c_void_p),
        ("k_norm", c_void_p),
    ]  # fmt: skip


class SpanPlace(Structure):
    """`struct span`."""

    _fields_: ClassVar = [("row", c_int32), ("start", c_int32), ("count", c_int32)]


class Pass(Structure):
    """`struct pass`."""

    _fields_: ClassVar = [
        ("layers", c_void_p), ("keys", c_void_p), ("values", c_void_p), ("cos", c_void_p),
        ("sin", c_void_p), ("spans", c_void_p), ("state", c_void_p), ("scratch", c_void_p),
        ("slots", c_int64),
        *((name, c_int32) for name in (
            "span_count", "rows", "first", "stop", "threads", "hidden", "heads", "kv_heads",
            "head_dim", "feed_forward", "window", "activation",
        )),
        ("eps", c_float), ("attention_scale", c_float), ("residual_scale", c_float),
    ]  # fmt: skip


class Native:
    """The loaded library, its functions typed."""

    def __init__(self, library: ctypes.CDLL, entries: tuple[int, ...]) -> None:
        library.use_threads_of.argtypes = [c_void_p] * len(entries)
        library.use_threads_of.restype = None
        library.use_threads_of(*entries)
        self.run_layers = _typed(library, "run_layers", None, POINTER(Pass))
        self.pass_scratch = _typed(library, "pass_scratch", c_int64, POINTER(Pass), *[c_int] * 3)
        self.run_product = _typed(library, "run_product", None, POINTER(Product))
        self.product_scratch = _typed(library, "product_scratch", c_int64, c_int64, c_int64, c_int)
        self.run_attention = _typed(library, "run_attention", None, POINTER(Attention), c_int)
        self.attend_scratch = _typed(library, "attend_scratch", c_int64, *[c_int] * 5)
        self.norm_rows = _typed(
            library, "norm_rows", None, c_void_p, c_void_p, c_int64, c_int64, c_float, c_void_p
        )
        self.rotate_rows = _typed(
            library, "rotate_rows", None,
            c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_int, c_void_p,
        )  # fmt: skip
        self.activate_rows = _typed(
            library, "activate_rows", None, c_void_p, c_int64, c_int64, c_int, c_void_p
        )
        self.add_scaled = _typed(library, "add_scaled", None, c_void_p, c_void_p, c_int64, c_float)


def _typed(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function: Any = getattr(library, name)
    function.argtypes, function.restype = arguments, result
    return cast("Callable[..., Any]", function)


def address(tensor: Tensor | None) -> int | None:
    """Where a contiguous CPU tensor lies; None for none."""
    return None if tensor is None else tensor.data_ptr()


def openmp_entries() -> tuple[int, ...] | None:
    """Addresses of the OpenMP functions that torch itself calls; None if its runtime is another."""
    here = Path(torch.__file__).parent
    bundled = [*(here / "lib").glob("libgomp*"), *here.parent.glob("torch.libs/libgomp*")]
    # The bundled one first: another library may have brought the system's along, a second pool.
    for name in (*map(str, bundled), "libgomp.so.1", "libiomp5.so"):
        try:
            runtime = ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
            found = [ctypes.cast(getattr(runtime, entry), c_void_p).value for entry in _ENTRIES]
        except (OSError, AttributeError):
            continue
        entries = tuple(at for at in found if at is not None)
        if len(entries) == len(_ENTRIES):
            return entries
    return None
