"""Reserved memory: zeros that cost nothing until they are written, and nothing once released."""

from __future__ import annotations

import psutil
import pytest
import torch

from engine.cache import KVCache
from engine.out_of_memory import is_out_of_memory
from engine.reserved import Reserved

from .tiny import tiny_architecture

MIB = 1 << 20
CPU = torch.device("cpu")


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_it_reads_as_zeros_and_keeps_what_is_written() -> None:
    memory = Reserved((3, 5, 7), torch.bfloat16, CPU).tensor
    assert memory.shape == (3, 5, 7)
    assert not memory.any()
    memory[1, 2, 3] = 1.5
    assert memory.sum() == 1.5


def test_only_what_is_written_costs_memory() -> None:
    before = resident()
    memory = Reserved((2, 4, 64, MIB), torch.bfloat16, CPU)  # a GiB
    assert resident() - before < 8 * MIB
    memory.tensor[0, 1, :16] = 1.0  # 32 MiB
    assert 30 * MIB < resident() - before < 40 * MIB


def test_what_is_released_is_zero_again_and_costs_nothing() -> None:
    memory = Reserved((4, 16, MIB), torch.bfloat16, CPU)  # 32 MiB in each part
    memory.tensor.fill_(1.0)
    full = resident()
    memory.release(memory.tensor[1])
    assert full - resident() > 30 * MIB
    assert not memory.tensor[1].any()
    assert memory.tensor[0].all()
    assert memory.tensor[2:].all()


def test_parts_of_pages_stay_with_their_neighbours() -> None:
    memory = Reserved((5, 1000), torch.float32, CPU)  # 4,000 bytes: no page is one part's own
    memory.tensor.fill_(1.0)
    for part in range(5):
        memory.release(memory.tensor[part])
    assert memory.tensor[0].all()
    assert memory.tensor[4].all()


def test_too_much_is_told_as_memory_that_ran_out() -> None:
    with pytest.raises((OSError, OverflowError, RuntimeError, MemoryError)) as caught:
        Reserved((1 << 46,), torch.float32, CPU)
    assert is_out_of_memory(caught.value)


def test_it_lives_as_long_as_any_view_of_it() -> None:
    view = Reserved((4, MIB), torch.float32, CPU).tensor[2]
    view.fill_(2.0)
    assert view.sum() == 2 * MIB


def test_an_unused_cache_costs_next_to_nothing_and_a_released_row_is_free_again() -> None:
    arch = tiny_architecture(layers=8)
    before = resident()
    cache = KVCache(arch, rows=4, slots=1 << 16, dtype=torch.bfloat16, device=CPU, block=64)
    per_row = cache.bytes_per_token * cache.slots
    assert 4 * per_row > 200 * MIB
    assert resident() - before < 16 * MIB
    for row in (1, 2):
        cache.extend(row, cache.slots)
        for block in (*cache.keys, *cache.values):
            block[row].fill_(1.0)
    full = resident()
    cache.release(1)
    assert cache.lengths == [0, 0, cache.slots, 0]
    assert full - resident() > 0.9 * per_row
    assert all(block[2].all() for block in (*cache.keys, *cache.values))
