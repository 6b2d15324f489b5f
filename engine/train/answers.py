"""The model's own answers: many prompts decoded side by side, and the book that keeps their ids.

Rows of one pass share the reading of the weights, so a token costs a fraction of what it costs
alone. Whatever ends the work, texts that were finished are in the book, and the next run goes on
with the prompts that are not.

Invariant: a greedy answer is the one that plain decoding gives, whatever is decoded beside it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from engine.cache import KVCache
from engine.model import Model
from engine.protocol import EngineError
from engine.train.samples import Marks, Sample, Seen, read_prompt, record, sample_of

logger = logging.getLogger(__name__)

ROWS = 16
TEMPERATURE = 0.7
LEAST_TOKENS = 8
"""Answers cut off before this are not worth keeping."""


class Question(Struct, frozen=True, kw_only=True):
    """A prompt as ids, and how it is to be answered."""

    ids: list[int]
    stop_ids: frozenset[int]
    max_tokens: int
    temperature: float = 0.0

    @property
    def key(self) -> str:
        """The same for the same prompt in another run."""
        return hashlib.sha256(msgspec.json.encode(self.ids)).hexdigest()[:16]


class Answered(Struct, frozen=True, kw_only=True):
    """One line of the book."""

    key: str
    ids: list[int]
    """Prompt and answer."""
    answer_at: int

    def check(self, vocab: int) -> None:
        """Raise `ValueError` for what no answer of a model with `vocab` tokens looks like."""
        if not 1 <= self.answer_at < len(self.ids):
            raise ValueError(f"the answer begins at {self.answer_at} of {len(self.ids)} tokens")
        wrong = next((token for token in self.ids if not 0 <= token < vocab), None)
        if wrong is not None:
            raise ValueError(f"{wrong} is no token id below {vocab}")
        int(self.key, 16)


class AnswerBook:
    """Answers on disk, one JSON object a line, appended as they come."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, vocab: int) -> list[Answered]:
        """All whole lines, one for each question; one that a stopped run left unfinished, or that
        holds what is no token id below `vocab`, is passed over. Raises `EngineError`."""
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._trouble("read", error) from error
        kept: dict[str, Answered] = {}
        for line in lines:
            try:
                answered = msgspec.json.decode(line, type=Answered)
                answered.check(vocab)
            except (msgspec.MsgspecError, ValueError) as error:
                logger.warning("%s has a line that can't be read: %s", self._file, error)
                continue
            kept.setdefault(answered.key, answered)
        return list(kept.values())

    def add(self, answered: Answered) -> None:
        """Append one answer. Raises `EngineError` where it can't be written."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("ab") as book:
                book.write(b"\n" * self._is_cut() + msgspec.json.encode(answered) + b"\n")
        except OSError as error:
            raise self._trouble("kept", error) from error

    def _trouble(self, what: str, error: OSError) -> EngineError:
        return EngineError(
            "answers_file",
            f"the model's answers can't be {what} in '{self._file}': {error.strerror or error}",
            "Make room there, or let SSPEC_ASSIST_CACHE name another folder, and start again.",
        )

    def _is_cut(self) -> bool:
        if not self._file.stat().st_size:
            return False
        with self._file.open("rb") as book:
            book.seek(-1, 2)
            return book.read() != b"\n"


@dataclass(slots=True, kw_only=True)
class _Live:
    """An answer under way in one cache row."""

    question: Question
    ids: list[int]
    random: torch.Generator
    states: list[Tensor]  # (M, T, D) pieces
    best: list[Tensor] = field(default_factory=list)  # () each
    total: list[Tensor] = field(default_factory=list)  # () each

    @property
    def answered(self) -> int:
        return len(self.ids) - len(self.question.ids)

    @property
    def done(self) -> bool:
        ended = self.answered > 0 and self.ids[-1] in self.question.stop_ids
        return ended or self.answered >= self.question.max_tokens

    def as_answered(self) -> Answered:
        """What the book keeps of it."""
        return Answered(key=self.question.key, ids=self.ids, answer_at=len(self.question.ids))


class Decoder:
    """Answers questions in the rows of one cache, in the order in which answers end."""

    def __init__(
        self, model: Model, marks: Marks, questions: Iterable[Question], *, rows: int = ROWS
    ) -> None:
        self._model, self._marks = model, marks
        self._cache: KVCache = model.new_cache(rows)
        self._waiting = iter(questions)
        self._live: dict[int, _Live] = {}

    @property
    def under_way(self) -> int:
        """Tokens of answers that have not ended."""
        return sum(live.answered for live in self._live.values())

    @torch.no_grad()
    def answers(self, go_on: Callable[[], bool]) -> Iterator[tuple[Answered, Sample]]:
        """Answers until there is no question left or `go_on` says no; what is under way then goes
        on with the next call."""
        while go_on():
            self._admit(self._waiting)
            if not self._live:
                return
            self._step()
            yield from self._take([row for row, live in self._live.items() if live.done])

    @torch.no_grad()
    def rest(self) -> Iterator[tuple[Answered, Sample]]:
        """What is under way, cut off where it stands."""
        yield from self._take(
            [row for row, live in self._live.items() if live.answered >= LEAST_TOKENS]
        )
        for row in list(self._live):
            self._close(row)

    def cut_off(self) -> list[Answered]:
        """The same as ids alone, at once: for whoever is about to be stopped."""
        return [live.as_answered() for live in self._live.values() if live.answered >= LEAST_TOKENS]

    def _admit(self, waiting: Iterator[Question]) -> None:
        for row in range(self._cache.rows):
            if row in self._live:
                continue
            question = next(waiting, None)
            if question is None:
                return
            ids = list(question.ids)
            seed = int(question.key, 16) & 0x7FFF_FFFF
            states = read_prompt(self._model, self._cache, row, ids[:-1], self._marks)
            self._live[row] = _Live(
                question=question,
                ids=ids,
                random=torch.Generator().manual_seed(seed),
                states=[states],
            )

    def _step(self) -> None:
        """One token more for every row."""
        model = self._model
        rows = list(self._live)
        spans = [self._cache.extend(row, 1) for row in rows]
        last = torch.tensor([self._live[row].ids[-1] for row in rows], device=model.device)
        states = record(model, model.embed(last), spans, self._cache, self._marks)
        scores = model.logits(states[-1]).float()
        best, total = scores.argmax(dim=-1), scores.logsumexp(dim=-1)
        for i, row in enumerate(rows):
            live = self._live[row]
            live.states.append(states[:, i : i + 1])
            live.best.append(best[i])
            live.total.append(total[i])
            live.ids.append(_drawn(scores[i], int(best[i]), live))

    def _take(self, rows: Sequence[int]) -> Iterator[tuple[Answered, Sample]]:
        for row in rows:
            live = self._live[row]
            at = len(live.question.ids)
            seen = Seen(
                ids=live.ids,
                answer_at=at,
                states=torch.cat(live.states, dim=1),
                best=torch.stack(live.best),
                total=torch.stack(live.total),
            )
            sample = sample_of(self._cache, row, seen, self._marks)
            self._close(row)
            yield live.as_answered(), sample

    def _close(self, row: int) -> None:
        del self._live[row]
        self._cache.release(row)


def _drawn(scores: Tensor, best: int, live: _Live) -> int:  # scores (V,) float32
    if live.question.temperature == 0.0:
        return best
    law = (scores / live.question.temperature).softmax(dim=-1).cpu()
    return int(torch.multinomial(law, 1, generator=live.random))
