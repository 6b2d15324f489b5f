"""The weight files of a Hugging Face folder, checked by their headers, and what stands in for them.

Owns the safetensors layout, the shard index, git-LFS pointers, pickled weights and unfinished
downloads. It knows nothing of configurations or architectures; `preflight.py` asks it for the names
and shapes of the tensors.

Invariant: `read_weights` returns only if every shard is complete to the byte. It reads headers,
never weights.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_POINTER = b"version https://git-lfs.github.com/spec/"
_PARTIAL_ENDINGS = (".incomplete", ".part", ".partial", ".crdownload", ".aria2")
_HEADER_LIMIT = 100_000_000  # the format's own limit, in bytes
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16,
    "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
}  # fmt: skip
_FETCH_AGAIN = "Download the file again; 'hf download' resumes and checks it."


class Weights(Struct, frozen=True, kw_only=True):
    """Complete shards and what is in them."""

    files: tuple[str, ...]
    file_bytes: int
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def parameters(self) -> int:
        """Of all tensors stored."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def read_weights(folder: Path) -> Weights:
    """Check every shard that the model in `folder` consists of.

    Raises `ModelError`: `shard_missing`, `shard_truncated`, `shard_garbage`, `lfs_pointer`,
    `weights_pickled`, `weights_missing`, `download_incomplete`, `config_broken`.
    """
    files = _shard_names(folder)
    shapes: dict[str, tuple[int, ...]] = {}
    for name in files:
        shapes.update(_read_shard(folder / name))
    sizes = sum((folder / name).stat().st_size for name in files)
    return Weights(files=files, file_bytes=sizes, shapes=shapes)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; `ModelError` `lfs_pointer` or `config_broken` otherwise."""
    refuse_pointer(path)
    try:
        found = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as broken:
        raise ModelError(
            "config_broken", f"'{path}' is not valid JSON: {broken}", "Download the file again."
        ) from broken
    if not isinstance(found, dict):
        raise ModelError(
            "config_broken",
            f"'{path}' holds a JSON {type(found).__name__} where an object is expected",
            "Download the file again.",
        )
    return found


def refuse_pointer(path: Path) -> None:
    """Raise `ModelError` `lfs_pointer` if `path` holds git-LFS pointer text instead of content."""
    with path.open("rb") as file:
        text = file.read(256)
    if not text.startswith(_POINTER):
        return
    size = re.search(rb"size (\d+)", text)
    of = f" of a file of {int(size[1]):,} bytes" if size else ""
    raise ModelError(
        "lfs_pointer",
        f"'{path}' is the git-LFS pointer{of}, not the file itself",
        "Run 'git lfs install' and 'git lfs pull' in that folder, or use 'hf download'.",
    )


def partial_downloads(folder: Path) -> tuple[str, ...]:
    """Names of unfinished downloads in `folder` and in the hub client's place inside it."""
    places = (folder, folder / ".cache" / "huggingface" / "download")
    return tuple(
        sorted(
            str(file.relative_to(folder))
            for place in places
            if place.is_dir()
            for file in place.iterdir()
            if file.name.endswith(_PARTIAL_ENDINGS)
        )
    )


def refuse_partial(folder: Path, prefix: str = "") -> None:
    """Raise `ModelError` `download_incomplete` if a file named `prefix`… is still unfinished."""
    names = [name for name in partial_downloads(folder) if name.startswith(prefix)]
    if names:
        raise ModelError(
            "download_incomplete",
            f"the download into '{folder}' did not finish: {_some(names)}",
            "Start the same download again; it resumes where it stopped.",
        )


def _shard_names(folder: Path) -> tuple[str, ...]:
    if (folder / INDEX).exists():
        names = _indexed_names(folder / INDEX)
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            refuse_partial(folder)
            raise _shards_missing(folder, f"'{INDEX}' names", missing)
        return names
    if (folder / SINGLE).exists():
        return (SINGLE,)
    # Without an index every file counts, and their own numbering says how many there should be.
    found = sorted(file.name for file in folder.glob("*.safetensors") if "adapter" not in file.name)
    missing = [name for name in _numbered_names(found) if name not in found]
    if missing or not found:
        refuse_partial(folder)
        raise (
            _shards_missing(folder, "the others count", missing) if missing else _no_weights(folder)
        )
    return tuple(found)


