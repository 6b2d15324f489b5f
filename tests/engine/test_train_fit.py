"""From states to a jump: what the closed form finds, what training adds, what it promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.train.agreement import Judged, judge_jump
from engine.train.candidates import Bench, candidates, packed
from engine.train.distil import Distiller, distil
from engine.train.jump_net import AppliedJump, JumpNet
from engine.train.moments import Moments
from engine.train.neurons import used_neurons
from engine.train.order import SHARES
from engine.train.prospect import StepCosts, prospect, speed_up_of
from engine.train.samples import Sample
from engine.train.tail import OwnSlots, Tail, drafting_starts
from engine.train.vocabulary import ids_by_use, vocabulary_size

from .tiny_samples import MARKS, VOCAB, model, own_answers

COSTS = StepCosts(
    layer=0.03, pruned=0.01, head=0.1, jump=0.01, overhead=0.0,
    pass_ratio={1: 1.0, 2: 1.05, 3: 1.1, 4: 1.2},
)  # fmt: skip


def planted(count: int = 12, tokens: int = 200) -> tuple[list[Sample], Tensor]:
    """Samples with a fixed linear map to the state before layer 3, and its part for the first
    input."""
    random = torch.Generator().manual_seed(7)
    now, past = (torch.randn(64, 64, generator=random) * 0.08 for _ in range(2))
    bias = torch.randn(64, generator=random)
    samples = []
    for _ in range(count):
        first = torch.randn(tokens, 64, generator=random)
        first[:, 5] = first[:, 5] * 300 + 1000  # one enormous component, as real models have
        landing = torch.zeros(tokens, 64)
        for t in range(1, tokens):
            landing[t] = first[t] @ now.t() + landing[t - 1] @ past.t() + bias
        samples.append(
            Sample(
                ids=torch.zeros(tokens + 1, dtype=torch.int64),
                answer_at=tokens // 2,
                states={1: first, 3: landing},
                keys={},
                values={},
                best=torch.full((tokens,), -1),
                total=torch.zeros(tokens),
            )
        )
    return samples, now


def test_the_closed_form_finds_a_planted_jump() -> None:
    samples, now = planted(count=40)
    moments = Moments(samples)
    assert moments.tokens == 40 * 196
    found = moments.solve(1, 3)
    jump = AppliedJump(found.tensors(), torch.float32)
    wanted = torch.cat([s.states[3][1:] for s in samples])
    given = torch.cat([s.states[1][1:] for s in samples])
    before = torch.cat([s.states[3][:-1] for s in samples])
    apart = (jump(given, before) - wanted).square().mean(dim=0)
    assert float((apart / wanted.var(dim=0)).max()) < 0.03
    # The enormous component is told apart from the constant that it nearly is.
    torch.testing.assert_close(found.weight[:, 5], now[:, 5], rtol=0.1, atol=0.002)


def test_answers_weigh_more_than_prompts_and_can_be_all() -> None:
    samples, _ = planted(count=4)
    odd = replace(samples[0], states={1: samples[0].states[1], 3: samples[0].states[3].clone()})
    odd.states[3][5:90] = 99.0  # inside the prompt
    alone = Moments([odd, *samples[1:]], prompt_weight=0.0)
    clean = Moments(samples, prompt_weight=0.0)
    assert alone.tokens == clean.tokens == 4 * 101
    assert torch.equal(alone.solve(1, 3).weight, clean.solve(1, 3).weight)
    both = Moments([odd, *samples[1:]])
    assert not torch.equal(both.solve(1, 3).weight, clean.solve(1, 3).weight)


def test_an_exact_jump_agrees_with_the_model_everywhere() -> None:
    """The state that the jump should give is given: then every draft is the model's own."""
    tail, samples = Tail(model(), 3, VOCAB), own_answers()[:4]
    truth = drafting_starts(samples, 3)
    steps = iter(range(3))

    def told(now: Tensor, past: Tensor) -> Tensor:
        return truth.gathered(3, next(steps))

    seen = judge_jump(tail, told, samples, first=1, landing=3, steps=3)
    # Near-ties may fall the other way under bf16's rounding.
    assert min(seen.by_position) > 0.9
    assert torch.equal(seen.reached[:, 0], torch.ones(len(seen.right), dtype=torch.bool))


def start(samples: list[Sample]) -> JumpNet:
    return JumpNet(Moments(samples).solve(1, 3), 16, torch.bfloat16)


def test_training_brings_the_law_nearer_and_changes_only_the_jump() -> None:
    samples, tail = own_answers(), Tail(model(), 3, VOCAB)
    head = tail.head.weight.clone()
    net = start(samples)
    before = {name: t.detach().clone() for name, t in net.tensors().items()}
    fitted = Moments(samples).solve(1, 3)
    torch.testing.assert_close(before["jump.weight"], fitted.weight)
    assert float(before["net.down"].abs().max()) == 0.0
    distiller = Distiller(tail, net, samples, first=1, landing=3, learning_rate=2e-3)
    losses = [distiller.step(step / 24) for step in range(24)]
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    assert torch.equal(tail.head.weight, head)
    assert not torch.equal(net.tensors()["jump.weight"], before["jump.weight"])


