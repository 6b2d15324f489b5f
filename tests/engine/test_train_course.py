"""The making of a head from beginning to end, on a random model and within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from engine.draft.head_file import file_in, load_head, read_about, read_head, save_head
from engine.protocol import EngineError, ModelError, RequestError
from engine.train.answers import AnswerBook
from engine.train.before import head_before
from engine.train.course import Course, Shown
from engine.train.order import Order, marks_for

from .tiny_heads import about, random_tensors
from .tiny_session import tiny_loaded, vocabulary

SHORT = Order(minutes=0.04, first=1, jump=3, width=16)


def course(
    folder: Path, order: Order = SHORT, told: list[str] | None = None, stop_at: str = ""
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
        tiny_loaded(context=384),
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
    head = load_head(file, loaded.weights_digest, loaded.architecture)
    kept = read_about(file)
    assert (kept.first, kept.jump) == (made.first, made.landing) == (1, 3)
    assert kept.agreement == pytest.approx(made.agreement, abs=1e-3)
    assert kept.vocab == loaded.architecture.vocab
    assert int(kept.made_with["tokens"]) >= 400
    assert head.about == kept
    assert "training through the last layers" in told
    assert any("agreement" in line and "× plain" in line for line in told)
    with pytest.raises(ModelError, match="belongs to the weights"):
        load_head(file, "f" * 64, loaded.architecture)


def test_a_quick_one_is_closed_form_only(tmp_path: Path) -> None:
    told: list[str] = []
    made = course(tmp_path, Order(minutes=0.02, quick=True), told).run()
    assert set(made.tensors) == {"jump.weight", "jump.bias"}
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


def test_a_head_of_other_weights_is_replaced(tmp_path: Path) -> None:
    file, told = tmp_path / "head.safetensors", list[str]()
    file.write_bytes(b"no head at all")
    course(tmp_path, Order(minutes=0.02, quick=True), told).run()
    assert read_about(file).model_digest == tiny_loaded().weights_digest
    assert told[0].startswith("the head that was there is made anew:")


def test_a_head_that_was_cut_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    order = Order(minutes=0.02, quick=True)
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
    assert same.keys() == tensors.keys()
    save_head(file, replace(read_about(file), first=1, jump=1), same)
    before, told = file.read_bytes(), list[str]()
    made = course(tmp_path, order, told).run()
    assert made.first == 1
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
    assert marks_for(28, Order()).jumps == (20, 22, 24, 25, 26)
    assert marks_for(4, Order()).jumps == (2,)
    assert marks_for(4, Order()).firsts == (1, 2, 3)
    assert marks_for(28, Order(first=2, jump=20)).kept == (2, 20, 28)
