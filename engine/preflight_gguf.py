"""The header of a GGUF file, read without loading a tensor, and why such a file may be refused.

Owns the GGUF layout: magic, metadata, tensor table, data section. It answers with plain numbers and
names (`GgufHeader`); `preflight.py` turns them into an inspection. It must not know folders.

Invariant: a header is returned only if every tensor it lists lies within the file. Reading is
bounded by the header's own length, never by the size of the weights.
"""

from __future__ import annotations

import mmap
import re
import struct
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAGIC = b"GGUF"

FAMILY_BY_ARCHITECTURE: Mapping[str, str] = {
    "llama": "llama",  # Mistral's files carry this name too
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "starcoder2": "starcoder2",
    "granite": "granite",
    "gemma": "gemma",
}
"""`general.architecture` → key of `engine.families.FAMILIES`."""

_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

_BLOCKS: Mapping[int, tuple[int, int]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
}
"""ggml type → (values per block, bytes per block), of the types that can be dequantized here."""

_OTHER_KINDS = {
    "adapter": "a LoRA adapter",
    "mmproj": "a vision projector (mmproj)",
    "vocab": "a vocabulary without weights",
    "imatrix": "an importance matrix",
}


class GgufHeader(Struct, frozen=True, kw_only=True):
    """What a GGUF says of itself. Strings inside arrays are counted, not kept."""

    values: Mapping[str, object]
    """Scalar and string metadata; an array is given as its length."""
    shapes: Mapping[str, tuple[int, ...]]
    """Tensor name → shape in ggml's order, innermost dimension first."""
    parameters: int
    file_bytes: int

    @property
    def architecture(self) -> str:
        """`general.architecture`, empty if the file has none."""
        return str(self.values.get("general.architecture", ""))


class _PastEndError(Exception):
    """The header goes on behind the end of the file."""


