"""How near plain decoding comes to what the memory allows: the bandwidth floor of one token.

A pass of one row moves every matrix once and the keys and values before it; at the speed at which
the same threads merely read memory, that takes `floor_ms`. Knows nothing of routes or drafts.

Invariant: the three times are taken in turns and the fastest turn of each is kept, so that another
program's minute cannot make the floor look near.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from msgspec import Struct
from torch import Tensor

from engine.memory_plan import MIB, available_host_bytes
from engine.out_of_memory import told
from engine.pretend import Stage

if TYPE_CHECKING:
    from engine.model import Model
    from engine.session import Session

CONTEXT_TOKENS = 200
TURNS = 12
STREAM_BYTES = 512 * MIB
"""Far more than any cache holds; less where memory is short."""
LEAST_STREAM_BYTES = 64 * MIB


class Floor(Struct, frozen=True, kw_only=True):
    """Memory speed, what a token needs of it, and what a plain round takes."""

    read_gb_s: float
    """Reading alone, 10⁹ bytes a second: what bounds decoding."""
    copy_gb_s: float
    """Bytes read plus bytes written while copying, 10⁹ a second."""
    context_tokens: int
    bytes_per_token: int
    """All matrices that a token passes, the LM head, and the keys and values before it."""
    floor_ms: float
    """`bytes_per_token` at `read_gb_s`."""
    plain_ms: float
    """A plain round of one row, sampling included."""
    reached: float
    """`floor_ms` ÷ `plain_ms`, the share of the possible speed: 1 is the floor itself."""


@torch.inference_mode()
def floor_of(
    session: Session,
    *,
    context_tokens: int = CONTEXT_TOKENS,
    turns: int = TURNS,
    stream_bytes: int = STREAM_BYTES,
) -> Floor:
    """Measure a session's model on its own device and threads, in a second or two.

    `bench --floor` prints the result: the two bandwidths, `floor_ms`, `plain_ms` and `reached`.
    Conversations of the session are not touched, and the context is at most what one may hold.
    Raises `MemoryLimitError` where two buffers of `LEAST_STREAM_BYTES` can't be had.
    """
    model = session.loaded.model
    stage = Stage(model=model, cache=model.new_cache(1), drafters=())
    context = min(context_tokens, session.context_tokens - 1)
    stage.fill(context)
    with told("while the memory's speed was measured", "Close other programs."):
        source, target = _buffers(model.device, stream_bytes)
    best = _fastest(
        {
            "read": partial(_seconds, source.amax, model.device),
            "copy": partial(_seconds, partial(target.copy_, source), model.device),
            "plain": lambda: stage.rest_ms(context, 1) / 1e3,
        },
        turns,
    )
    moved = matrix_bytes(model) + stage.cache.bytes_per_token * context
    read = source.nbytes / best["read"]
    floor_s = moved / read
    return Floor(
        read_gb_s=read / 1e9,
        copy_gb_s=2 * source.nbytes / best["copy"] / 1e9,
        context_tokens=context,
        bytes_per_token=moved,
        floor_ms=floor_s * 1e3,
        plain_ms=best["plain"] * 1e3,
        reached=floor_s / best["plain"],
    )


def matrix_bytes(model: Model) -> int:
    """Bytes of the matrices that every token passes. Of the embedding table a token reads one row;
    norms are under a thousandth."""
    linears = [m for layer in model.layers for m in (layer.qkv, layer.o, layer.up, layer.down)]
    return sum(m.nbytes for m in (*linears, model.head))


def _buffers(device: torch.device, size: int) -> tuple[Tensor, Tensor]:
    """Two buffers of float32 on the device, their memory really there."""
    if device.type == "cpu":
        size = min(size, max(LEAST_STREAM_BYTES, available_host_bytes() // 4))
    ones = torch.ones(size // 4, device=device)
    return ones, torch.ones_like(ones)


def _fastest(arms: dict[str, Callable[[], float]], turns: int) -> dict[str, float]:
    """Seconds of each arm's fastest turn; a first turn for warming up is not counted."""
    taken = [{name: arm() for name, arm in arms.items()} for _ in range(turns + 1)][1:]
    return {name: min(turn[name] for turn in taken) for name in arms}


def _seconds(work: Callable[[], Tensor], device: torch.device) -> float:
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
