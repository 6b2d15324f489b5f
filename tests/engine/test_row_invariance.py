"""A token's bits do not depend on how many others its pass carries, wherever blocks of slots end.

Heads of a real width: with narrow ones the kernels sum everything in one order and hide the fault
that this once was (192 slots are summed in another order than 256).
"""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace

from engine.cache import KVCache, Span
from engine.model import Model
from engine.operators import SLOT_BLOCK
from tests.engine.tiny import tiny_architecture, tiny_tensors

CONTEXT = 512
ARCHITECTURE = replace(
    tiny_architecture(layers=2),
    hidden=256,
    heads=12,
    kv_heads=2,
    head_dim=128,
    inv_freq=tuple(10_000 ** (-i / 64) for i in range(64)),
)


BORDERS = range(SLOT_BLOCK, CONTEXT - SLOT_BLOCK, SLOT_BLOCK)


def run(model: Model, cache: KVCache, ids: torch.Tensor, start: int) -> torch.Tensor:
    span = Span(row=0, start=start, count=len(ids))
    layers = model.architecture.layers
    return model.run_layers(model.embed(ids), [span], cache, first=0, stop=layers)


@pytest.mark.parametrize("window", [None, 100], ids=["whole", "window"])
@pytest.mark.parametrize("rows", [2, 3, 6, 9, 33])
@torch.inference_mode()
def test_rows_across_the_border_of_a_block_get_the_bits_of_single_rows(
    rows: int, window: int | None
) -> None:
    architecture = replace(ARCHITECTURE, window=window)
    model = Model(architecture, tiny_tensors(architecture, "nf4"), context_tokens=CONTEXT)
    random = torch.Generator().manual_seed(3)
    cache = model.new_cache(1)
    for block in (*cache.keys, *cache.values):
        block.normal_(generator=random)
    for start in (border - ahead for border in BORDERS for ahead in (1, 2, 5)):
        ids = torch.randint(0, architecture.vocab, (rows,), generator=random)
        wide = run(model, cache, ids, start)
        single = [run(model, cache, ids[i : i + 1], start + i) for i in range(rows)]
        assert torch.equal(wide, torch.cat(single)), f"{rows} rows from {start} on"