class _Cursor:
    """Reads little-endian values from a buffer, refusing to step over its end."""

    def __init__(self, data: mmap.mmap, start: int) -> None:
        self._data = data
        self._size = len(data)
        self.at = start

    def skip(self, count: int) -> int:
        """Step over `count` bytes; the position before them."""
        before, self.at = self.at, self.at + count
        if self.at > self._size:
            raise _PastEndError
        return before

    def number(self, code: str) -> int | float:
        """One value of `struct` code `code`."""
        value: int | float = struct.unpack_from(
            f"<{code}", self._data, self.skip(struct.calcsize(f"<{code}"))
        )[0]
        return value

    def count(self, code: str = "Q") -> int:
        """One unsigned integer."""
        return int(self.number(code))

    def text(self) -> str:
        """One length-prefixed string."""
        length = self.count()
        start = self.skip(length)
        return self._data[start : start + length].decode("utf-8", "replace")


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of the GGUF at `path`.

    Raises `ModelError` `gguf_magic`, `gguf_version`, `gguf_damaged`, `gguf_truncated` or
    `gguf_tensor_type`.
    """
    size = path.stat().st_size
    if size < 24:
        _refuse_truncated(path, f"has only {size} bytes, less than a GGUF header")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != MAGIC:
            raise ModelError(
                "gguf_magic",
                f"'{path}' is not a GGUF file: it begins with {data[:4]!r} instead of {MAGIC!r}",
                "Download the file again, or give the folder if these are Hugging Face weights.",
            )
        try:
            return _parse(_Cursor(data, 4), path, size)
        except _PastEndError:
            _refuse_truncated(path, f"ends after {size:,} bytes, inside its own header")


def check_kind(header: GgufHeader, path: Path) -> str:
    """The family of a language model in one file, or `ModelError` for every other GGUF.

    Codes: `gguf_split`, `gguf_not_a_model`, `gguf_architecture`.
    """
    named = re.search(r"-(\d{5})-of-(\d{5})\.gguf$", path.name)
    parts = header.values.get("split.count", int(named[2]) if named else 0)
    if isinstance(parts, int) and parts > 1:
        raise ModelError(
            "gguf_split",
            f"'{path}' is one of {parts} parts of a split GGUF",
            f"Join them first: llama-gguf-split --merge {path.name} joined.gguf",
        )
    kind = _other_kind(header)
    if kind:
        raise ModelError(
            "gguf_not_a_model",
            f"'{path}' holds {kind}, not a language model",
            "Give the GGUF with the model's own weights.",
        )
    family = FAMILY_BY_ARCHITECTURE.get(header.architecture)
    experts = header.values.get(f"{header.architecture}.expert_count", 0)
    if family is None or experts:
        extra = f" with {experts} experts" if experts else ""
        raise ModelError(
            "gguf_architecture",
            f"'{path}' has the architecture '{header.architecture}'{extra}, "
            "which this engine does not run",
            f"Choose a dense model of one of: {', '.join(sorted(FAMILY_BY_ARCHITECTURE))}.",
        )
    return family


def _other_kind(header: GgufHeader) -> str:
    """What the file holds when it is no language model, else an empty string."""
    declared = _OTHER_KINDS.get(str(header.values.get("general.type", "model")), "")
    if declared:
        return declared
    if header.architecture == "clip":
        return _OTHER_KINDS["mmproj"]
    if "token_embd.weight" not in header.shapes:
        return _OTHER_KINDS["vocab"] if not header.shapes else "no token embedding"
    return ""


def _parse(cursor: _Cursor, path: Path, size: int) -> GgufHeader:
    version = cursor.count("I")
    if version not in (2, 3):
        raise ModelError(
            "gguf_version",
            f"'{path}' is GGUF version {version}; versions 2 and 3 (little-endian) are read",
            "Convert the model again with a current llama.cpp.",
        )
    tensors, entries = cursor.count(), cursor.count()
    values: dict[str, object] = {}
    for _ in range(entries):
        key = cursor.text()
        values[key] = _value(cursor, cursor.count("I"), path)
    shapes: dict[str, tuple[int, ...]] = {}
    end = parameters = 0
    for _ in range(tensors):
        name = cursor.text()
        shape = tuple(cursor.count() for _ in range(cursor.count("I")))
        kind, offset = cursor.count("I"), cursor.count()
        elements = 1
        for dimension in shape:
            elements *= dimension
        shapes[name] = shape
        parameters += elements
        end = max(end, offset + _tensor_bytes(elements, kind, name, path))
    alignment = values.get("general.alignment", 32)
    step = alignment if isinstance(alignment, int) and alignment > 0 else 32
    needed = -(-cursor.at // step) * step + end
    if tensors and needed > size:
        _refuse_truncated(path, f"ends after {size:,} of {needed:,} bytes")
    return GgufHeader(values=values, shapes=shapes, parameters=parameters, file_bytes=size)


def _value(cursor: _Cursor, kind: int, path: Path) -> object:
    """One metadata value; of an array only its length, which is all that is asked of one."""
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind == _STRING:
        return cursor.text()
    if kind != _ARRAY:
        raise _damaged(path, f"metadata value of unknown type {kind}")
    inner, length = cursor.count("I"), cursor.count()
    if inner in _SCALARS:
        cursor.skip(length * struct.calcsize(f"<{_SCALARS[inner]}"))
    elif inner == _STRING:
        for _ in range(length):
            cursor.skip(cursor.count())
    else:
        raise _damaged(path, f"metadata array of unknown type {inner}")
    return length


def _tensor_bytes(elements: int, kind: int, name: str, path: Path) -> int:
    if kind not in _BLOCKS:
        raise ModelError(
            "gguf_tensor_type",
            f"'{path}' stores tensor '{name}' as ggml type {kind}, which can't be dequantized here",
            "Choose a common file of this model: Q4_K_M, Q5_K_M, Q6_K, Q8_0, F16 or BF16.",
        )
    values, size = _BLOCKS[kind]
    return -(-elements // values) * size


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(
        "gguf_damaged", f"the header of '{path}' is damaged: {what}", "Download the file again."
    )


def _refuse_truncated(path: Path, what: str) -> NoReturn:
    raise ModelError(
        "gguf_truncated",
        f"'{path}' {what}: the download did not finish",
        "Download the file again; a partial file can usually be resumed.",
    )