def _numbered_names(found: list[str]) -> list[str]:
    """All names of the series that the first file named like `x-00001-of-00003` belongs to."""
    for name in found:
        parts = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})(\.safetensors)", name)
        if parts:
            count = int(parts[2])
            return [f"{parts[1]}-{n:05}-of-{count:05}{parts[3]}" for n in range(1, count + 1)]
    return []


def _indexed_names(path: Path) -> tuple[str, ...]:
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(
            "config_broken", f"'{path}' has no 'weight_map'", "Download the file again."
        )
    return tuple(sorted({str(name) for name in weight_map.values()}))


def _shards_missing(folder: Path, who: str, missing: list[str]) -> ModelError:
    return ModelError(
        "shard_missing",
        f"'{folder}' lacks {len(missing)} weight files that {who}: {_some(missing)}",
        "Download the missing files into the same folder.",
    )


def _no_weights(folder: Path) -> ModelError:
    pickled = sorted(
        file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth")
    )
    if pickled:
        return ModelError(
            "weights_pickled",
            f"'{folder}' has its weights only as pickled files ({_some(pickled)}), which can run "
            "code when opened and are not loaded",
            "Take the safetensors revision of the model, or convert it once where you trust it: "
            "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder).",
        )
    return ModelError(
        "weights_missing",
        f"'{folder}' has a configuration but no weights ('{SINGLE}' or '{INDEX}')",
        "Download the *.safetensors files of the model into it.",
    )


def _read_shard(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes in one safetensors file whose header agrees with its size."""
    refuse_pointer(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if len(prefix) == 8 and not 2 <= length <= _HEADER_LIMIT:
            raise _garbage(path, f"its header claims to be {length:,} bytes long")
        if len(prefix) < 8 or 8 + length > size:
            raise _truncated(path, size, 8 + length)
        header = _parse_header(path, file.read(length))
    shapes: dict[str, tuple[int, ...]] = {}
    end = 0
    for name, entry in header.items():
        shapes[name], stop = _checked_entry(path, name, entry)
        end = max(end, stop)
    if 8 + length + end > size:
        raise _truncated(path, size, 8 + length + end)
    if 8 + length + end < size:
        raise _garbage(path, f"{size - 8 - length - end:,} bytes follow its last tensor")
    return shapes


def _parse_header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as broken:
        raise _garbage(path, f"its header is not JSON ({broken})") from broken
    if not isinstance(header, dict):
        raise _garbage(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    return header


def _checked_entry(path: Path, name: str, entry: object) -> tuple[tuple[int, ...], int]:
    """Shape of one tensor and where its bytes end within the data section."""
    try:
        dtype, shape = entry["dtype"], tuple(int(size) for size in entry["shape"])  # type: ignore[index]
        start, stop = (int(offset) for offset in entry["data_offsets"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError) as broken:
        raise _garbage(path, f"the entry of tensor '{name}' can't be read") from broken
    if dtype in _BITS and (stop - start) * 8 != math.prod(shape) * _BITS[dtype]:
        raise _garbage(
            path, f"tensor '{name}' of shape {list(shape)} has {stop - start:,} bytes as {dtype}"
        )
    return shape, stop


def _truncated(path: Path, size: int, needed: int) -> ModelError:
    return ModelError(
        "shard_truncated", f"'{path}' ends after {size:,} of {needed:,} bytes", _FETCH_AGAIN
    )


def _garbage(path: Path, why: str) -> ModelError:
    return ModelError(
        "shard_garbage", f"'{path}' is not a sound safetensors file: {why}", _FETCH_AGAIN
    )


def _some(names: list[str] | tuple[str, ...]) -> str:
    """At most three of `names`, and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
