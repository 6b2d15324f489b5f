"""From the C sources to a loaded library: find a compiler, build once, keep the result.

The kernels are never needed: without them (another processor or system, no compiler, a failed
build) `native_kernels` says why in words and decoding goes on with torch's operators. Nothing is
downloaded, and the environment is not read: whether to use kernels at all is the caller's setting.

Invariant: a library is loaded only if it is whole and was built from exactly these sources.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.native.bindings import Native, openmp_entries
from engine.native.suitable import NO_COMPILER, PROCESSOR_FLAGS, compilers_here, unsuitable

logger = logging.getLogger(__name__)

_SWITCHES = (
    "-O3", "-std=gnu11", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno",
    "-Wl,-Bsymbolic",
    *(f"-m{flag.replace('_', '')}" for flag in PROCESSOR_FLAGS),
)  # fmt: skip
_LIMIT_S = 120

Compiling = Callable[[], None]
"""Called before a compiler runs, which takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The library, or why there is none."""

    native: Native | None
    reason: str = ""
    """Empty if there is a library."""


def native_kernels(
    folder: Path,
    compiling: Compiling = lambda: None,
    compilers: Callable[[], list[tuple[str, ...]]] = compilers_here,
) -> Built:
    """The kernels for this machine, from `folder` or built into it."""
    reason = unsuitable()
    if reason:
        return Built(native=None, reason=reason)
    entries = openmp_entries()
    if entries is None:
        return Built(native=None, reason="torch's OpenMP threads were not found")
    library = _kept(folder)
    if library is None:
        reason = _build(folder, compiling, compilers())
        library = None if reason else _kept(folder)
    if library is None:
        return Built(native=None, reason=reason or "the compiled kernels can't be loaded")
    return Built(native=Native(library, entries))


def _kept(folder: Path) -> ctypes.CDLL | None:
    """The library that was built from these sources, if it is there, whole, and can be loaded.

    Its own digest is part of its name: the loader crashes on a file that was cut short.
    """
    for file in folder.glob(f"pass-{sources_digest()}-*.so"):
        try:
            if file.stem.endswith(_short(file.read_bytes())):
                return ctypes.CDLL(str(file))
        except OSError as error:  # built elsewhere, for another C library
            logger.warning("compiled kernels can't be loaded: %s", error)
    return None


def _build(folder: Path, compiling: Compiling, commands: list[tuple[str, ...]]) -> str:
    """Compile into `folder`; returns what went wrong, or nothing."""
    if not commands:
        return NO_COMPILER
    compiling()
    reason = ""
    for command in commands:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "pass.so"
                reason = _compile(command, made)
                if not reason:
                    digests = f"{sources_digest()}-{_short(made.read_bytes())}"
                    made.replace(folder / f"pass-{digests}.so")
                    return ""
        except OSError as error:
            reason = f"the kernels can't be built in '{folder}': {error}"
        logger.warning("%s: %s", command[-1], reason)
    return reason


def _compile(command: tuple[str, ...], made: Path) -> str:
    sources = [str(path) for path in sorted(Path(__file__).parent.glob("*.c"))]
    try:
        done = subprocess.run(
            [*command, *_SWITCHES, *sources, "-o", str(made), "-lm"],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
            env={**os.environ, "TMPDIR": str(made.parent)},
        )
    except subprocess.TimeoutExpired:
        return f"the compiler took longer than {_LIMIT_S} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return f"the compiler failed: {lines[0] if lines else f'exit status {done.returncode}'}"


def sources_digest() -> str:
    """Of everything that the result depends on."""
    parts = [" ".join(_SWITCHES).encode()]
    for path in sorted(Path(__file__).parent.glob("*.[ch]")):
        parts += [path.name.encode(), path.read_bytes()]
    return _short(b"\0".join(parts))


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
