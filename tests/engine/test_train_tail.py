"""The last layers as dense mathematics: the model's own numbers, at exact and at drafted states."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cache import Span
from engine.model import Model
from engine.quant import pack, unpack
from engine.train.answers import Decoder
from engine.train.law_loss import Laws, divergence, laws_over
from engine.train.samples import Sample
from engine.train.tail import OwnSlots, Starts, Tail, drafting_starts, written_out

from .tiny_samples import MARKS, VOCAB, model, own_answers, questions


def close(found: Tensor, wanted: Tensor) -> None:
    """Within bf16's rounding of states of this size."""
    size = float(wanted.float().abs().mean())
    apart = (found.float() - wanted.float()).abs()
    assert float(apart.mean()) < 0.01 * size
    assert float(apart.max()) < 0.15 * size


@pytest.mark.parametrize("quant", ["nf4", "int8", "none"])
@pytest.mark.parametrize("biased", [False, True])
def test_a_matrix_is_written_out_as_its_kernel_multiplies_it(quant: str, biased: bool) -> None:
    random = torch.Generator().manual_seed(3)
    weight = torch.randn(96, 128, generator=random).to(torch.bfloat16) * 0.05
    bias = torch.randn(96, generator=random).to(torch.bfloat16) * 50 if biased else None
    linear = unpack(pack(weight, quant, "cpu"), bias)  # type: ignore[arg-type]
    dense = written_out(linear, 128, weight)
    error = {"nf4": 0.3, "int8": 0.02, "none": 0.0}[quant]
    assert float((dense.weight - weight).abs().max()) <= error * 0.2
    assert torch.equal(dense.bias, torch.zeros(96) if bias is None else bias)
    x = torch.randn(7, 128, generator=random).to(torch.bfloat16)
    torch.testing.assert_close(dense(x), linear(x), rtol=0.02, atol=0.02)
    few = written_out(linear.rows(torch.arange(32)), 128, weight)
    assert torch.equal(few.weight, dense.weight[:32])


def test_nf4_is_written_out_without_a_second_rounding() -> None:
    random = torch.Generator().manual_seed(4)
    weight = torch.randn(32, 64, generator=random).to(torch.bfloat16)
    dense = written_out(unpack(pack(weight, "nf4", "cpu"), None), 64, weight).weight
    for row in dense:  # one block each: sixteen codes times one scale
        assert len(row.unique()) <= 16
        assert float(row.abs().max()) == pytest.approx(float(row.abs().max().bfloat16()))


@pytest.mark.parametrize("window", [None, 24])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_from_exact_states_it_gives_the_final_ones(window: int | None, qk_norm: bool) -> None:
    target = model(window=window, qk_norm=qk_norm)
    decoder = Decoder(target, MARKS, questions(4, temperature=0.7), rows=4)
    samples = [sample for _, sample in decoder.answers(lambda: True)]
    tail, own = Tail(target, 2, VOCAB), OwnSlots()
    starts = drafting_starts(samples, 3)
    for step in range(3):
        found = tail.run(starts.gathered(2, step), starts, own, step=step)
        close(found, starts.gathered(4, step))
    wanted = target.logits(starts.gathered(4)).float()
    close(tail.scores(starts.gathered(4)), wanted)


def engine_drafts(target: Model, sample: Sample, at: int, states: Tensor) -> Tensor:
    """What the engine's layers make of drafted states at `at` and after, in a real cache."""
    cache = target.new_cache(1)
    cache.extend(0, at)
    exact = target.embed(sample.ids[:at])
    span = Span(row=0, start=0, count=at)
    target.run_layers(exact, [span], cache, first=0, stop=4)
    made = []
    for step, state in enumerate(states):
        span = cache.extend(0, 1)
        assert span.start == at + step
        made.append(target.run_layers(state[None], [span], cache, first=3, stop=4))
    return torch.cat(made)


def test_drafts_see_their_own_slots_and_the_exact_ones_before() -> None:
    target, samples = model(), own_answers()[:3]
    tail, own = Tail(target, 3, VOCAB), OwnSlots()
    starts = drafting_starts(samples, 2)
    random = torch.Generator().manual_seed(5)
    wrong = [
        starts.gathered(3, step) + torch.randn(64, generator=random).to(torch.bfloat16)
        for step in range(2)
    ]
    found = [tail.run(state, starts, own, step=step) for step, state in enumerate(wrong)]
    begin = 0
    for sample, at in zip(starts.samples, starts.at, strict=True):
        for i in (0, len(at) - 1):
            drafted = torch.stack([state[begin + i] for state in wrong])
            wanted = engine_drafts(target, sample, int(at[i]), drafted)
            close(torch.stack([state[begin + i] for state in found]), wanted)
        begin += len(at)


def test_the_divergence_and_its_gradient_are_those_of_torch() -> None:
    target = model()
    tail = Tail(target, 3, 64)
    starts = drafting_starts(own_answers()[:2], 2)
    laws = laws_over(tail, starts, 2)
    hidden = (starts.gathered(4, 1) * 0.7).detach().requires_grad_()
    loss = divergence(tail, hidden, laws, 1)
    torch.autograd.backward(loss)
    again = hidden.detach().clone().requires_grad_()
    law = laws.probs[laws.rows + 1].float()
    log = torch.log_softmax(tail.scores(again), dim=-1)
    wanted = (law * law.clamp_min(1e-30).log() - law * log).sum(dim=-1).mean()
    torch.autograd.backward(wanted)
    assert loss.item() == pytest.approx(wanted.item(), abs=0.02)
    assert hidden.grad is not None
    assert again.grad is not None
    torch.testing.assert_close(hidden.grad, again.grad, rtol=0.1, atol=2e-4)


def test_laws_leave_out_what_the_draft_can_not_say() -> None:
    target = model()
    starts = drafting_starts(own_answers()[:1], 1)
    whole: Laws = laws_over(Tail(target, 3, VOCAB), starts, 1)
    some: Laws = laws_over(Tail(target, 3, 64), starts, 1)
    torch.testing.assert_close(
        whole.probs.float().sum(dim=-1), torch.ones(len(whole.probs)), rtol=0.03, atol=0.03
    )
    assert torch.equal(some.probs, whole.probs[:, :64])


def test_starts_name_the_tokens_that_follow() -> None:
    sample = own_answers()[0]
    starts: Starts = drafting_starts([sample], 3)
    assert int(starts.at[0][0]) == sample.answer_at - 1
    assert int(starts.at[0][-1]) + 3 == sample.tokens
    assert torch.equal(starts.next_ids(0), sample.ids[starts.at[0] + 1])
    assert torch.equal(starts.best(2), sample.best[starts.at[0] + 2])
