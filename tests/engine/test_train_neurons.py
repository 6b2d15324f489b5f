"""Which neurons of the last layers are kept, what they cost, and when pruning is worth it."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from engine.draft.head_tensors import neuron_tensors
from engine.model import Model
from engine.quant import pack
from engine.train.agreement import judge_jump
from engine.train.answers import Decoder
from engine.train.candidates import Bench, Candidate, candidates, described, packed
from engine.train.moments import Moments
from engine.train.neurons import kept_of, most_used, used_neurons
from engine.train.order import SHARES
from engine.train.prospect import PRUNED, StepCosts
from engine.train.samples import Sample
from engine.train.step_costs import step_costs
from engine.train.tail import OwnSlots, Tail, drafting_starts

from .tiny import CALLED, DEAD, LOUD, planted, tiny_architecture, tiny_tensors
from .tiny_heads import some_neurons
from .tiny_samples import MARKS, VOCAB, model, own_answers, questions

COSTS = StepCosts(
    layer=0.03, pruned=0.01, head=0.1, jump=0.01, overhead=0.002,
    pass_ratio={1: 1.0, 2: 1.05, 3: 1.1, 4: 1.2},
)  # fmt: skip


def samples_of(target: Model, count: int = 4) -> list[Sample]:
    decoder = Decoder(target, MARKS, questions(count, temperature=0.7), rows=4)
    return [sample for _, sample in decoder.answers(lambda: True)]


def test_neurons_are_ranked_by_what_they_add() -> None:
    target = planted(3)
    used = used_neurons(Tail(target, 2, VOCAB), samples_of(target))
    assert {*used} == {2, 3}
    assert {tuple(one.shape) for one in used.values()} == {(128,)}
    order = used[3].argsort(descending=True).tolist()
    assert {*order[:2]} == {LOUD, CALLED}
    assert order[-1] == DEAD
    assert float(used[3][DEAD]) == 0.0
    assert float(used[2].min()) > 0.0
    assert LOUD in most_used(used, 0.5, 3)[3].tolist()
    assert DEAD not in most_used(used, 0.5, 3)[3].tolist()


def test_what_a_neuron_adds_is_its_mean_square() -> None:
    samples, tail = own_answers()[:3], Tail(model(), 2, VOCAB)
    once, twice = used_neurons(tail, samples), used_neurons(tail, samples * 2)
    for layer in (2, 3):
        torch.testing.assert_close(once[layer], twice[layer])
    seen: list[Tensor] = []
    starts = drafting_starts(samples, 1)
    tail.run(
        starts.gathered(3), starts, OwnSlots(), step=0, first=3,
        watch=lambda layer, neurons: seen.append(neurons),
    )  # fmt: skip
    (neurons,) = seen
    down = model().layers[3].down
    for neuron in (0, 77):
        only = torch.zeros_like(neurons)
        only[:, neuron] = neurons[:, neuron]
        added = down(only).float().square().sum(dim=1).mean()
        assert float(once[3][neuron]) == pytest.approx(float(added), rel=0.05)


def test_the_most_used_are_kept_in_whole_blocks() -> None:
    used = {layer: torch.randperm(256).float() + layer for layer in (2, 3, 5)}
    for share, count in ((0.75, 192), (0.5, 128), (0.25, 64), (0.125, 64), (0.6, 128)):
        kept = most_used(used, share, 3)
        assert {*kept} == {3, 5}
        for layer, ids in kept.items():
            assert (ids.dtype, len(ids)) == (torch.int64, count)
            assert torch.equal(ids, (used[layer] >= layer + 256 - count).nonzero()[:, 0])
    assert most_used(used, 1.0, 2) == {}
    assert most_used(used, 0.9, 2) == {}, "a block less is more than this share leaves"
    assert most_used({3: torch.rand(64)}, 0.25, 3) == {}


def test_shares_are_rounded_to_blocks() -> None:
    assert [kept_of(8960, share) for share in (1.0, 0.5, 0.25, 0.125)] == [8960, 4480, 2240, 1152]
    assert kept_of(128, 0.01) == 64
    assert kept_of(40, 0.5) == 40


def close(found: Tensor, wanted: Tensor) -> None:
    size = float(wanted.float().abs().mean())
    apart = (found.float() - wanted.float()).abs()
    assert float(apart.mean()) < 0.03 * size
    assert float(apart.max()) < 0.2 * size


def ungated() -> Model:
    arch = replace(tiny_architecture(), gated=False, activation="gelu")
    tensors, random = tiny_tensors(arch, "nf4"), torch.Generator().manual_seed(1)
    for at in (f"layers.{i}" for i in range(arch.layers)):
        tensors = {name: t for name, t in tensors.items() if not name.startswith(f"{at}.up.")}
        weight = torch.randn(arch.feed_forward, arch.hidden, generator=random).bfloat16() * 0.3
        tensors |= {f"{at}.up.{part}": t for part, t in pack(weight, "nf4", "cpu").items()}
        tensors[f"{at}.up.bias"] = torch.randn(arch.feed_forward, generator=random).bfloat16()
        tensors[f"{at}.down.bias"] = torch.randn(arch.hidden, generator=random).bfloat16()
    return Model(arch, tensors, context_tokens=512)


@pytest.mark.parametrize("make", [model, ungated], ids=["gated", "not gated"])
def test_a_pruned_tail_follows_the_pruned_model(make: object) -> None:
    assert callable(make)
    target: Model = make()
    sample = samples_of(target, 1)[0]
    neurons = some_neurons(target, 2)
    whole = Tail(target, 2, VOCAB)
    tail, small = whole.pruned(neurons), target.pruned(neurons)
    assert (tail.first, tuple(tail.layers)) == (2, (2, 3))
    starts = drafting_starts([sample], 1)
    found = tail.run(starts.gathered(2), starts, OwnSlots(), step=0)
    # The keys and values of the text are those of the whole model, as in a draft.
    cache, at = target.new_cache(1), int(starts.at[0][-1])
    states = target.embed(sample.ids[: at + 1])
    span = cache.extend(0, at + 1)
    target.run_layers(states, [span], cache, first=0, stop=4)
    cache.rollback(0, at)
    span = cache.extend(0, 1)
    wanted = small.run_layers(starts.gathered(2)[-1:], [span], cache, first=2, stop=4)
    close(found[-1:], wanted)
    unpruned = whole.run(starts.gathered(2), starts, OwnSlots(), step=0)
    assert float((unpruned[-1:] - wanted).norm() / wanted.norm()) > 0.1
    assert tail.columns_squared(3).shape == (64,)
    assert torch.equal(whole.columns_squared(3), Tail(target, 3, VOCAB).columns_squared(3))


def test_a_pruned_tail_may_be_shorter() -> None:
    starts = drafting_starts(own_answers()[:2], 1)
    neurons = some_neurons(model(), 3)
    short, direct = Tail(model(), 2, VOCAB).pruned(neurons), Tail(model(), 3, VOCAB).pruned(neurons)
    assert short.first == 3
    states = starts.gathered(3)
    found = [tail.run(states, starts, OwnSlots(), step=0) for tail in (short, direct)]
    assert torch.equal(*found)


def test_the_cost_of_a_path_is_the_sum_of_its_parts() -> None:
    assert PRUNED == 0.25
    rest = 0.1 * 0.5 + 0.01 + 0.002
    shares = {1.0: 0.03, 0.25: 0.01, 0.625: 0.02, 0.0: 0.01 - 0.02 / 3}
    for share, layer in shares.items():
        for front, dear in shares.items():
            found = COSTS.draft((2, front), (6, share), 0.5)
            assert found == pytest.approx(2 * dear + 6 * layer + rest)
    assert COSTS.draft((3, 1.0), (0, 0.25), 0.0) == pytest.approx(0.09 + 0.012)
    assert COSTS.draft((1, 0.25), (0, 1.0), 1.0) == pytest.approx(0.01 + 0.112)


def test_a_path_costs_what_its_neurons_on_both_sides_do() -> None:
    tail = Tail(model(), 2, VOCAB)
    bench = Bench(tail=tail, held_out=(), costs=COSTS, used={})
    front, back = neuron_tensors({0: torch.arange(64)}), neuron_tensors({3: torch.arange(64)})
    for tensors, before, after in (
        ({}, 1.0, 1.0), (front, 0.5, 1.0), (back, 1.0, 0.5), (front | back, 0.5, 0.5),
    ):  # fmt: skip
        cost = COSTS.draft((1, before), (1, after), 1.0)
        assert bench.draft_cost(1, 3, tensors) == pytest.approx(cost)
    assert bench.tail_of(front) is tail
    assert tuple(bench.tail_of(front | back).layers) == (3,)


def test_a_pruned_layer_is_timed_and_never_dearer_than_a_whole_one() -> None:
    costs = step_costs(model())
    assert 0 < costs.pruned <= costs.layer


@cache
def half_dead() -> Model:
    """Layers 1 and 2 do nothing, so that a closed form can jump over them; only the first half of
    layer 3's neurons does anything, and that decides the answer."""
    arch = tiny_architecture()
    tensors = tiny_tensors(arch, "none")
    for layer in (1, 2):
        tensors[f"layers.{layer}.o.dense"].zero_()
        tensors[f"layers.{layer}.down.dense"].zero_()
    tensors["layers.3.down.dense"][:, :64] *= 4
    tensors["layers.3.down.dense"][:, 64:] = 0
    return Model(arch, tensors, context_tokens=512)


