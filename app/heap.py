"""What the C library's allocator does with freed memory.

A round above temperature 0 makes and drops a few laws of a whole vocabulary, megabytes each. glibc
gives the end of its heap back at once and asks for it again in the next round, page by page: the
law of four positions then took 2.7 ms instead of 0.5 (Qwen2.5-Coder-0.5B, whose plain pass takes
9). Invariant: nothing here changes a result; where the library is another one, nothing is done.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 128 << 20
"""Bytes of freed memory that stay with the process."""
MAPPED = 32 << 20
"""Blocks from here on are mapped one by one, and unmapped when freed; glibc's own highest value."""


def keep_freed_memory() -> None:
    """Let rounds reuse what earlier rounds freed."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, MAPPED)
            library.mallopt(_TRIM_THRESHOLD, KEPT)


def give_back_freed_memory() -> None:
    """Return to the system what is free now: a model was let go of, say."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
