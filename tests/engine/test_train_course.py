"""The making of a head from beginning to end, on a random model and within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.draft.head_file import load_head, read_about
from engine.protocol import ModelError, RequestError
from engine.train.answers import AnswerBook
from engine.train.course import Course, Shown
from engine.train.order import Order, marks_for

from .tiny_session import tiny_loaded

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
    about = read_about(file)
    assert (about.first, about.jump) == (made.first, made.landing) == (1, 3)
    assert about.agreement == pytest.approx(made.agreement, abs=1e-3)
    assert about.vocab == loaded.architecture.vocab
    assert int(about.made_with["tokens"]) >= 400
    assert head.about == about
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
    kept = book.read()
    assert kept
    has_head = (tmp_path / "head.safetensors").is_file()
    assert has_head == stage.startswith("training")
    told: list[str] = []
    course(tmp_path, told=told).run()
    assert told[0] == "reading earlier answers"
    if has_head:
        assert any(line.startswith("from an earlier run: first 1") for line in told)
    now = book.read()
    assert now[: len(kept)] == kept
    assert len({answered.key for answered in now}) == len(now)


def test_a_head_of_other_weights_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    file.write_bytes(b"no head at all")
    course(tmp_path, Order(minutes=0.02, quick=True)).run()
    assert read_about(file).model_digest == tiny_loaded().weights_digest


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
