"""A model with some of its neurons: which ones, what they give, and what stays as it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from copy import copy

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor
from torch.nn import functional as F

from engine.cache import KVCache, Span
from engine.config import Quant
from engine.families import Architecture
from engine.linear import DenseLinear, Linear
from engine.model import Model
from engine.quant import pack

from .tiny import tiny_architecture, tiny_tensors

WHOLE = 192
FIRST, LAYERS = 2, 4
SPAN = Span(row=0, start=70, count=5)
GATED = replace(tiny_architecture(), feed_forward=WHOLE)
PLAIN = replace(GATED, gated=False, activation="gelu_tanh", norm="layer")
"""As StarCoder 2 has it: one matrix before the activation, and biases."""
QUANTS: tuple[Quant, ...] = ("nf4", "int8", "none")

CASES: tuple[tuple[Architecture, Quant], ...] = (*((GATED, q) for q in QUANTS), (PLAIN, "nf4"))
every_case = pytest.mark.parametrize(
    ("arch", "quant"), CASES, ids=["gated nf4", "gated int8", "gated none", "not gated"]
)


def tensors_of(arch: Architecture, quant: Quant) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(11)
    tensors = tiny_tensors(arch, quant)
    for at in (f"layers.{i}" for i in range(0 if arch.gated else arch.layers)):
        weight = (torch.randn(WHOLE, arch.hidden, generator=random) * 0.3).bfloat16()
        tensors = {n: t for n, t in tensors.items() if not n.startswith(f"{at}.up.")}
        tensors |= {f"{at}.up.{part}": t for part, t in pack(weight, quant, "cpu").items()}
        for name, size in (("up", WHOLE), ("down", arch.hidden)):
            tensors[f"{at}.{name}.bias"] = torch.randn(size, generator=random).bfloat16()
    return tensors


def model_of(arch: Architecture, quant: Quant) -> Model:
    return Model(arch, tensors_of(arch, quant), context_tokens=256)


def kept(count: int) -> dict[int, Tensor]:
    """Other neurons of each layer."""
    return {
        layer: torch.randperm(WHOLE, generator=torch.Generator().manual_seed(layer))[:count]
        for layer in range(FIRST, LAYERS)
    }


def noisy(model: Model) -> KVCache:
    cache, random = model.new_cache(1), torch.Generator().manual_seed(3)
    for block in (*cache.keys, *cache.values):
        block.normal_(generator=random)
    return cache


@torch.inference_mode()
def run(model: Model, states: Tensor, start: int = 70) -> Tensor:
    """The last layers, over a cache that is full of others' numbers."""
    span = Span(row=0, start=start, count=len(states))
    return model.run_layers(states, [span], noisy(model), first=FIRST, stop=LAYERS)


def states(count: int = 5) -> Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(1)).bfloat16()


def apart(found: Tensor, wanted: Tensor) -> float:
    """How far, beside what the layers add to the states."""
    added = wanted.float() - states(len(wanted)).float()
    return float((found.float() - wanted.float()).norm() / added.norm())


def dense(linear: Linear, wide: int) -> Tensor:  # (out, in)
    """What a matrix multiplies by, asked of it."""
    zero = torch.zeros(1, wide, dtype=torch.bfloat16)
    return (linear(torch.eye(wide, dtype=torch.bfloat16)) - linear(zero)).t().contiguous()


def reference(model: Model, neurons: Mapping[int, Tensor], tensors: Mapping[str, Tensor]) -> Model:
    """A model made of the written-out weights of these neurons, not quantized at all."""
    arch = model.architecture
    made = {
        name: tensor
        for name, tensor in tensors.items()
        if "norm" in name or "bias" in name or "embed" in name
    }
    made["head.dense"] = dense(model.head, arch.hidden)
    for i, layer in enumerate(model.layers):
        ids = neurons.get(i, torch.arange(len(neurons[FIRST])))
        rows = torch.cat((ids, ids + WHOLE)) if arch.gated else ids
        at = f"layers.{i}"
        made[f"{at}.qkv.dense"] = dense(layer.qkv, arch.hidden)
        made[f"{at}.o.dense"] = dense(layer.o, arch.heads * arch.head_dim)
        made[f"{at}.up.dense"] = dense(layer.up, arch.hidden)[rows]
        made[f"{at}.down.dense"] = dense(layer.down, WHOLE)[:, ids].contiguous()
        if f"{at}.up.bias" in made:
            made[f"{at}.up.bias"] = made[f"{at}.up.bias"][rows]
    small = replace(arch, feed_forward=len(neurons[FIRST]))
    return Model(small, made, context_tokens=model.context_tokens)


