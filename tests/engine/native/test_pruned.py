"""The compiled pass over some neurons: the bits of its operators, and scratch of its own."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from engine.cache import Span
from engine.fastpath import FastModel
from engine.model import Model
from engine.native.bindings import Native
from tests.engine.native.shapes import CONTEXT, SHAPES, tensors_of
from tests.engine.test_decode import PROMPT, run_all
from tests.engine.test_exit_head import Seeing
from tests.engine.tiny import new_row, same_slots
from tests.engine.tiny_heads import pruned_head, random_head

NAMES = ("llama", "qwen2", "gemma", "granite")


def models(name: str, native: Native) -> tuple[Model, FastModel]:
    arch = replace(SHAPES[name], feed_forward=320)
    tensors = tensors_of(arch)
    return (
        Model(arch, tensors, context_tokens=CONTEXT, native=native),
        FastModel(arch, tensors, context_tokens=CONTEXT, native=native),
    )


def kept(count: int) -> dict[int, Tensor]:
    random = torch.Generator().manual_seed(count)
    return {layer: torch.randperm(320, generator=random)[:count] for layer in range(2)}


def given(model: Model, count: int) -> Tensor:
    random = torch.Generator().manual_seed(count)
    return model.embed(torch.randint(0, 100, (count,), generator=random))


@torch.inference_mode()
def run(model: Model, states: Tensor, start: int = 100) -> Tensor:
    cache, random = model.new_cache(1), torch.Generator().manual_seed(3)
    for block in (*cache.keys, *cache.values):
        block.normal_(generator=random)
    span = Span(row=0, start=start, count=len(states))
    return model.run_layers(states, [span], cache, first=0, stop=2)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_the_pass_has_the_bits_of_its_operators(name: str, rows: int, native: Native) -> None:
    eager, fast = models(name, native)
    states = given(eager, rows)
    for count in (64, 192):
        one, other = eager.pruned(kept(count)), fast.pruned(kept(count))
        assert isinstance(other, FastModel)
        found = run(other, states)
        assert torch.equal(found, run(one, states))
        assert torch.equal(other.logits(found), fast.logits(found))


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_neurons_have_the_same_bits_on_both_ways(name: str, native: Native) -> None:
    for rows in (1, 9):
        found = []
        for model in models(name, native):
            slots = model.new_cache(1)
            span = [Span(row=0, start=0, count=rows)]
            neurons = model.neurons(0, given(model, rows), span, slots)
            assert neurons.shape == (rows, 320)
            wanted = model.new_cache(1)
            model.run_layers(given(model, rows), span, wanted, first=0, stop=1)
            assert torch.equal(slots.keys[0], wanted.keys[0])
            assert torch.equal(slots.values[0], wanted.values[0])
            found.append(neurons)
        assert torch.equal(*found)
        assert found[0].any()


@pytest.mark.parametrize("name", NAMES)
def test_all_neurons_are_the_model_itself(name: str, native: Native) -> None:
    every = dict.fromkeys(range(2), torch.arange(320))
    for model in models(name, native):
        states = given(model, 7)
        assert torch.equal(run(model.pruned(every), states), run(model, states))


@pytest.mark.parametrize("rows", [2, 9, 64])
def test_rows_get_the_bits_of_single_rows(rows: int, native: Native) -> None:
    _, fast = models("qwen2", native)
    small, states = fast.pruned(kept(64)), given(fast, rows)
    cache = small.new_cache(1)
    for start in (0, 60):
        span = Span(row=0, start=start, count=rows)
        wide = small.run_layers(states, [span], cache, first=0, stop=2)
        single = [
            small.run_layers(
                states[i : i + 1], [Span(row=0, start=start + i, count=1)], cache, first=0, stop=2
            )
            for i in range(rows)
        ]
        assert torch.equal(wide, torch.cat(single))


def test_models_take_turns_in_one_cache(native: Native) -> None:
    """A draft's tail and the model itself run one after another over the same slots."""
    _, fast = models("qwen2", native)
    states, cache = given(fast, 4), fast.new_cache(1)
    span = Span(row=0, start=0, count=4)

    def turn(model: Model) -> Tensor:
        return model.run_layers(states, [span], cache, first=0, stop=2)

    whole, small = turn(fast), fast.pruned(kept(64))
    pruned = turn(small)
    assert not torch.equal(pruned, whole)
    for _ in range(2):
        assert torch.equal(turn(fast), whole)
        assert torch.equal(turn(small), pruned)
    # Wider passes make new scratch; the other model's stays where it is.
    assert run(small, given(fast, 150)).isfinite().all()
    assert torch.equal(turn(fast), whole)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_drafts_through_a_pruned_front_leave_text_and_cache_alone(k: int, native: Native) -> None:
    for model in models("qwen2", native):
        plain, plain_cache = run_all(model, new_row(PROMPT, max_tokens=30), {}, 0)
        head = random_head(model, first=1, jump=1, vocab=96)
        for kept in (0, 192):
            pruned = pruned_head(head, model, kept, front=64)
            drafter = Seeing(model, pruned)
            assert drafter.reusable_layers == 0
            assert type(pruned.front) is type(model)
            text, cache = run_all(model, new_row(PROMPT, max_tokens=30), {"exit_head": drafter}, k)
            assert drafter.rounds
            assert text == plain
            assert same_slots(cache, plain_cache)
