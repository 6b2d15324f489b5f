"""Safetensors files, read into resident memory and written one tensor at a time.

The safetensors package maps a file and saves a dictionary that must be in memory as a whole; here a
7B checkpoint is converted with one matrix in memory, and a converted model is read into one block
of private memory, because its weights are streamed at every token and must not be paged out.
Python, torch and the format itself (JSON header, then bytes without holes) are all it knows.

Invariant: what `read_all` returns starts every tensor at a multiple of 64 bytes.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import Tensor

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from types import TracebackType

ALIGNMENT = 64
CHUNK_BYTES = 64 << 20
_HEADER_LIMIT = 100 << 20

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where one tensor lies."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Bytes from the beginning of the file."""
    nbytes: int


def read_header(path: Path) -> dict[str, Entry]:
    """All tensors of a safetensors file, by name. Raises `ModelError` `damaged_weights`."""
    try:
        start, listed = _read_header(path)
        size = path.stat().st_size
        return {
            name: _entry(about, start, size)
            for name, about in listed.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise damaged(path, str(error)) from error


def read_metadata(path: Path) -> dict[str, str]:
    """The strings that stand beside the tensors. Raises `ModelError` `damaged_weights`."""
    try:
        _, listed = _read_header(path)
        return {str(name): str(value) for name, value in listed.get("__metadata__", {}).items()}
    except (OSError, ValueError, AttributeError, struct.error) as error:
        raise damaged(path, str(error)) from error


def read_tensor(path: Path, entry: Entry) -> Tensor:
    """One tensor in memory of its own, in its stored dtype."""
    flat = torch.empty(entry.nbytes, dtype=torch.uint8)
    with path.open("rb") as file:
        _fill(path, file, entry, flat)
    return _shaped(path, entry, flat)


def read_all(
    path: Path, report: Callable[[int, int], None], *, without: Collection[str] = ()
) -> dict[str, Tensor]:
    """Every tensor of the file but those named in `without`, in one private block.
    `report(done, total)` counts bytes."""
    header = read_header(path)
    entries = {name: entry for name, entry in header.items() if name not in without}
    room = sum(_aligned(entry.nbytes) for entry in entries.values())
    block = torch.frombuffer(_private_memory(room), dtype=torch.uint8)
    tensors: dict[str, Tensor] = {}
    at = reported = 0
    with path.open("rb") as file:
        for name, entry in entries.items():
            flat = block[at : at + entry.nbytes]
            _fill(path, file, entry, flat)
            tensors[name] = _shaped(path, entry, flat)
            at += _aligned(entry.nbytes)
            if at - reported >= CHUNK_BYTES or at == room:
                report(at, room)
                reported = at
    return tensors


class TensorWriter:
    """Writes a safetensors file tensor by tensor; the header is put into room kept at the front.

    Leaving the context after an exception leaves a file without a header.
    """

    def __init__(
        self, path: Path, *, header_room: int, metadata: Mapping[str, str] | None = None
    ) -> None:
        self._room = -(-header_room // ALIGNMENT) * ALIGNMENT - 8
        self._listed: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
        self._at = 0
        self._file = path.open("wb")

    def __enter__(self) -> TensorWriter:
        self._file.write(bytes(8 + self._room))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._finish()

    def add(self, name: str, tensor: Tensor) -> None:
        """Append one tensor (CPU, any shape)."""
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        self._file.write(flat.numpy().data)
        self._listed[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [self._at, self._at + flat.numel()],
        }
        self._at += flat.numel()

    def _finish(self) -> None:
        header = json.dumps(self._listed, separators=(",", ":")).encode()
        assert len(header) <= self._room, f"header needs {len(header)} bytes, kept {self._room}"
        self._file.seek(0)
        self._file.write(struct.pack("<Q", self._room) + header.ljust(self._room))
        self._file.flush()
        os.fsync(self._file.fileno())


def damaged(path: Path, what: str) -> ModelError:
    """The error for a weight file that does not hold what it should."""
    return ModelError(
        "damaged_weights",
        f"'{path}' can't be read as weights: {what}",
        "Fetch the file again.",
    )


def _read_header(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Where the tensors' bytes begin, and the header as it stands in the file."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > _HEADER_LIMIT:
            raise ValueError(f"a header of {length} bytes")
        return 8 + length, json.loads(file.read(length))


def _entry(about: Mapping[str, Any], start: int, size: int) -> Entry:
    """One tensor of the header, in a file of `size` bytes whose data begin at `start`."""
    first, stop = about["data_offsets"]
    if not 0 <= first <= stop <= size - start:
        raise ValueError(f"a tensor at {first} … {stop} of {size - start} bytes")
    return Entry(
        dtype=about["dtype"],
        shape=tuple(about["shape"]),
        start=start + first,
        nbytes=stop - first,
    )


def _fill(path: Path, file: BinaryIO, entry: Entry, flat: Tensor) -> None:
    file.seek(entry.start)
    target = flat.numpy().data
    if target.nbytes and file.readinto(target) != target.nbytes:  # type: ignore[attr-defined]
        raise damaged(path, f"it ends before byte {entry.start + entry.nbytes}")


def _shaped(path: Path, entry: Entry, flat: Tensor) -> Tensor:
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        raise damaged(path, f"{entry.dtype} numbers are not supported")
    if math.prod(entry.shape) * dtype.itemsize != entry.nbytes:
        raise damaged(path, f"shape {list(entry.shape)} does not fill {entry.nbytes} bytes")
    return flat.view(dtype).view(entry.shape)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _private_memory(size: int) -> mmap.mmap:
    """Zeroed pages of this process, large ones where the system grants them (fewer page faults)."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, max(size, 1))
    block = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without huge pages does not know the advice.
        with suppress(OSError):
            block.madvise(mmap.MADV_HUGEPAGE)
    return block