def test_training_goes_on_from_what_was_kept() -> None:
    samples = own_answers()
    net = start(samples)
    with torch.no_grad():
        net.turn.normal_(std=0.05)
        net.shift.normal_()
        net.down.normal_(std=0.1)
    kept = {name: t.detach().to(torch.bfloat16) for name, t in net.tensors().items()}
    again = JumpNet.resumed(kept, Moments(samples).solve(1, 3), torch.bfloat16).tensors()
    for name, tensor in kept.items():
        torch.testing.assert_close(again[name].detach(), tensor.float(), rtol=1e-4, atol=1e-6)


def test_training_stops_when_nothing_is_gained() -> None:
    class Flat:
        steps = 0

        def step(self, progress: float) -> float:
            self.steps += 1
            return 1.0

    told: list[float] = []
    flat = Flat()
    distil(
        flat,  # type: ignore[arg-type]
        progress=lambda: flat.steps / 100,
        judge=lambda: 1.5,
        tell=lambda loss, found: told.append(found),
        checks=10,
        patience=3,
    )
    assert told == [1.5] * 3
    assert flat.steps == pytest.approx(30, abs=3)


def test_all_pairs_are_judged_and_the_best_comes_first() -> None:
    samples = own_answers()
    tail = Tail(model(), 2, VOCAB)
    used = used_neurons(tail, samples[3:])
    bench = Bench(tail=tail, held_out=samples[:3], costs=COSTS, used=used, shares=SHARES)
    found = candidates(Moments(samples[3:]), bench, MARKS)
    assert {(one.first, one.landing) for one in found} == {(1, 2), (1, 3)}
    speeds = [one.prospect.speed_up for one in found]
    assert speeds == sorted(speeds, reverse=True)
    assert all(one.hoped(COSTS) > 0 for one in found)


def test_a_jump_is_judged_as_it_will_be_packed() -> None:
    samples = own_answers()
    tensors = Moments(samples).solve(1, 3).tensors()
    state, past = samples[0].states[1], samples[0].states[3]
    exact = AppliedJump(tensors, torch.bfloat16)(state, past).float()
    rounded = packed(tensors)(state, past).float()
    assert float((exact - rounded).abs().mean()) < 0.05 * float(exact.abs().mean())
    assert not torch.equal(exact, rounded)
    assert OwnSlots().keys == {}


def judged(right: list[list[int]], sure: list[list[float]] | None = None) -> Judged:
    table = torch.tensor(right, dtype=torch.bool)
    trust = torch.tensor(sure) if sure else torch.ones(table.shape)
    return Judged(right=table, followed=table, sure=trust)


def test_prospect_is_the_arithmetic_of_rounds() -> None:
    half = judged([[1, 1, 1], [0, 0, 0]])
    found = prospect(half, COSTS, 0.1)
    # k = 3: (4 + 1) tokens for two rounds of 3 · 0.1 + 1.2
    assert found.speed_up == pytest.approx(5 / 3)
    assert found.k == 3
    assert found.tokens_per_round == pytest.approx(2.5)
    assert half.by_position == pytest.approx((0.5, 1.0, 1.0))


def test_a_threshold_saves_what_would_be_refused() -> None:
    found = prospect(judged([[1, 1, 1], [0, 0, 0]], [[0.9, 0.9, 0.9], [0.2, 0.2, 0.2]]), COSTS, 0.3)
    # The sure one drafts three, the other stops after one.
    assert found.stop_below > 0.2
    assert found.speed_up == pytest.approx((4 + 1) / (3 * 0.3 + 1.2 + 0.3 + 1.05))


def test_hopeless_drafts_promise_less_than_plain_decoding() -> None:
    assert prospect(judged([[0, 0, 0]] * 4), COSTS, 0.1).speed_up < 1
    assert speed_up_of([0.0, 0.0], COSTS, 0.1) == pytest.approx(1 / 1.15)
    assert speed_up_of([1.0, 1.0, 1.0], COSTS, 0.1) == pytest.approx(4 / 1.5)


def test_the_vocabulary_covers_what_the_model_says() -> None:
    sample = own_answers()[0]
    low = replace(sample, best=torch.full_like(sample.best, 100))
    high = replace(sample, best=torch.full_like(sample.best, 60_000))
    order = torch.arange(150_000)
    assert vocabulary_size([low], order, 150_000, COSTS) == 2048
    assert vocabulary_size([high], order, 150_000, COSTS) == 61_440
    assert vocabulary_size([high], ids_by_use([high], 150_000), 150_000, COSTS) == 2048
    small = replace(sample, best=torch.full_like(sample.best, 90))
    assert vocabulary_size([small], torch.arange(96), 96, COSTS) == 96


def test_ids_are_listed_by_use_and_then_in_their_order() -> None:
    sample = own_answers()[0]
    said = torch.full_like(sample.best, -1)
    said[:3], said[3:5], said[5] = 70, 80, 3
    assert ids_by_use([replace(sample, best=said)], 90).tolist() == [
        70, 80, 3, 0, 1, 2, *(i for i in range(4, 90) if i not in (70, 80)),
    ]  # fmt: skip