@every_case
def test_all_neurons_are_the_model_itself(arch: Architecture, quant: Quant) -> None:
    model = model_of(arch, quant)
    every = dict.fromkeys(range(FIRST, LAYERS), torch.arange(WHOLE))
    whole = model.pruned(every)
    assert whole.architecture == arch
    assert torch.equal(run(whole, states()), run(model, states()))


@every_case
def test_some_neurons_are_the_mathematics_of_these(arch: Architecture, quant: Quant) -> None:
    count = 128 if quant == "int8" else 64
    model, neurons = model_of(arch, quant), kept(count)
    small = model.pruned(neurons)
    assert small.architecture == replace(arch, feed_forward=count)
    wanted = run(reference(model, neurons, tensors_of(arch, quant)), states())
    found = run(small, states())
    # Columns of NF4 are rounded a second time, the others are not.
    assert apart(found, wanted) < (0.2 if quant == "nf4" else 0.05)
    assert apart(run(model, states()), wanted) > 0.3
    others = {layer: (ids + 1) % WHOLE for layer, ids in neurons.items()}
    assert apart(run(model.pruned(others), states()), wanted) > 0.3


def test_each_layer_has_its_own_neurons() -> None:
    model, neurons = model_of(GATED, "none"), kept(64)
    swapped = {FIRST: neurons[FIRST + 1], FIRST + 1: neurons[FIRST]}
    assert not torch.equal(
        run(model.pruned(neurons), states()), run(model.pruned(swapped), states())
    )


@every_case
def test_rows_get_the_bits_of_single_rows(arch: Architecture, quant: Quant) -> None:
    small, given = model_of(arch, quant).pruned(kept(64)), states(9)
    cache = small.new_cache(1)
    for start in (0, 60):
        span = Span(row=0, start=start, count=9)
        wide = small.run_layers(given, [span], cache, first=FIRST, stop=LAYERS)
        single = []
        for i in range(9):
            span = Span(row=0, start=start + i, count=1)
            row = given[i : i + 1]
            single.append(small.run_layers(row, [span], cache, first=FIRST, stop=LAYERS))
        assert torch.equal(wide, torch.cat(single))


@every_case
def test_the_model_itself_stays_as_it_was(arch: Architecture, quant: Quant) -> None:
    model = model_of(arch, quant)
    before, layers, size = run(model, states()), list(model.layers), model.weight_bytes
    small = model.pruned(kept(64))
    assert not torch.equal(run(small, states()), before)
    assert torch.equal(run(model, states()), before)
    assert model.architecture == arch
    assert (model.layers, model.weight_bytes) == (layers, size)
    assert small.layers[:FIRST] == layers[:FIRST], "layers without neurons of their own are shared"
    assert small.weight_bytes < size
    assert torch.equal(small.logits(states(), 64), model.logits(states(), 64))


def unscaled(of: Tensor, arch: Architecture) -> Tensor:
    """The norm before the feed-forward block; its weights are ones here."""
    of = of.float() - (of.float().mean(1, keepdim=True) if arch.norm == "layer" else 0.0)
    return of / (of.square().mean(1, keepdim=True) + arch.norm_eps).sqrt()


def half_way(model: Model, index: int) -> Tensor:
    """The states behind a layer's attention: those that it gives without what follows."""
    without, layer = copy(model), model.layers[index]
    nothing = DenseLinear(torch.zeros(64, WHOLE, dtype=torch.bfloat16), None)
    without.layers = [*model.layers]
    without.layers[index] = dataclasses.replace(layer, down=nothing)
    return without.run_layers(states(), [SPAN], noisy(model), first=index, stop=index + 1)


@every_case
@torch.inference_mode()
def test_neurons_are_what_a_layer_computes_half_way(arch: Architecture, quant: Quant) -> None:
    model = model_of(arch, quant)
    cache, whole, layer = noisy(model), noisy(model), model.layers[FIRST]
    neurons = model.neurons(FIRST, states(), [SPAN], cache)
    attended = half_way(model, FIRST)
    up = dense(layer.up, arch.hidden).float()
    inner = unscaled(attended, arch) @ up.t()
    inner += layer.up(torch.zeros(1, arch.hidden, dtype=torch.bfloat16)).float()
    if arch.gated:
        gate, value = inner.chunk(2, dim=1)
        wanted = F.silu(gate) * value
    else:
        wanted = F.gelu(inner, approximate="tanh")
    assert neurons.shape == wanted.shape == (5, WHOLE)
    assert float((neurons.float() - wanted).norm() / wanted.norm()) < 0.03
    found = model.run_layers(states(), [SPAN], whole, first=FIRST, stop=FIRST + 1)
    assert torch.equal(found, attended + layer.down(neurons))
    for ours, theirs in zip(
        (*cache.keys, *cache.values), (*whole.keys, *whole.values), strict=True
    ):
        assert torch.equal(ours, theirs), "the slots are written"
