"""A GGUF file: its metadata and its tensors, one dequantized at a time.

Reads the layout itself because the reader of the gguf package keeps an object for every token of
the vocabulary (half a gigabyte and eight seconds for 150,000 of them); the block formats are left
to `gguf.quants`. It knows nothing of model families.

Invariant: reading a tensor holds its result and one chunk of rows in memory, nothing else.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import Tensor

from engine.protocol import ModelError
from engine.tensor_file import damaged

if TYPE_CHECKING:
    from pathlib import Path

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"}
_SCALARS |= {10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
_CHUNK_VALUES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One row of the file's tensor table."""

    shape: tuple[int, ...]
    """Outermost dimension first, as in torch."""
    kind: int
    """Block format: a value of `gguf.GGMLQuantizationType`."""
    offset: int
    """Bytes from the beginning of the file's data section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """The parsed head of a file."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    data_start: int

    def read(self, name: str) -> Tensor:
        """One tensor: plain formats in their own dtype, quantized ones in bfloat16."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        about = self.tensors[name]
        try:
            kind = GGMLQuantizationType(about.kind)
        except ValueError as error:
            raise _unsupported(self.path, str(about.kind)) from error
        block, block_bytes = GGML_QUANT_SIZES[kind]
        width = about.shape[-1]
        if width % block:
            raise damaged(self.path, f"rows of {width} don't divide into blocks of {block}")
        with self.path.open("rb") as file:
            file.seek(self.data_start + about.offset)
            if kind.name in _PLAIN:
                return _read_plain(self.path, file, about, _PLAIN[kind.name])
            return _read_blocks(self.path, file, about, width // block * block_bytes)


def read_gguf(path: Path) -> GgufFile:
    """Parse the head of a GGUF file, versions 2 and 3. Raises `ModelError` `damaged_weights`."""
    try:
        with path.open("rb") as file:
            magic, version, tensor_count, pair_count = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError(f"it starts with {magic!r}, version {version}")
            metadata = {}
            for _ in range(pair_count):
                key = _string(file)
                metadata[key] = _value(file, _number(file, "<I"))
            tensors = dict(_table_row(file) for _ in range(tensor_count))
            alignment = metadata.get("general.alignment")
            step = alignment if isinstance(alignment, int) and alignment > 0 else 32
            start = -(-file.tell() // step) * step
    except (OSError, ValueError, struct.error) as error:
        raise damaged(path, str(error)) from error
    return GgufFile(path=path, metadata=metadata, tensors=tensors, data_start=start)


def _read_plain(path: Path, file: BinaryIO, about: GgufTensor, dtype: torch.dtype) -> Tensor:
    data = bytearray(math.prod(about.shape) * dtype.itemsize)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]
        raise damaged(path, "it ends inside a tensor")
    return torch.frombuffer(data, dtype=dtype).view(about.shape)


def _read_blocks(path: Path, file: BinaryIO, about: GgufTensor, row_bytes: int) -> Tensor:
    """Dequantize a few rows at a time: numpy's intermediate arrays are several times the result."""
    import numpy as np
    from gguf import GGMLQuantizationType, quants

    width = about.shape[-1]
    rows = math.prod(about.shape[:-1])
    out = torch.empty((rows, width), dtype=torch.bfloat16)
    step = max(1, _CHUNK_VALUES // width)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        data = file.read(count * row_bytes)
        if len(data) != count * row_bytes:
            raise damaged(path, "it ends inside a tensor")
        packed = np.frombuffer(data, dtype=np.uint8).reshape(count, row_bytes)
        try:
            values = quants.dequantize(packed, GGMLQuantizationType(about.kind))
        except NotImplementedError as error:  # a block format that gguf can name but not read
            raise _unsupported(path, GGMLQuantizationType(about.kind).name) from error
        out[first : first + count] = torch.from_numpy(values)
    return out.view(about.shape)


def _unsupported(path: Path, kind: str) -> ModelError:
    return ModelError(
        "gguf_format",
        f"'{path}' has tensors in the block format {kind}, which can't be read here",
        "Choose a file of another quantization, for example Q4_K_M or Q8_0.",
    )


def _table_row(file: BinaryIO) -> tuple[str, GgufTensor]:
    name = _string(file)
    dimensions = _number(file, "<I")
    shape = struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions))
    kind, offset = struct.unpack("<IQ", file.read(12))
    return name, GgufTensor(shape=tuple(reversed(shape)), kind=kind, offset=offset)


def _value(file: BinaryIO, kind: int) -> Any:
    if kind in _SCALARS:
        return _number(file, _SCALARS[kind])
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        raise ValueError(f"metadata of the unknown kind {kind}")
    inner, count = struct.unpack("<IQ", file.read(12))
    if inner == _STRING:
        return [_string(file) for _ in range(count)]
    if inner not in _SCALARS:
        raise ValueError(f"an array of the unknown kind {inner}")
    code = _SCALARS[inner][1]
    return list(struct.unpack(f"<{count}{code}", file.read(count * struct.calcsize(code))))


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(code, file.read(struct.calcsize(code)))[0]


def _string(file: BinaryIO) -> str:
    return file.read(_number(file, "<Q")).decode("utf-8", errors="replace")
