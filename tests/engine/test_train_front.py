"""The first layer with some of its neurons: which ones, the states it leaves, and that a course
sees all its answers through it."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from engine.draft.head_tensors import neuron_tensors
from engine.loading import Loaded
from engine.model import Model
from engine.train.answers import AnswerBook, Answered
from engine.train.before import Before
from engine.train.front import Front, front_neurons
from engine.train.material import Material
from engine.train.new_bench import new_bench
from engine.train.order import SHARES
from engine.train.questions import is_held_out
from engine.train.samples import WIDE_TOKENS, Marks, Sample, reread
from engine.train.vocabulary import LISTED, ids_by_use

from .tiny import CALLED, DEAD, LOUD, planted, tiny_architecture, tiny_tensors
from .tiny_heads import about, front_neurons_of, random_tensors
from .tiny_samples import MARKS, model, own_answers
from .tiny_session import tiny_loaded


@torch.inference_mode()
def token_by_token(target: Model, ids: Tensor) -> Tensor:  # (T, D)
    """The states behind the first layer."""
    slots, states = target.new_cache(1), []
    for token in ids.split(1):
        span = slots.extend(0, 1)
        states.append(target.run_layers(target.embed(token), [span], slots, first=0, stop=1))
    return torch.cat(states)


def test_it_gives_the_states_that_a_draft_would() -> None:
    target, neurons = model(), front_neurons_of(model())
    front = Front(target, neurons)
    for sample in own_answers()[:3]:
        assert sample.tokens <= 64, "wider passes may round differently"
        seen = front(sample)
        assert torch.equal(seen.states[1], token_by_token(target.pruned(neurons), sample.ids[:-1]))
        assert not torch.equal(seen.states[1], sample.states[1])
        assert replace(seen, states=sample.states) == sample
        assert {**seen.states, 1: sample.states[1]} == sample.states


def test_with_all_neurons_the_states_stay_as_they_were() -> None:
    sample = own_answers()[0]
    seen = Front(model(), {0: torch.arange(128)})(sample)
    assert torch.equal(seen.states[1], token_by_token(model(), sample.ids[:-1]))


def test_a_text_longer_than_a_pass_is_read_on() -> None:
    arch = tiny_architecture()
    target = Model(arch, tiny_tensors(arch, "none"), context_tokens=1024)
    ids = torch.randint(0, 96, (WIDE_TOKENS + 90,), generator=torch.Generator().manual_seed(2))
    sample = reread(target, target.new_cache(1), ids.tolist(), 9, MARKS)
    neurons = front_neurons_of(target)
    seen = Front(target, neurons)(sample).states[1].float()
    wanted = token_by_token(target.pruned(neurons), ids[:-1]).float()
    assert seen.shape == wanted.shape
    apart = (seen - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert float(apart.max()) < 0.03


def test_what_it_has_no_business_with_is_left_alone() -> None:
    sample = own_answers()[0]
    assert Front(model(), {})(sample) is sample
    later = replace(sample, states={2: sample.states[2], 4: sample.states[4]})
    assert Front(model(), front_neurons_of(model()))(later) is later


def test_the_neurons_that_texts_use_most_are_kept() -> None:
    (kept,) = front_neurons(planted(0), own_answers()[:3]).values()
    assert (kept.dtype, len(kept)) == (torch.int64, 64)
    assert torch.equal(kept, kept.unique())
    assert {LOUD, CALLED} < {*kept.tolist()}
    assert DEAD not in kept
    # Among the others it is what they add that counts, however long the text.
    target, spoken = model(), own_answers()[:3]
    found = front_neurons(target, spoken)
    assert {*found} == {0}
    added = torch.zeros(128)
    for sample in spoken:
        slots = target.new_cache(1)
        states = target.embed(sample.ids)
        neurons = target.neurons(0, states, [slots.extend(0, len(states))], slots).float()
        for neuron in range(128):
            only = torch.zeros_like(neurons)
            only[:, neuron] = neurons[:, neuron]
            added[neuron] += target.layers[0].down(only.bfloat16()).float().square().sum()
    best = added.argsort(descending=True)
    assert {*best[:55].tolist()} <= {*found[0].tolist()}
    assert not {*best[73:].tolist()} & {*found[0].tolist()}


def test_nothing_is_pruned_where_a_quarter_is_all() -> None:
    arch = msgspec.structs.replace(tiny_architecture(), feed_forward=64)
    small = Model(arch, tiny_tensors(arch, "none"), context_tokens=128)
    assert front_neurons(small, own_answers()[:1]) == {}


def told(key: int, sample: Sample) -> Answered:
    return Answered(key=f"{key:x}", ids=sample.ids.tolist(), answer_at=sample.answer_at)


def material_of(folder: Path, samples: list[Sample]) -> Material:
    """Every third answer judges."""
    found = Material(AnswerBook(folder / "answers.jsonl"))
    for at, sample in enumerate(samples):
        found.add(told(12 * at + (at % 3 > 0), sample), sample)
    return found


def test_answers_that_are_there_and_that_come_are_changed(tmp_path: Path) -> None:
    assert is_held_out("24")
    assert not is_held_out("25")
    samples = own_answers()
    found = material_of(tmp_path, samples[:6])
    assert (len(found.trained_on), len(found.judges())) == (4, 2)
    found.change(lambda sample: replace(sample, total=sample.total + 1))
    found.add(told(12 * 6, samples[6]), samples[6])
    found.add(told(12 * 7 + 1, samples[7]), samples[7])
    assert (len(found.trained_on), len(found.judges())) == (5, 3)
    seen = [float(one.total[0]) for one in (*found.trained_on, *found.judges())]
    assert {*seen} == {1.0}, "each of them once; in a prompt it is 0"
    book = AnswerBook(tmp_path / "answers.jsonl").read(96)
    assert {one.answer_at for one in book} == {one.answer_at for one in samples[:8]}


@cache
def loaded() -> Loaded:
    return tiny_loaded(context=384)


@cache
def texts() -> list[Sample]:
    """Samples of the tiny vocabulary's random texts, with states of two layers to start from."""
    target, random = loaded().model, torch.Generator().manual_seed(8)
    marks = Marks(firsts=(1, 2), jumps=(2, 3), layers=4)
    found = []
    for at in range(9):
        ids = torch.randint(0, loaded().architecture.vocab, (60 + at,), generator=random).tolist()
        found.append(reread(target, target.new_cache(1), ids, 20, marks))
    return found


