"""The one KV cache: per layer, a block of slots for every cache row, and a write pointer per row.

Draft and verify write into the same slots; there is no second cache. A pass reserves its slots
first (`extend`), every layer writes them, and `rollback` moves the pointer back to what was
accepted; what lies at or beyond a row's pointer is free and is never read.

Invariant: `lengths[row]` equals the number of tokens whose keys and values every layer holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.families import Architecture
from engine.protocol import RequestError
from engine.reserved import Reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive new tokens of one cache row: slots `start` up to `start + count`."""

    row: int
    start: int
    count: int

    @property
    def end(self) -> int:
        """The slot after the last one."""
        return self.start + self.count


class KVCache:
    """Keys and values of `rows` conversations of at most `slots` tokens.

    The blocks end at a multiple of `block` slots, so that attention may read whole ones; what lies
    beyond `slots` is never written.

    The memory is reserved, not touched (`reserved.py`): it costs what the tokens that came need.
    Zeros, because attention reads whole blocks and masks what lies beyond the pointer: a masked
    slot must hold a finite number.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        rows: int,
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
        block: int = 1,
    ) -> None:
        reserved = -(-slots // block) * block
        shape = (rows, architecture.kv_heads, reserved, architecture.head_dim)
        self._memory = Reserved((2, architecture.layers, *shape), dtype, device)
        self.keys: list[Tensor] = list(self._memory.tensor[0])
        self.values: list[Tensor] = list(self._memory.tensor[1])
        self.slots = slots
        self.lengths = [0] * rows

    @property
    def rows(self) -> int:
        """How many conversations fit."""
        return len(self.lengths)

    @property
    def bytes_per_token(self) -> int:
        """Keys and values of one token over all layers."""
        block = self.keys[0]
        return 2 * len(self.keys) * block.shape[1] * block.shape[3] * block.element_size()

    def can_extend(self, row: int, count: int) -> bool:
        """Whether `count` more tokens fit into the row."""
        return self.lengths[row] + count <= self.slots

    def extend(self, row: int, count: int) -> Span:
        """Reserve the next `count` slots of a row for a pass that is about to write them.

        Raises `RequestError` when the row is full.
        """
        start = self.lengths[row]
        if not self.can_extend(row, count):
            raise RequestError(
                "context_full",
                f"the context holds {self.slots} tokens and {start + count} are needed",
                "Shorten the prompt or start with a larger --context.",
            )
        self.lengths[row] = start + count
        return Span(row=row, start=start, count=count)

    def write(
        self,
        layer: int,
        span: Span,
        keys: Tensor,  # (T, G, E)
        values: Tensor,  # (T, G, E)
    ) -> None:
        """Store one layer's keys and values of a reserved span."""
        self.keys[layer][span.row, :, span.start : span.end] = keys.transpose(0, 1)
        self.values[layer][span.row, :, span.start : span.end] = values.transpose(0, 1)

    def view(
        self, layer: int, row: int, first: int, stop: int
    ) -> tuple[Tensor, Tensor]:  # each (1, G, stop - first, E)
        """One layer's slots of a row. A caller that reads past the pointer (padding to a kernel's
        width) masks what it reads there; see `operators.py`."""
        block = slice(row, row + 1), slice(None), slice(first, stop)
        return self.keys[layer][block], self.values[layer][block]

    def rollback(self, row: int, length: int) -> None:
        """Forget every token of the row from position `length` on."""
        assert 0 <= length <= self.lengths[row], (
            f"row {row} holds {self.lengths[row]} tokens, so it can't be rolled back to {length}"
        )
        self.lengths[row] = length

    def release(self, row: int) -> None:
        """Forget the whole row and give its memory back."""
        self.rollback(row, 0)
        for block in (*self.keys, *self.values):
            self._memory.release(block[row])

    def fork(self, source: int, target: int, length: int) -> None:
        """Make `target` start with the first `length` tokens of `source`."""
        assert length <= self.lengths[source], "a fork copies only what was written"
        for block in (*self.keys, *self.values):
            block[target, :, :length] = block[source, :, :length]
        self.lengths[target] = length

    def check(self, row: int, tokens: int) -> None:
        """Assert that the row's pointer stands at `tokens`: the round's own proof that nothing
        was rolled back one short or not at all."""
        assert self.lengths[row] == tokens, (
            f"row {row}: write pointer at {self.lengths[row]}, sequence length {tokens}"
        )
