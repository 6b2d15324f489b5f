"""Own answers: the text of plain decoding whatever runs beside it, and nothing lost by a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.decode import prefill_step, run_round
from engine.draft_length import Choice
from engine.protocol import EngineError, SamplingParams
from engine.train.answers import AnswerBook, Answered, Decoder
from engine.train.samples import reread

from .tiny import new_row
from .tiny_samples import MARKS, VOCAB, answered, model, questions


def plainly(ids: list[int], tokens: int, stop_ids: frozenset[int]) -> list[int]:
    """Prompt and greedy answer, one token a round."""
    target = model()
    cache = target.new_cache(1)
    row = new_row(ids, SamplingParams(temperature=0.0), max_tokens=tokens, stop_ids=stop_ids)
    while not prefill_step(target, cache, row):
        pass
    while row.finished is None:
        run_round(target, cache, row, {}, Choice(route="plain", k=0, reason=""))
    return row.tokens


def test_greedy_answers_are_those_of_plain_decoding() -> None:
    asked = questions(11)
    found = {told.key: told for told, _ in answered(model(), asked, rows=4)}
    assert len(found) == len(asked)
    for question in asked:
        told = found[question.key]
        assert told.answer_at == len(question.ids)
        assert told.ids == plainly(question.ids, question.max_tokens, question.stop_ids)


def test_drawn_answers_do_not_depend_on_their_neighbours() -> None:
    asked = questions(9, temperature=0.7)
    wide = {told.key: told.ids for told, _ in answered(model(), asked, rows=9)}
    narrow = {told.key: told.ids for told, _ in answered(model(), asked[::-1], rows=2)}
    assert wide == narrow
    greedy = {told.key: told.ids for told, _ in answered(model(), questions(9))}
    assert wide != greedy


def test_states_are_those_of_reading_the_text_again() -> None:
    target = model()
    told, sample = answered(target, questions(3, tokens=70), rows=3)[0]
    again = reread(target, target.new_cache(1), told.ids, told.answer_at, MARKS)
    judged = sample.best >= 0
    assert judged.nonzero()[0] == told.answer_at - 1
    assert torch.equal(sample.best, again.best)
    for layer in MARKS.kept:
        # Wide passes sum in another order.
        torch.testing.assert_close(sample.states[layer], again.states[layer], rtol=0.1, atol=0.5)
    for layer in MARKS.tail:
        assert sample.keys[layer].shape == again.keys[layer].shape == (sample.tokens, 2, 16)


def test_what_is_under_way_goes_on_with_the_next_call() -> None:
    asked = questions(6)
    steps = iter([True] * 20 + [False])
    decoder = Decoder(model(), MARKS, asked, rows=6)
    first = list(decoder.answers(lambda: next(steps)))
    both = [*first, *decoder.answers(lambda: True)]
    whole = answered(model(), asked, rows=6)
    assert len(first) < len(asked)
    assert sorted(t.ids for t, _ in both) == sorted(t.ids for t, _ in whole)


def test_the_rest_is_cut_off_where_it_stands() -> None:
    steps = iter([True] * 20 + [False])
    decoder = Decoder(model(), MARKS, questions(3, temperature=0.7), rows=3)
    done = list(decoder.answers(lambda: next(steps)))
    cut = list(decoder.rest())
    assert len(done) + len(cut) == 3
    assert all(len(told.ids) - told.answer_at <= 20 for told, _ in cut)
    assert all(sample.tokens == len(told.ids) - 1 for told, sample in cut)
    assert list(decoder.rest()) == []


def test_the_book_outlives_a_line_that_was_cut(tmp_path: Path) -> None:
    book = AnswerBook(tmp_path / "deep" / "answers.jsonl")
    assert book.read(VOCAB) == []
    first = Answered(key="a", ids=[1, 2, 3], answer_at=2)
    book.add(first)
    with (tmp_path / "deep" / "answers.jsonl").open("ab") as file:
        file.write(b'{"key": "b", "ids": [1,')
    second = Answered(key="c", ids=[4, 5], answer_at=1)
    book.add(second)
    assert book.read(VOCAB) == [first, second]


@pytest.mark.parametrize(
    "line",
    [
        b'{"key": "b", "ids": [1, 96], "answer_at": 1}',
        b'{"key": "b", "ids": [1, -1], "answer_at": 1}',
        b'{"key": "b", "ids": [1, 2], "answer_at": 2}',
        b'{"key": "b", "ids": [1, 2], "answer_at": 0}',
        b'{"key": "b", "ids": [], "answer_at": 1}',
        b'{"key": "no digits", "ids": [1, 2], "answer_at": 1}',
        b"\xff\x00 noise",
        b"[]",
    ],
)
def test_a_line_that_no_answer_looks_like_is_passed_over(tmp_path: Path, line: bytes) -> None:
    book = AnswerBook(tmp_path / "answers.jsonl")
    kept = Answered(key="a", ids=[1, 95], answer_at=1)
    book.add(kept)
    with (tmp_path / "answers.jsonl").open("ab") as file:
        file.write(line + b"\n")
    book.add(kept)
    assert book.read(VOCAB) == [kept], "and a question answered twice is one"


def test_a_book_that_can_not_be_kept_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = Answered(key="a", ids=[1, 2], answer_at=1)
    with pytest.raises(EngineError, match=r"can't be kept in .*answers\.jsonl") as refused:
        AnswerBook(tmp_path / "file" / "answers.jsonl").add(told)
    assert "SSPEC_ASSIST_CACHE" in refused.value.hint
    with pytest.raises(EngineError, match="can't be read"):
        AnswerBook(tmp_path).read(VOCAB)


def test_what_is_under_way_can_be_had_at_once() -> None:
    steps = iter([True] * 20 + [False])
    decoder = Decoder(model(), MARKS, questions(3, tokens=60), rows=3)
    assert list(decoder.answers(lambda: next(steps))) == []
    at_once = decoder.cut_off()
    assert at_once == [told for told, _ in decoder.rest()]
    assert len(at_once) == 3