MARKED = Marks(firsts=(1, 2), jumps=(2, 3), layers=4)


def test_a_bench_sees_all_answers_through_the_front(tmp_path: Path) -> None:
    target, heard = loaded().model, list[str]()
    material = material_of(tmp_path, texts()[:6])
    plain = [*material.trained_on]
    bench = new_bench(
        loaded(), material, None, SHARES, MARKED, lambda stage, note: heard.append(stage)
    )
    front = Front(target, bench.front)
    assert {layer: ids.tolist() for layer, ids in bench.front.items()} == {
        layer: ids.tolist() for layer, ids in front_neurons(target, plain).items()
    }
    for late, sample in enumerate(texts()[6:]):
        material.add(told(12 * (late + 9) + (late > 0), sample), sample)
    whole = {len(sample.ids): sample for sample in texts()}
    seen = [*material.trained_on, *material.judges(), *bench.held_out]
    assert len(seen) == 9 + 2
    for sample in seen:
        before = whole[len(sample.ids)]
        assert not torch.equal(sample.states[1], before.states[1])
        assert torch.equal(sample.states[1], front(before).states[1])
        assert torch.equal(sample.states[2], before.states[2])
    assert bench.shares is SHARES
    assert {*bench.used} == {2, 3}
    vocab = loaded().architecture.vocab
    assert torch.equal(bench.listed, ids_by_use(plain, vocab)), "all ids, the most used first"
    assert torch.equal(bench.tail.ids, bench.listed[: bench.tail.vocab])
    assert heard == ["measuring this machine", "writing out the last layers"]


