"""The making of a head from beginning to end, on a random model and within seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from engine.draft.head_file import file_in, load_head, read_about, read_head, save_head
from engine.draft.head_tensors import neuron_tensors, neurons_of
from engine.loading import Loaded
from engine.model import Model
from engine.protocol import EngineError, ModelError, RequestError
from engine.train.answers import AnswerBook
from engine.train.before import head_before
from engine.train.candidates import Candidate
from engine.train.course import Course, Shown
from engine.train.order import SHARES, Order, marks_for, shares_for

from .tiny import tiny_tensors
from .tiny_heads import about, random_tensors
from .tiny_session import tiny_loaded, vocabulary

SHORT = Order(minutes=0.04, first=1, jump=3, width=16)


def course(
    folder: Path,
    order: Order = SHORT,
    told: list[str] | None = None,
    stop_at: str = "",
    loaded: Loaded | None = None,
) -> Course:
    """A course over the tiny model; getting into the stage `stop_at` is a Ctrl-C."""
    lines = [] if told is None else told

    def stage(name: str, share: float, note: str) -> None:
        assert share >= 0
        lines.append(name)
        # Answers are told of at every token; some must be worth keeping when they are stopped.
        if name == stop_at and lines.count(name) == (20 if "answers" in name else 1):
            raise KeyboardInterrupt

    return Course(
        loaded or tiny_loaded(context=384),
        order,
        folder=folder,
        head_file=folder / "head.safetensors",
        shown=Shown(stage=stage, result=lines.append),
    )


def test_it_leaves_a_head_that_loads(tmp_path: Path) -> None:
    told: list[str] = []
    made = course(tmp_path, told=told).run()
    loaded = tiny_loaded(context=384)
    file = tmp_path / "head.safetensors"
    head = load_head(file, loaded.weights_digest, loaded.model)
    kept = read_about(file)
    assert (kept.first, kept.jump) == (made.first, made.landing) == (1, 3)
    assert kept.agreement == pytest.approx(made.agreement, abs=1e-3)
    assert kept.vocab == loaded.architecture.vocab
    assert int(kept.made_with["tokens"]) >= 400
    assert head.about == kept
    assert "training through the last layers" in told
    assert any("agreement" in line and "× plain" in line for line in told)
    with pytest.raises(ModelError, match="belongs to the weights"):
        load_head(file, "f" * 64, loaded.model)


def test_a_quick_one_is_closed_form_only(tmp_path: Path) -> None:
    told: list[str] = []
    made = course(tmp_path, Order(minutes=0.02, quick=True), told).run()
    assert {name for name in made.tensors if name.startswith(("jump", "net"))} == {
        "jump.weight",
        "jump.bias",
    }
    assert "training through the last layers" not in told
    assert (tmp_path / "head.safetensors").is_file()


@pytest.mark.parametrize(
    "stage",
    ["the model answers questions", "fitting all paths", "training through the last layers"],
)
def test_stopped_anywhere_it_goes_on_from_there(tmp_path: Path, stage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        course(tmp_path, stop_at=stage).run()
    book = AnswerBook(tmp_path / "answers.jsonl")
    kept = book.read(vocabulary())
    assert kept
    has_head = (tmp_path / "head.safetensors").is_file()
    assert has_head == stage.startswith("training")
    told: list[str] = []
    course(tmp_path, told=told).run()
    assert told[0] == "reading earlier answers"
    if has_head:
        assert any(line.startswith("from an earlier run: first 1") for line in told)
    now = book.read(vocabulary())
    assert now[: len(kept)] == kept
    assert len({answered.key for answered in now}) == len(now)


def half_dead() -> Loaded:
    """Only the first half of the neurons does anything: nothing is lost without the rest."""
    loaded = tiny_loaded(context=384)
    tensors = tiny_tensors(loaded.architecture, "none")
    for layer in range(loaded.architecture.layers):
        tensors[f"layers.{layer}.down.dense"][:, 64:] = 0
    model = Model(loaded.architecture, tensors, context_tokens=384)
    return dataclasses.replace(loaded, model=model, quant="none")


def kept_neurons(file: Path, loaded: Loaded) -> dict[int, list[int]]:
    _, tensors = read_head(file, loaded.weights_digest, loaded.architecture)
    return {layer: ids.tolist() for layer, ids in neurons_of(tensors).items()}


def test_the_file_has_the_neurons_that_were_judged(tmp_path: Path) -> None:
    """Where half of them do nothing, these go: they save more than nothing on any machine."""
    told, loaded = list[str](), half_dead()
    made = course(tmp_path, told=told, loaded=loaded).run()
    file = tmp_path / "head.safetensors"
    found = kept_neurons(file, loaded)
    assert found == {layer: ids.tolist() for layer, ids in neurons_of(made.tensors).items()}
    assert found.pop(0) == list(range(64))
    assert read_about(file).made_with["neurons"] == (64 if found else 0)
    head = load_head(file, loaded.weights_digest, loaded.model)
    assert head.front is not None
    assert head.front.architecture.feed_forward == 64
    if found:
        assert found == {3: list(range(64))}
        assert head.tail is not None
        assert head.tail.architecture.feed_forward == 64
    trained = [line for line in told if line.startswith("divergence")]
    assert not found or all("with 64 neurons" in line for line in trained)


def quick(folder: Path, *, first: int = 1, neurons: int | None = None) -> dict[int, list[int]]:
    """What the file keeps after a quick course."""
    order = Order(minutes=0.02, quick=True, first=first, jump=3, neurons=neurons)
    course(folder, order).run()
    return kept_neurons(folder / "head.safetensors", tiny_loaded(context=384))


def test_the_only_layer_before_the_jump_keeps_its_neurons_from_run_to_run(tmp_path: Path) -> None:
    file, loaded = tmp_path / "head.safetensors", tiny_loaded(context=384)
    made = quick(tmp_path)
    assert len(made[0]) == 64
    told, tensors = read_head(file, loaded.weights_digest, loaded.architecture)
    others = torch.arange(32, 96)
    assert others.tolist() != made[0]
    save_head(file, told, tensors | neuron_tensors({0: others}))
    assert quick(tmp_path)[0] == others.tolist()


def test_of_two_layers_before_the_jump_none_is_pruned(tmp_path: Path) -> None:
    assert 0 not in quick(tmp_path, first=2)


@pytest.mark.parametrize(("asked", "kept"), [(64, 64), (128, 0)])
def test_as_many_neurons_are_kept_as_were_asked_for(tmp_path: Path, asked: int, kept: int) -> None:
    found = quick(tmp_path, neurons=asked)
    assert len(found.pop(0)) == 64
    assert {layer: len(ids) for layer, ids in found.items()} == ({3: kept} if kept else {})
    about_it = read_about(tmp_path / "head.safetensors")
    assert about_it.made_with["neurons"] == kept, "of the layers behind the jump; 0: all"


def test_more_neurons_than_there_are_or_fewer_than_a_block_are_refused(tmp_path: Path) -> None:
    for asked in (-64, 0, 63, 129):
        with pytest.raises(RequestError) as refused:
            course(tmp_path, Order(neurons=asked))
        assert f"--neurons {asked} is no number of this model's 128" in refused.value.message
        assert refused.value.hint == "Choose a value from 64 to 128."
    assert shares_for(128, Order()) == SHARES
    assert shares_for(128, Order(neurons=128)) == (1.0,)
    assert shares_for(8960, Order(neurons=2240)) == (0.25,)


def test_a_head_that_was_there_is_judged_with_its_neurons(tmp_path: Path) -> None:
    loaded, file = half_dead(), tmp_path / "head.safetensors"
    wide, vocab = loaded.architecture.hidden, loaded.architecture.vocab
    same = {"jump.weight": torch.eye(wide, 2 * wide), "jump.bias": torch.zeros(wide)}
    order, lines = Order(minutes=0.02, quick=True, first=2, jump=3), []
    for begin in (0, 64):  # those that do something, and those that don't
        neurons = dict.fromkeys((1, 2, 3), torch.arange(begin, begin + 64))
        told = about(first=1, jump=1, vocab=vocab, digest=loaded.weights_digest)
        save_head(file, told, same | neuron_tensors(neurons))
        heard = list[str]()
        course(tmp_path, order, heard, loaded=loaded).run()
        lines += [line for line in heard if line.startswith("from an earlier run: first 1, from 1")]
        if not begin:
            assert heard[-1].endswith("it stays")
            kept = kept_neurons(file, loaded)
            assert kept == {layer: list(range(64)) for layer in (1, 2, 3)}
    good, bad = (float(line.split("agreement ")[1].split(" /")[0]) for line in lines)
    assert all("from 1 with 64 neurons" in line for line in lines)
    assert bad < 0.7 < 0.9 < good


@pytest.mark.parametrize("asked", [None, 64])
def test_training_goes_on_with_the_neurons_that_a_head_was_trained_with(
    tmp_path: Path, asked: int | None
) -> None:
    begun = course(tmp_path, Order(minutes=0.02, quick=True, first=1, jump=3, neurons=asked))
    found = begun.run()
    theirs, ours, front = torch.arange(64), torch.arange(64, 128), torch.arange(32, 96)
    jump = {name: t for name, t in found.tensors.items() if not name.startswith("neurons")}
    start = dataclasses.replace(found, tensors=jump | neuron_tensors({0: front, 3: theirs}))

    def kept(best: dict[int, torch.Tensor], of: Candidate = start) -> list[list[int]]:
        begun._best = dataclasses.replace(found, tensors=jump | neuron_tensors(best))
        neurons = neurons_of(begun._neurons(of))
        assert sorted(neurons) == [0, 3]
        return [neurons[layer].tolist() for layer in (0, 3)]

    first, last = front.tolist(), theirs.tolist()
    assert kept({3: ours}) == [first, ours.tolist()]
    assert kept({0: front, 3: ours}) == [first, ours.tolist()]
    assert kept({3: ours}, dataclasses.replace(start, first=2)) == [first, last]
    assert kept({}) == [first, last]
    more = torch.arange(128)
    assert kept({3: more}) == [first, (more if asked is None else theirs).tolist()]


def test_a_head_of_other_weights_is_replaced(tmp_path: Path) -> None:
    file, told = tmp_path / "head.safetensors", list[str]()
    file.write_bytes(b"no head at all")
    course(tmp_path, Order(minutes=0.02, quick=True), told).run()
    assert read_about(file).model_digest == tiny_loaded().weights_digest
    assert told[0].startswith("the head that was there is made anew:")


def test_a_head_that_was_cut_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    order = Order(minutes=0.02, quick=True, first=2, jump=3, neurons=128)
    course(tmp_path, order).run()
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    course(tmp_path, order).run()
    assert len(file.read_bytes()) == len(whole)


def test_a_better_head_of_another_path_stays(tmp_path: Path) -> None:
    file, loaded = tmp_path / "head.safetensors", tiny_loaded(context=384)
    order = Order(minutes=0.02, quick=True, first=2, jump=3)
    course(tmp_path, order).run()
    _, tensors = read_head(file, loaded.weights_digest, loaded.architecture)
    # No layer is jumped over and the state is handed on as it is: nothing agrees more often.
    wide = loaded.architecture.hidden
    same = {"jump.weight": torch.eye(wide, 2 * wide), "jump.bias": torch.zeros(wide)}
    assert same.keys() == tensors.keys() - {"neurons.3", "ids"}
    save_head(file, replace(read_about(file), first=1, jump=1, stop_below=0.123), same)
    before, told = file.read_bytes(), list[str]()
    made = course(tmp_path, order, told).run()
    assert made.first == 1
    # With its ids and its threshold too: those of a shorter run would be worse.
    assert file.read_bytes() == before
    assert told[-1].endswith("it stays")
    assert any(line.startswith("from an earlier run: first 1, from 1:") for line in told)


def test_the_head_that_ships_is_what_the_first_run_has_to_beat(tmp_path: Path) -> None:
    loaded = tiny_loaded(context=384)
    digest, arch = loaded.weights_digest, loaded.architecture
    own, shipped = tmp_path / "own.safetensors", tmp_path / "shipped"
    assert head_before(own, digest, arch, shipped=shipped) == (None, "")
    save_head(file_in(shipped, digest), about(vocab=arch.vocab, digest=digest), random_tensors())
    found, trouble = head_before(own, digest, arch, shipped=shipped)
    assert found is not None
    assert (found.file, trouble) == (file_in(shipped, digest), "")
    save_head(own, about(vocab=arch.vocab, first=2, digest=digest), random_tensors())
    found, _ = head_before(own, digest, arch, shipped=shipped)
    assert found is not None
    assert (found.file, found.about.first) == (own, 2)
    own.write_bytes(own.read_bytes()[:-1])
    found, trouble = head_before(own, digest, arch, shipped=shipped)
    assert found is not None
    assert found.file == file_in(shipped, digest)
    assert "made anew" in trouble
    marks = found.added_to(marks_for(28, Order(first=5, jump=20)))
    assert (marks.firsts, marks.jumps) == ((1, 5), (3, 20))
    assert marks.among(marks_for(28, Order(first=5, jump=20))).kept == (5, 20, 28)


def test_a_folder_that_keeps_nothing_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").mkdir()
    with pytest.raises(EngineError, match=r"answers.*answers.jsonl") as refused:
        course(tmp_path).run()
    assert refused.value.hint


def test_layers_that_the_model_lacks_are_refused(tmp_path: Path) -> None:
    for order in (Order(first=4), Order(first=0), Order(jump=9), Order(first=3, jump=2)):
        with pytest.raises(RequestError) as refused:
            course(tmp_path, order)
        assert refused.value.hint


def test_shallow_models_have_marks_too() -> None:
    assert marks_for(28, Order()).jumps[:4] == (18, 20, 22, 24)
    assert marks_for(4, Order()).jumps == (2,)
    assert marks_for(4, Order()).firsts == (1, 2, 3)
    assert marks_for(28, Order(first=2, jump=20)).kept == (2, 20, 28)
