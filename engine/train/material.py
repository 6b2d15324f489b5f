"""The answers that a head is made from: their book, their states, and which of them only judge.

Owns the split and how much is kept in memory. Invariant: an answer that judges is never trained on
in this run, unless it is the only one, nor in another, unless it judged for want of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.memory_plan import available_host_bytes
from engine.model import Model
from engine.train.agreement import STEPS
from engine.train.answers import AnswerBook, Answered
from engine.train.questions import is_held_out
from engine.train.samples import Marks, Sample, reread

ROOM = 0.4
"""Share of the available memory for states of answers."""
JUDGED_TOKENS = 4000
"""Held-out answers beyond this are not judged on, for the time it takes."""


class Material:
    """Answers with their states."""

    def __init__(self, book: AnswerBook) -> None:
        self.trained_on: list[Sample] = []
        self.tokens = 0
        """Of all answers, prompts not counted."""
        self.known: set[str] = set()
        """Keys of the questions that the book has answers to."""
        self._held_out: list[Sample] = []
        self._book = book
        self._bytes, self._room = 0, int(ROOM * available_host_bytes())
        self._change: Callable[[Sample], Sample] = lambda sample: sample

    @property
    def full(self) -> bool:
        """No more states should be kept."""
        return self._bytes > self._room

    def remember(
        self, model: Model, marks: Marks, go_on: Callable[[], bool], tell: Callable[[], None]
    ) -> None:
        """States of the answers of earlier runs, while `go_on` says yes."""
        cache = model.new_cache(1)
        for answered in self._book.read(model.architecture.vocab):
            self.known.add(answered.key)
            if go_on() and not self.full and len(answered.ids) <= model.context_tokens:
                ids, answer_at = answered.ids, answered.answer_at
                self._sort_in(answered.key, reread(model, cache, ids, answer_at, marks))
                tell()

    def add(self, answered: Answered, sample: Sample) -> None:
        """A new answer."""
        self._book.add(answered)
        self._sort_in(answered.key, sample)

    def keep(self, answered: Answered) -> None:
        """A new answer that only the next run will learn from."""
        self._book.add(answered)

    def judges(self) -> list[Sample]:
        """The held-out answers; the longest of the others too where none is long enough yet to
        draft in."""
        if max(map(_answered, self._held_out), default=0) <= STEPS and self.trained_on:
            longest = max(range(len(self.trained_on)), key=lambda i: _answered(self.trained_on[i]))
            self._held_out.append(self.trained_on[longest])
            if len(self.trained_on) > 1:
                del self.trained_on[longest]
        judges: list[Sample] = []
        for sample in self._held_out:
            judges.append(sample)
            if sum(s.tokens - s.answer_at for s in judges) >= JUDGED_TOKENS:
                break
        return judges

    def change(self, change: Callable[[Sample], Sample]) -> None:
        """Change all samples, those that are here and those that come."""
        self._change = change
        self.trained_on = [change(sample) for sample in self.trained_on]
        self._held_out = [change(sample) for sample in self._held_out]

    def keep_only(self, marks: Marks) -> None:
        """Let go of what the training of one path does not need."""
        self.trained_on = [sample.only(marks) for sample in self.trained_on]

    def _sort_in(self, key: str, sample: Sample) -> None:
        self.tokens += sample.tokens - sample.answer_at + 1
        self._bytes += sample.nbytes
        (self._held_out if is_held_out(key) else self.trained_on).append(self._change(sample))


def _answered(sample: Sample) -> int:
    """Tokens of the answer that were run."""
    return sample.tokens - sample.answer_at