def before(neurons: dict[int, Tensor], first: int = 1) -> Before:
    return Before(
        file=Path("head.safetensors"),
        about=about(first=first, jump=2, vocab=loaded().architecture.vocab),
        tensors=random_tensors() | neuron_tensors(neurons),
    )


def test_the_front_of_a_head_that_was_there_goes_on(tmp_path: Path) -> None:
    theirs = front_neurons_of(loaded().model)
    material = material_of(tmp_path, texts()[:6])
    there = before({**theirs, 2: torch.arange(64), 3: torch.arange(64)})
    bench = new_bench(loaded(), material, there, SHARES, MARKED, lambda *_: None)
    assert {*bench.front} == {0}
    assert torch.equal(bench.front[0], theirs[0])
    assert not torch.equal(theirs[0], front_neurons(loaded().model, texts()[:6])[0])
    front, whole = Front(loaded().model, theirs), {len(one.ids): one for one in texts()}
    for sample in (*material.trained_on, *bench.held_out):
        assert torch.equal(sample.states[1], front(whole[len(sample.ids)]).states[1])


def test_a_head_of_two_layers_before_the_jump_leaves_the_front_open(tmp_path: Path) -> None:
    material = material_of(tmp_path, texts()[:6])
    plain = [*material.trained_on]
    bench = new_bench(loaded(), material, before({}, 2), SHARES, MARKED, lambda *_: None)
    assert torch.equal(bench.front[0], front_neurons(loaded().model, plain)[0])


def test_a_large_vocabulary_is_listed_as_far_as_a_calibration_may_want(tmp_path: Path) -> None:
    arch = msgspec.structs.replace(tiny_architecture(), vocab=LISTED + 3000)
    large = Model(arch, tiny_tensors(arch, "none"), context_tokens=384)
    material = material_of(tmp_path, own_answers()[:6])
    plain = [*material.trained_on]
    bench = new_bench(
        dataclasses.replace(loaded(), model=large, architecture=arch),
        material, None, SHARES, MARKS, lambda *_: None,
    )  # fmt: skip
    assert bench.tail.vocab < LISTED
    assert torch.equal(bench.listed, ids_by_use(plain, arch.vocab)[:LISTED])


@pytest.mark.parametrize("first", [1, 2])
def test_a_closed_form_has_the_front_that_its_states_went_through(
    tmp_path: Path, first: int
) -> None:
    from engine.train.moments import Moments

    material = material_of(tmp_path, texts()[:6])
    bench = new_bench(loaded(), material, None, SHARES, MARKED, lambda *_: None)
    fitted = Moments(material.trained_on).solve(first, 3)
    for share, tail in ((1.0, set[str]()), (0.5, {"neurons.3"})):
        made = bench.pruned(fitted, first, 3, share)
        front = {"neurons.0"} if first == 1 else set[str]()
        assert {name for name in made if name.startswith("neurons")} == front | tail
        if front:
            assert torch.equal(made["neurons.0"].long(), bench.front[0])


def test_answers_too_short_to_draft_in_do_not_judge_alone(tmp_path: Path) -> None:
    """A model on a slow machine may have ended only its shortest answers by then."""
    *samples, first, longest = own_answers()
    samples = [replace(one, answer_at=one.tokens - 9) for one in samples]
    short = replace(first, answer_at=first.tokens - 2)
    material = Material(AnswerBook(tmp_path / "answers.jsonl"))
    for at, sample in enumerate((short, *samples, longest)):
        material.add(told(12 * at + (at > 0), sample), sample)
    assert [*map(id, material.judges())] == [id(short), id(longest)]
    assert [*map(id, material.trained_on)] == [*map(id, samples)]
    assert len(material.judges()) == 2, "nothing more is taken"


def test_the_only_answer_is_trained_on_and_judges(tmp_path: Path) -> None:
    material = Material(AnswerBook(tmp_path / "answers.jsonl"))
    (sample, *_) = own_answers()
    material.add(told(1, sample), sample)
    assert [*map(id, material.judges())] == [*map(id, material.trained_on)] == [id(sample)]
