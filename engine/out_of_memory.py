"""Memory that ran out: how it shows, and the error with the numbers that a user gets to read.

torch raises a class of its own on CUDA and a bare `RuntimeError` on the CPU; Python and the
operating system have theirs. Nothing is freed here: that is up to whoever holds something.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.host_memory import free_bytes, resident_bytes
from engine.memory_plan import gib
from engine.protocol import MemoryLimitError

_SAID = ("allocate memory", "out of memory", "not enough memory", "bad_alloc", "alloc_failed")
"""What a `RuntimeError` of torch, oneDNN or cuBLAS says when it is one of these."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` means that memory ran out, whoever raised it."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(text in said for text in _SAID)


def shortage(doing: str, hint: str) -> MemoryLimitError:
    """The error for memory that ran out `doing` something, a clause such as "while …"."""
    message = (
        f"memory ran out {doing}: this process holds {gib(resident_bytes())}, "
        f"{gib(free_bytes())} are free"
    )
    return MemoryLimitError("out_of_memory", message, hint)


@contextmanager
def told(doing: str, hint: str) -> Iterator[None]:
    """Turns memory that runs out inside into a `MemoryLimitError`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryLimitError) or not is_out_of_memory(error):
            raise
        raise shortage(doing, hint) from error
