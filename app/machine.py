"""What this machine is, as far as decoding cares: processor, memory, GPU, installed packages.

It asks the operating system and the packages' own records; torch is imported only where the driver
of a CUDA device is loaded, because nothing else can say how much of its memory is free. It judges
nothing: `doctor.py` does.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from engine.host_memory import physical_cores
from engine.memory_plan import available_host_bytes
from engine.native.suitable import NO_COMPILER, compilers_here, unsuitable

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = ("torch", "transformers", "bitsandbytes", "tokenizers", "safetensors", "gguf")


class CudaDevice(Struct, frozen=True, kw_only=True):
    """The first CUDA device that torch sees."""

    name: str
    free_bytes: int
    total_bytes: int


class Machine(Struct, frozen=True, kw_only=True):
    """The facts, as plain values."""

    python: str
    system: str
    packages: Mapping[str, str | None]
    """Version by name; None is not installed."""
    cpu: str
    physical_cores: int
    avx512_bf16: bool
    """Whether the processor has AVX512-BF16; False also where the system can't be asked."""
    available_bytes: int
    """Memory that this process may still take."""
    cuda: CudaDevice | None = None
    no_kernels: str = ""
    """Why the C kernels can't be compiled or run here; empty if they can."""


def this_machine() -> Machine:
    """Look around. Takes a second or two with a CUDA device, milliseconds without."""
    model, flags = _processor(Path("/proc/cpuinfo"))
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        packages={name: _version(name) for name in PACKAGES},
        cpu=model or platform.processor() or platform.machine(),
        physical_cores=physical_cores(),
        avx512_bf16="avx512_bf16" in flags,
        available_bytes=available_host_bytes(),
        cuda=_cuda_device(),
        no_kernels=unsuitable() or ("" if compilers_here() else NO_COMPILER),
    )


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`, links not followed; 0 if it does not exist."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            file = Path(at) / name
            with suppress(OSError):  # another process may be moving it just now
                total += 0 if file.is_symlink() else file.stat().st_size
    return total


def hub_cache(environ: Mapping[str, str]) -> Path:
    """The cache that huggingface_hub shares between programs, after its own variables."""
    home = environ.get("HF_HOME") or Path(
        environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()


def _processor(cpuinfo: Path) -> tuple[str, frozenset[str]]:
    """Name and feature flags of the first processor; empty where the file does not exist."""
    try:
        lines = cpuinfo.read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return "", frozenset()
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    return fields.get("model name", ""), frozenset(fields.get("flags", "").split())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda_device() -> CudaDevice | None:
    if not any(Path(sign).exists() for sign in ("/proc/driver/nvidia/version", "/dev/nvidia0")):
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info(0)
    return CudaDevice(name=torch.cuda.get_device_name(0), free_bytes=free, total_bytes=total)