@cache
def answers() -> list[Sample]:
    return samples_of(half_dead(), 12)


def best_of(costs: StepCosts, used: dict[int, Tensor] | None = None) -> tuple[Bench, Candidate]:
    tail = Tail(half_dead(), 2, VOCAB)
    bench = Bench(
        tail=tail,
        held_out=answers()[:3],
        costs=costs,
        used=used or used_neurons(tail, answers()),
        shares=SHARES,
    )
    # As often as it takes the ridge to matter no more.
    found = candidates(Moments(answers() * 40), bench, MARKS, wanted=(1, 3))
    return bench, next(one for one in found if (one.first, one.landing) == (1, 3))


def test_neurons_that_nobody_misses_are_left_out() -> None:
    bench, best = best_of(COSTS)
    assert torch.equal(best.tensors["neurons.3"], torch.arange(64, dtype=torch.int32))
    cost = COSTS.draft((1, 1.0), (1, 0.5), 1.0)
    assert best.prospect.draft_cost == pytest.approx(cost)
    assert bench.draft_cost(1, 3, best.tensors) == pytest.approx(cost)
    assert "with 64 neurons" in described(best)
    whole = {name: t for name, t in best.tensors.items() if not name.startswith("neurons")}
    assert best.agreement == pytest.approx(bench.judged(1, 3, whole).agreement, abs=0.02)
    assert best.agreement[0] > 0.8
    assert bench.judged(1, 3, whole).prospect.speed_up < best.prospect.speed_up
    assert "neurons" not in described(bench.judged(1, 3, whole))


def test_neurons_that_carry_the_answer_stay() -> None:
    """The very ones that do something would go: nothing saved is worth that."""
    wrong = {layer: torch.arange(128).float() for layer in (2, 3)}
    bench, best = best_of(COSTS, wrong)
    assert not any(name.startswith("neurons") for name in best.tensors)
    assert best.prospect.draft_cost == pytest.approx(COSTS.draft((1, 1.0), (1, 1.0), 1.0))
    ruined = bench.judged(1, 3, best.tensors | {"neurons.3": torch.arange(64, 128)})
    assert ruined.agreement[0] < best.agreement[0] - 0.2


def test_a_head_is_judged_with_its_own_neurons() -> None:
    bench, best = best_of(COSTS)
    neurons = {3: best.tensors["neurons.3"].long()}
    seen = judge_jump(
        bench.tail.pruned(neurons), packed(best.tensors), bench.held_out, first=1, landing=3
    )
    assert best.agreement == seen.by_position
    assert bench.tail_of({}) is bench.tail
    assert tuple(bench.tail_of(best.tensors).layers) == (3,)
