"""The model's answers to the requests: what every path is judged on.

Rows of a pass share the reading of the weights, so answers are decoded side by side. Owns how many
are enough, and which of them nothing is fitted to. Invariant: no token is both fitted to and judged
on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.calibration.pace import Pace
from engine.model import Model
from engine.protocol import RequestError
from engine.train.answers import Decoder, Question
from engine.train.samples import Marks, Sample

ADMITTED, ANSWERED, AT_LATEST = 0.2, 0.4, 0.6
"""Shares of the time at which no more prompts are read at first, at which answering ends, and at
which it ends with fewer than `LEAST_TOKENS`."""
LEAST_TOKENS = 200
JUDGED_TOKENS = (150, 700)
"""Answered tokens that paths are judged on, at least and at most,"""
PER_MINUTE = 100
"""and in between for each minute there is."""
LEAST_ROWS = 4
SHORT = 4
"""Tokens of an answer that has nothing to draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judges:
    """Answers, parted into those that are fitted to and those that are judged on."""

    fitted: Sequence[Sample]
    held_out: Sequence[Sample]

    @property
    def all(self) -> list[Sample]:
        """Both."""
        return [*self.fitted, *self.held_out]


def answered(model: Model, questions: Sequence[Question], marks: Marks, pace: Pace) -> Judges:
    """Answers of at least `LEAST_TOKENS` in all. Raises `RequestError` where there is too little
    time or too little text for that."""
    waiting = _Waiting(questions, pace)
    decoder = Decoder(model, marks, waiting)
    samples: list[Sample] = []

    def tokens() -> int:
        return sum(map(length, samples)) + decoder.under_way

    def go_on() -> bool:
        pace.tell("the model answers", f"{tokens():,} tokens")
        waiting.next_step()
        return pace.spent < (ANSWERED if tokens() >= LEAST_TOKENS else AT_LATEST)

    samples += (sample for _, sample in decoder.answers(go_on))
    samples += (sample for _, sample in decoder.rest())
    samples = [sample for sample in samples if length(sample) > SHORT]
    _check(sum(map(length, samples)), len(questions), pace)
    return parted(samples, _wanted(pace))


def length(sample: Sample) -> int:
    """Tokens of the answer."""
    return sample.tokens - sample.answer_at + 1


def parted(samples: Sequence[Sample], wanted: int) -> Judges:
    """About `wanted` tokens to judge on, a third at most, spread over all answers: those that ended
    first are the short ones."""
    if len(samples) < 2:
        return Judges(fitted=[], held_out=samples)
    every = max(3, sum(map(length, samples)) // wanted)
    held_out = samples[:: min(every, len(samples))]
    fitted = [sample for sample in samples if not any(sample is one for one in held_out)]
    return Judges(fitted=fitted, held_out=held_out)


class _Waiting:
    """The questions, handed out so that reading them leaves time to answer: as many as there are
    rows while that is quick, and then one a step."""

    def __init__(self, questions: Sequence[Question], pace: Pace) -> None:
        self._questions, self._pace = iter(questions), pace
        self._handed = 0
        self._due = LEAST_ROWS

    def __iter__(self) -> Iterator[Question]:
        return self

    def __next__(self) -> Question:
        if self._handed >= self._due and self._pace.spent > ADMITTED:
            raise StopIteration
        question = next(self._questions)
        self._handed += 1
        return question

    def next_step(self) -> None:
        """One question more may be read."""
        self._due = max(LEAST_ROWS, self._handed + 1)


def _wanted(pace: Pace) -> int:
    least, most = JUDGED_TOKENS
    return max(least, min(most, round(PER_MINUTE * pace.seconds / 60)))


def _check(tokens: int, asked: int, pace: Pace) -> None:
    if tokens >= LEAST_TOKENS:
        return
    if pace.spent < AT_LATEST:
        raise RequestError(
            "too_little_text",
            f"{asked} requests gave {tokens} tokens of answers, and {LEAST_TOKENS} are needed to "
            "judge on",
            "Give more requests, or leave --requests out.",
        )
    minutes = math.ceil(10 * pace.seconds / 60 * LEAST_TOKENS / max(1, tokens)) / 10
    raise RequestError(
        "too_little_time",
        f"in {pace.taken:.0f} s the model answered {tokens} tokens, and {LEAST_TOKENS} are needed "
        "to judge on",
        f"Give it more time, as in --minutes {max(minutes, 2 * pace.seconds / 60):.1f}.",
    )
