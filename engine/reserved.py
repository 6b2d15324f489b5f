"""Memory that is reserved and not touched: it costs pages only where something was written.

torch's own `zeros` writes them, and so makes every slot of a cache resident before the first token
came. Pages of an anonymous mapping read as zeros until they are written, and can be handed back
one range at a time. Knows no cache and no model; on other devices than the CPU it is plain zeros.

Invariant: what was never written, or was released, reads as zero.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor


class Reserved:
    """One zeroed tensor over memory that is taken as it is used."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        """Raises `OSError` (ENOMEM) or what torch raises when so much can't be reserved."""
        self.tensor: Tensor
        self._pages: mmap.mmap | None = None
        if device.type != "cpu" or not prod(shape):
            self.tensor = torch.zeros(tuple(shape), dtype=dtype, device=device)
            return
        self._pages = _anonymous(prod(shape) * dtype.itemsize)
        self.tensor = torch.frombuffer(self._pages, dtype=dtype).view(tuple(shape))

    def release(self, part: Tensor) -> None:
        """Give back the whole pages inside `part`, a contiguous piece of the tensor.

        What it held is lost: the caller must not read it before it is written again.
        """
        if self._pages is None or not hasattr(self._pages, "madvise"):
            return
        assert part.is_contiguous(), "only one stretch of memory can be given back at a time"
        start = part.data_ptr() - self.tensor.data_ptr()
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (start + part.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > first:
            self._pages.madvise(mmap.MADV_DONTNEED, first, end - first)


def _anonymous(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        try:
            # A huge page would make 2 MiB resident in every head of every layer for one token.
            pages.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:  # a kernel without huge pages does not know the advice
            return pages
    return pages
