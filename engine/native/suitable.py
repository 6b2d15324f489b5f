"""What the C kernels need of a machine: a processor that runs them, and a compiler. No torch here.

Invariant: asking compiles and loads nothing.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from pathlib import Path

PROCESSOR_FLAGS = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512vbmi",
    "avx512_bf16",
)  # fmt: skip
"""What the sources use, in Linux' spelling."""
NO_COMPILER = "no C compiler was found (install one, or: pip install ziglang)"


def unsuitable() -> str:
    """Why this machine can't run the kernels; empty if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the kernels are for Linux on x86-64, not {sys.platform} on {platform.machine()}"
    try:
        told = Path("/proc/cpuinfo").read_text()
    except OSError as error:
        return f"the processor's features can't be read ({error})"
    line = next((line for line in told.splitlines() if line.startswith("flags")), "")
    lacking = sorted(set(PROCESSOR_FLAGS) - set(line.partition(":")[2].split()))
    return f"the processor lacks {', '.join(lacking)}" if lacking else ""


def compilers_here() -> list[tuple[str, ...]]:
    """The C compilers of this machine as commands, the one to try first in front."""
    found: list[tuple[str, ...]] = [
        (path,) for name in ("cc", "gcc", "clang") if (path := shutil.which(name))
    ]
    if importlib.util.find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found
