"""Runs one untrusted Python program and says whether it ran to its end without an error.

The program gets a process group, an empty folder and a Python of its own (`-I`), no network, no
second process or thread, and bounds on CPU seconds, memory and file sizes; whatever is left of it
after the wall-clock limit is killed. This file is both sides: the caller's, and, started as a
script, the inside that shuts the doors before it runs the program. Linux only.

Invariant: only a program that came to its last line passes; leaving early with exit code 0 does
not. A sandbox that can't be set up is an error of its own, never a failed program.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal

_PASSED, _NO_SANDBOX = 42, 43
"""Exit codes of the inside; 0 and 1 are what the program itself could leave with."""
_DETAIL_BYTES = 400
_NOBODY = 65534
_CLONE_NEWUSER, _CLONE_NEWNET, _PR_SET_KEEPCAPS = 0x10000000, 0x40000000, 8
_CAPABILITY_VERSION, _CAP_DAC_READ_SEARCH = 0x20080522, 1 << 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a program may use."""

    wall_s: float = 10.0
    memory_bytes: int = 1 << 30
    file_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended."""

    result: Literal["passed", "failed", "timeout"]
    detail: str
    """The end of what it wrote to stderr."""

    @property
    def passed(self) -> bool:
        """Whether it came to its end."""
        return self.result == "passed"


def run_program(source: str, limits: Limits | None = None) -> Outcome:
    """Run `source` as a main program. Raises `RuntimeError` if the sandbox can't be set up."""
    limits = limits or Limits()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as program,
        tempfile.TemporaryFile() as errors,
    ):
        Path(folder).chmod(0o777)  # the inside may be another user
        program.write(source.encode())
        program.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).resolve()), json.dumps(asdict(limits))],
            cwd=folder,
            env={},
            stdin=program,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limits.wall_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return _outcome(code, _tail(errors))


def _outcome(code: int | None, detail: str) -> Outcome:
    if code == _NO_SANDBOX:
        raise RuntimeError(f"the sandbox can't be set up: {detail}")
    if code is None or code == -signal.SIGXCPU:
        return Outcome(result="timeout", detail=detail)
    return Outcome(result="passed" if code == _PASSED else "failed", detail=detail)


def _tail(errors: BinaryIO) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _DETAIL_BYTES))
    return errors.read().decode(errors="replace")


def _inside(limits: Limits) -> None:
    """Shut the doors, then run the program on stdin; never returns."""
    source = sys.stdin.read()
    try:
        _leave_network()
        _become_nobody()
        _bound(limits)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(_NO_SANDBOX)
    exec(compile(source, "program.py", "exec", dont_inherit=True), {"__name__": "__main__"})
    os._exit(_PASSED)


def _leave_network() -> None:
    """Into a network namespace without interfaces; where that is forbidden, no sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNET | (0 if os.geteuid() == 0 else _CLONE_NEWUSER)
    if libc.unshare(flags) == 0:
        return
    import _socket
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise OSError("the sandbox has no network")

    for module in (_socket, socket):
        for name in ("socket", "socketpair", "create_connection", "getaddrinfo", "fromfd"):
            if hasattr(module, name):
                setattr(module, name, refuse)


def _become_nobody() -> None:
    """Root is above the limit of processes and may write everywhere. What stays of it is reading:
    Python itself may lie in root's home."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _require(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted, inheritable; then the same of capabilities 32 and above.
    kept = (ctypes.c_uint32 * 6)(_CAP_DAC_READ_SEARCH, _CAP_DAC_READ_SEARCH, 0, 0, 0, 0)
    _require(libc.capset(header, kept), "capset")


def _require(status: int, name: str) -> None:
    if status != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _bound(limits: Limits) -> None:
    for kind, amount in {
        resource.RLIMIT_CPU: math.ceil(limits.wall_s) + 1,
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }.items():
        resource.setrlimit(kind, (amount, amount))


if __name__ == "__main__":
    _inside(Limits(**json.loads(sys.argv[1])))
