"""The folder that keeps a converted model: what it holds, how it appears, when it counts.

    weights.safetensors   the tensors `Model` takes (names: see `convert.py`)
    architecture.json     `Architecture`, rotary frequencies included
    tokenizer files       what `text.py` reads
    origin.json           which checkpoint and settings it was made from; written last

A conversion is built in a hidden folder beside its final place and moved there in one step, so a
folder under its final name is whole whatever stopped an earlier attempt. It knows no model code.

Invariant: two processes that convert the same model at once both end with one complete folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock
from msgspec import Struct

from engine.config import Quant
from engine.families import Architecture
from engine.processes import process_of, started_at
from engine.tensor_file import read_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

FORMAT = 1
"""Raised whenever the same checkpoint and settings would give other files."""
WEIGHTS = "weights.safetensors"
_ARCHITECTURE, _ORIGIN = "architecture.json", "origin.json"
_LOCK = ".lock"
_PARTIAL = re.compile(r"\..+\.(\d+)-(\d+)-[0-9a-f]+\.partial")


class Origin(Struct, frozen=True, kw_only=True):
    """What a converted folder was made from."""

    source: str
    digest: str
    quant: Quant
    device: str
    layout: str
    """Of quantized matrices: kernels of one device may want their own."""
    weight_bytes: int = 0
    """Size of the weights file; a file of another size was cut."""
    format: int = FORMAT

    @property
    def folder_name(self) -> str:
        """Name of the folder: readable, and different for whatever makes its content different."""
        parts = (self.digest, self.quant, self.device, self.layout, str(self.format))
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(self.source).name.removesuffix(".gguf"))
        return f"{stem[:60]}-{self.quant}-{self.device}-{key}"


def weights_digest(source_digest: str, quant: Quant) -> str:
    """What stands for the weights as they are multiplied, on whatever device: a checkpoint and how
    it was quantized."""
    return hashlib.sha256(f"{source_digest}\0{quant}".encode()).hexdigest()


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a whole conversion in today's format."""
    try:
        origin = msgspec.json.decode((folder / _ORIGIN).read_bytes(), type=Origin)
        read_architecture(folder)
        size = (folder / WEIGHTS).stat().st_size
    except (OSError, msgspec.MsgspecError):
        return False
    return origin.format == FORMAT and origin.weight_bytes == size


def read_architecture(folder: Path) -> Architecture:
    """The architecture of a complete folder."""
    return msgspec.json.decode((folder / _ARCHITECTURE).read_bytes(), type=Architecture)


def read_weights(
    folder: Path,
    report: Callable[[int, int], None],
    *,
    shared: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """All tensors of a complete folder, on the CPU; those `shared` with another model are taken
    from there and not read. `report(done, total)` counts bytes."""
    given = dict(shared or {})
    tensors = given | read_all(folder / WEIGHTS, report, without=given)
    if "head.dense" not in tensors and not any(name.startswith("head.") for name in tensors):
        tensors["head.dense"] = tensors["embed.weight"]  # tied and dense: kept once
    return tensors


def describe(folder: Path, arch: Architecture, origin: Origin) -> None:
    """Write what stands beside the weights; `folder` is complete afterwards."""
    size = (folder / WEIGHTS).stat().st_size
    origin = msgspec.structs.replace(origin, weight_bytes=size)
    (folder / _ARCHITECTURE).write_bytes(msgspec.json.encode(arch))
    (folder / _ORIGIN).write_bytes(msgspec.json.encode(origin))


@contextmanager
def building(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` at the end and vanishes after any exception.

    Folders that killed processes left behind are removed on the way in.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent)
    folder = _beside(target)
    folder.mkdir()
    try:
        yield folder
        for file in folder.iterdir():
            _sync(file)
        _sync(folder)
        _publish(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(cache_folder: Path) -> None:
    """Remove unfinished conversions whose process is gone."""
    for folder in cache_folder.glob(".*.partial"):
        owner = _PARTIAL.fullmatch(folder.name)
        if owner and process_of(int(owner[1]), float(owner[2])) is None:
            shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, target: Path) -> None:
    """Move `folder` to `target`, unless another process has put a whole one there meanwhile.

    One process at a time: between the question and the move, a whole folder that another one is
    already reading could be taken for a spoilt one and moved away.
    """
    with FileLock(target.parent / _LOCK):
        if is_complete(target):
            return
        if target.exists():
            spoilt = _beside(target)
            target.replace(spoilt)
            shutil.rmtree(spoilt, ignore_errors=True)
        folder.replace(target)
        _sync(target.parent)


def _beside(target: Path) -> Path:
    pid = os.getpid()
    owner = f"{pid}-{round(started_at(pid))}-{secrets.token_hex(4)}"
    return target.parent / f".{target.name}.{owner}.partial"


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
