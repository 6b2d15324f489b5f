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
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
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
LIBRARIES_KEPT = 4
LIMIT_S = 120.0
"""For all compilers together."""

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
    limit_s: float = LIMIT_S,
) -> Built:
    """The kernels for this machine, from `folder` or built into it within `limit_s`."""
    reason = unsuitable()
    if reason:
        return Built(native=None, reason=reason)
    entries = openmp_entries()
    if entries is None:
        return Built(native=None, reason="torch's OpenMP threads were not found")
    library = _kept(folder)
    if library is None:
        reason = _build(folder, compiling, compilers(), limit_s)
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


def _build(
    folder: Path, compiling: Compiling, commands: list[tuple[str, ...]], limit_s: float
) -> str:
    """Compile into `folder`; returns what went wrong, or nothing."""
    if not commands:
        return NO_COMPILER
    compiling()
    reason, ends = "", time.monotonic() + limit_s
    for command in commands:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "pass.so"
                reason = _compile(command, made, ends - time.monotonic())
                if not reason:
                    digests = f"{sources_digest()}-{_short(made.read_bytes())}"
                    made.replace(folder / f"pass-{digests}.so")
                    _forget_old(folder)
                    return ""
        except OSError as error:
            reason = f"the kernels can't be built in '{folder}': {error}"
        logger.warning("%s: %s", command[-1], reason)
    return reason


def _forget_old(folder: Path) -> None:
    """Leave the newest libraries: other versions of the package may be in use beside this one."""
    with suppress(OSError):  # another start may be doing the same
        known = sorted(folder.glob("pass-*.so"), key=lambda one: -one.stat().st_mtime)
        for old in known[LIBRARIES_KEPT:]:
            old.unlink(missing_ok=True)


def _compile(command: tuple[str, ...], made: Path, limit_s: float) -> str:
    """Run one compiler, which with all that it starts has ended afterwards; returns what went
    wrong, or nothing. Raises `OSError`."""
    if limit_s <= 0:
        return "the compilers took too long"
    sources = [str(path) for path in sorted(Path(__file__).parent.glob("*.c"))]
    with tempfile.TemporaryFile(dir=made.parent) as told:
        process = subprocess.Popen(
            [*command, *_SWITCHES, *sources, "-o", str(made), "-lm"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=told,
            env={**os.environ, "TMPDIR": str(made.parent)},
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"the compiler took longer than {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        told.seek(0)
        lines = told.read().decode(errors="replace").strip().splitlines()
    if status:
        return f"the compiler failed: {lines[0] if lines else f'exit status {status}'}"
    return _unloadable(made)


def _unloadable(made: Path) -> str:
    """Why what a compiler has left is no library of this machine; empty if it is one."""
    try:
        ctypes.CDLL(str(made))
    except OSError as error:
        return f"the compiler left what can't be loaded: {error}"
    return ""


def sources_digest() -> str:
    """Of everything that the result depends on."""
    parts = [" ".join(_SWITCHES).encode()]
    for path in sorted(Path(__file__).parent.glob("*.[ch]")):
        parts += [path.name.encode(), path.read_bytes()]
    return _short(b"\0".join(parts))


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
