"""The pass in C and the model read operator by operator: the same bits, in any company."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from engine.cache import KVCache, Span
from engine.families import Architecture
from engine.fastpath import FastModel, runs_fast
from engine.model import Model
from engine.native.bindings import Native
from engine.native.operators import NativeOperators
from engine.operators import TorchOperators
from tests.engine.native.shapes import CONTEXT, SHAPES, tensors_of
from tests.engine.tiny import tiny_architecture, tiny_tensors

STARTS = (0, 59, 63, 64, 126, 448, 510, 511, 512, 575)
"""Around ends of attention's blocks (64) and chunks (512)."""

every_shape = pytest.mark.parametrize("arch", SHAPES.values(), ids=SHAPES)


def fast(arch: Architecture, native: Native) -> FastModel:
    return FastModel(arch, tensors_of(arch), context_tokens=CONTEXT, native=native)


def eager(arch: Architecture, native: Native | None) -> Model:
    return Model(arch, tensors_of(arch), context_tokens=CONTEXT, native=native)


def noisy_cache(model: Model, rows: int = 1) -> KVCache:
    """As if conversations had been there; NaN where nothing may be read, so that reading shows."""
    cache = model.new_cache(rows)
    random = torch.Generator().manual_seed(3)
    for block in (*cache.keys, *cache.values):
        block.normal_(generator=random)
    return cache


@torch.inference_mode()
def run(
    model: Model, cache: KVCache, ids: Tensor, *spans: Span, stretches: tuple[int, ...] = (0, 2)
) -> Tensor:
    hidden = model.embed(ids)
    for first, stop in pairwise(stretches):
        hidden = model.run_layers(hidden, spans, cache, first=first, stop=stop)
    return hidden


def token_ids(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 100, (count,), generator=torch.Generator().manual_seed(seed))


@every_shape
@pytest.mark.parametrize("rows", [1, 2, 5, 8, 17, 64, 150])
def test_the_pass_in_c_has_the_bits_of_its_operators(
    arch: Architecture, rows: int, native: Native
) -> None:
    ids, span = token_ids(rows), Span(row=0, start=123, count=rows)
    got, caches = [], []
    for model in (eager(arch, native), fast(arch, native)):
        caches.append(noisy_cache(model))
        hidden = run(model, caches[-1], ids, span)
        got.append((hidden, model.logits(hidden), model.logits(hidden, 64)))
    for ours, theirs in zip(got[1], got[0], strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(
        (*caches[1].keys, *caches[1].values), (*caches[0].keys, *caches[0].values), strict=True
    ):
        assert torch.equal(ours, theirs), "the cache differs"


@every_shape
def test_a_stretch_of_layers_is_a_part_of_the_whole(arch: Architecture, native: Native) -> None:
    model, ids, span = fast(arch, native), token_ids(4), Span(row=0, start=70, count=4)
    whole = run(model, noisy_cache(model), ids, span)
    assert torch.equal(run(model, noisy_cache(model), ids, span, stretches=(0, 1, 1, 2)), whole)


def test_what_goes_in_stays_as_it_is(native: Native) -> None:
    model = fast(SHAPES["qwen2"], native)
    hidden = model.embed(token_ids(3))
    before = hidden.clone()
    model.run_layers(hidden, [Span(row=0, start=0, count=3)], noisy_cache(model), first=0, stop=2)
    assert torch.equal(hidden, before)


@every_shape
def test_rows_of_other_conversations_change_nothing(arch: Architecture, native: Native) -> None:
    spans = [
        Span(row=2, start=60, count=7),
        Span(row=0, start=300, count=1),
        Span(row=1, start=0, count=9),
    ]
    ids = token_ids(17)
    for model in (fast(arch, native), eager(arch, native)):
        together = run(model, noisy_cache(model, 3), ids, *spans)
        alone, cache = [], noisy_cache(model, 3)
        for span, part in zip(spans, torch.split(ids, [7, 1, 9]), strict=True):
            alone.append(run(model, cache, part, span))
        assert torch.equal(together, torch.cat(alone))


Make = Callable[[Architecture, Native], Model]


@pytest.mark.parametrize("make", [fast, eager], ids=["pass", "operators"])
@pytest.mark.parametrize("shape", ["qwen2", "mistral"])
@pytest.mark.parametrize("rows", [2, 3, 6, 9, 17, 64])
def test_rows_get_the_bits_of_single_rows_at_every_start(
    rows: int, shape: str, make: Make, native: Native
) -> None:
    model = make(SHAPES[shape], native)
    cache = noisy_cache(model)
    for start in STARTS:
        ids = token_ids(rows, start)
        wide = run(model, cache, ids, Span(row=0, start=start, count=rows))
        single = [
            run(model, cache, ids[i : i + 1], Span(row=0, start=start + i, count=1))
            for i in range(rows)
        ]
        assert torch.equal(wide, torch.cat(single)), f"{rows} rows from {start} on"


@every_shape
def test_c_and_torch_agree_as_far_as_their_roundings(arch: Architecture, native: Native) -> None:
    """Looser than one operator's rounding, tight enough for a wrong mask, scale or sign."""
    ids, span = token_ids(20), Span(row=0, start=110, count=20)
    states = [
        run(m, noisy_cache(m), ids, span).float() for m in (eager(arch, None), fast(arch, native))
    ]
    assert (states[1] - states[0]).std() < 0.1 * states[0].std()


def test_a_model_that_the_kernels_do_not_cover_keeps_torchs_operators(native: Native) -> None:
    narrow = tiny_architecture()  # heads of 16
    model = Model(narrow, tiny_tensors(narrow, "nf4"), context_tokens=64, native=native)
    assert isinstance(model.operators, TorchOperators)
    assert not runs_fast(narrow, tiny_tensors(narrow, "nf4"))
    whole = SHAPES["qwen2"]
    assert not runs_fast(whole, tiny_tensors(whole, "int8"))
    assert runs_fast(whole, tensors_of(whole))
    assert isinstance(fast(whole, native).operators, NativeOperators)
