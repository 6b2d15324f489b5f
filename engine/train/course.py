"""The whole making of a head: answers, closed form, training, and a file after each that is better.

The budget decides how far each stage goes: a first file stands after about two minutes, the last
one when the time is up or held-out answers stop gaining. Stopped at any moment, the answers and the
best file so far are kept, and the next run goes on from them.

Invariant: a file, or the head that ships with the package, only ever gives way to one that is
better on the same held-out answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engine.draft.head_file import HeadAbout, save_head
from engine.draft.head_tensors import neuron_tensors, neurons_of, parted
from engine.loading import Loaded
from engine.train.answers import AnswerBook, Decoder
from engine.train.before import head_before
from engine.train.candidates import (
    Bench,
    Candidate,
    candidates,
    described,
)
from engine.train.distil import Distiller, distil
from engine.train.front import Front
from engine.train.jump_net import JumpNet
from engine.train.material import Material
from engine.train.moments import LinearJump, Moments
from engine.train.new_bench import new_bench
from engine.train.order import Order, marks_for, shares_for
from engine.train.questions import questions_for
from engine.train.samples import Marks

FIRST_FILE = 0.1
ANSWERED = 0.5
"""Shares of the time after which the first closed form is made, and the answers end."""
QUICK_ANSWERED = 0.6
REREAD = 0.25
"""Share of the time for the states of answers from earlier runs."""
LEAST_TOKENS = 400
"""Answered tokens that are waited for whatever the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Who is told how it goes."""

    stage: Callable[[str, float, str], None]
    """The stage in words, the share of the budget that is spent, a note."""
    result: Callable[[str], None]
    """A line about a jump that was judged."""


class Course:
    """One making of a head."""

    def __init__(
        self, loaded: Loaded, order: Order, *, folder: Path, head_file: Path, shown: Shown
    ) -> None:
        """`folder` keeps the answers. Raises `RequestError` for layers that the model lacks."""
        self._loaded, self._order, self._shown = loaded, order, shown
        self._target = head_file
        self._digest = loaded.weights_digest
        self._material = Material(AnswerBook(folder / "answers.jsonl"))
        self._asked = marks_for(loaded.architecture.layers, order)
        self._shares = shares_for(loaded.architecture.feed_forward, order)
        self._before, self._trouble = head_before(head_file, self._digest, loaded.architecture)
        self._marks = self._before.added_to(self._asked) if self._before else self._asked
        self._best: Candidate | None = None
        self._began = time.monotonic()

    @property
    def head_file(self) -> Path:
        """Where the best head is: a new file, or the one that was there."""
        return self._before.file if self._before and not self._target.is_file() else self._target

    @property
    def spent(self) -> float:
        """Share of the budget."""
        return (time.monotonic() - self._began) / (60.0 * self._order.minutes)

    def run(self) -> Candidate:
        """Make the head and leave it in its file; the one that is there now.

        Raises `ModelError` when the model can't be asked anything.
        """
        if self._trouble:
            self._shown.result(self._trouble)
        decoder = self._decoder()
        try:
            self._answer(decoder, QUICK_ANSWERED if self._order.quick else FIRST_FILE)
            bench = new_bench(
                self._loaded, self._material, self._before, self._shares, self._marks, self._stage
            )
            found = self._fit(bench)
            if not self._order.quick:
                self._marks = self._marks_of(found)
                self._answer(decoder, ANSWERED)
        except BaseException:  # Ctrl-C above all, and a second one may follow at once
            for answered in decoder.cut_off():
                self._material.keep(answered)
            raise
        for answered, sample in decoder.rest():
            self._material.add(answered, sample)
        if not self._order.quick:
            bench = replace(bench, held_out=self._material.judges())
            found = self._fit(bench)
            self._train(bench, max(found, key=lambda one: self._promise(one, bench)))
        assert self._best is not None, "a closed form was kept"
        if self._before is not None and self._best.tensors is self._before.tensors:
            self._shown.result("nothing better was found than the head that was there: it stays")
        return self._best

    def _decoder(self) -> Decoder:
        """For the questions that no earlier run has answered; the answers of those are read."""
        self._material.remember(
            self._loaded.model,
            self._marks,
            go_on=lambda: self.spent < REREAD,
            tell=lambda: self._stage("reading earlier answers", self._size()),
        )
        questions = questions_for(
            self._loaded.text, self._order.project, self._loaded.context_tokens
        )
        left = [question for question in questions if question.key not in self._material.known]
        return Decoder(self._loaded.model, self._marks, left)

    def _marks_of(self, found: Sequence[Candidate]) -> Marks:
        """Only what the best candidates need, and what is there already."""
        kept = [*found, *([self._best] if self._best else [])]
        return Marks(
            firsts=tuple(sorted({one.first for one in kept})),
            jumps=tuple(sorted({one.landing for one in kept})),
            layers=self._marks.layers,
        )

    def _promise(self, one: Candidate, bench: Bench) -> float:
        """The speed-up to expect of a path: what is there already is known, not hoped."""
        best, hoped = self._best, one.hoped(bench.costs)
        if best is None or (best.first, best.landing) != (one.first, one.landing):
            return hoped
        return max(hoped, best.prospect.speed_up)

    def _answer(self, decoder: Decoder, until: float) -> None:
        def go_on() -> bool:
            answered = self._material.tokens + decoder.under_way
            note = f"{answered:,} tokens"
            self._stage("the model answers questions", note)
            wanted = self.spent < until or answered < LEAST_TOKENS
            return wanted and not self._material.full

        for answered, sample in decoder.answers(go_on):
            self._material.add(answered, sample)
        if self._material.tokens < LEAST_TOKENS:  # few have ended, on a slow machine
            for answered, sample in decoder.rest():
                self._material.add(answered, sample)

    def _stage(self, stage: str, note: str) -> None:
        self._shown.stage(stage, self.spent, note)

    def _size(self) -> str:
        return f"{self._material.tokens:,} tokens"

    def _fit(self, bench: Bench) -> list[Candidate]:
        """The best closed forms; the first of them is kept if it is better than what is there."""
        moments = Moments(self._material.trained_on)
        self._shown.stage("fitting all paths", self.spent, f"{moments.tokens:,} tokens")
        if self._best is None:
            self._best = self._judged_before(bench)
        else:
            again = self._best
            self._best = self._judged(bench, again.first, again.landing, again.tensors)
        best = self._best
        wanted = (best.first, best.landing) if best else None
        found = candidates(moments, bench, self._marks.among(self._asked), wanted)
        for one in found:
            self._shown.result(described(one))
        self._keep(found[0], bench)
        return found

    def _train(self, bench: Bench, start: Candidate) -> None:
        """Distil one path; each check that finds it better than what is kept replaces the file."""
        assert start.fitted is not None, "training starts from a closed form"
        marks = Marks(firsts=(start.first,), jumps=(start.landing,), layers=self._marks.layers)
        self._material.keep_only(marks)
        net = self._net(start.fitted, start, bench)
        neurons = self._neurons(start)
        distiller = Distiller(
            bench.tail_of(neurons), net, self._material.trained_on,
            first=start.first, landing=start.landing,
        )  # fmt: skip
        begun = self.spent
        stage = "training through the last layers"
        seen = start

        def judge() -> float:
            nonlocal seen
            seen = bench.judged(start.first, start.landing, net.tensors() | neurons)
            self._keep(seen, bench)
            return seen.prospect.speed_up

        def tell(loss: float, _found: float) -> None:
            self._shown.result(f"divergence {loss:.3f}; {described(seen)}")
            self._shown.stage(stage, self.spent, "")

        self._shown.stage(stage, self.spent, f"{len(self._material.trained_on)} answers")
        distil(
            distiller,
            progress=lambda: (self.spent - begun) / max(1e-6, 1.0 - begun),
            judge=judge,
            tell=tell,
        )

    def _neurons(self, start: Candidate) -> dict[str, Tensor]:
        """Those that a head of the same path was trained with, if they are as many as were asked
        for, else those that promise most."""
        best, found = self._best, neurons_of(start.tensors)
        if best is None or (best.first, best.landing) != (start.first, start.landing):
            return neuron_tensors(found)
        _, before = parted(neurons_of(best.tensors), best.landing)
        _, now = parted(found, start.landing)
        fits = self._order.neurons is None or _count(before) == _count(now)
        return neuron_tensors({**found, **before} if fits else found)

    def _net(self, fitted: LinearJump, start: Candidate, bench: Bench) -> JumpNet:
        """From the head of an earlier run where it has the same path, else from the closed form."""
        best = self._best
        path = (start.first, start.landing)
        if best is not None and "net.up" in best.tensors and path == (best.first, best.landing):
            return JumpNet.resumed(best.tensors, fitted, bench.tail.dtype)
        return JumpNet(fitted, self._order.width, bench.tail.dtype)

    def _keep(self, found: Candidate, bench: Bench) -> None:
        """Write `found` if it is better than the best so far."""
        if self._best is None or found.prospect.speed_up > self._best.prospect.speed_up:
            self._best = found
            self._save(found, bench)

    def _save(self, found: Candidate, bench: Bench) -> None:
        threshold = found.prospect.stop_below
        about = HeadAbout(
            model_digest=self._digest,
            first=found.first,
            jump=found.landing,
            vocab=bench.tail.vocab,
            agreement=tuple(round(share, 4) for share in found.agreement),
            made_with={
                "tokens": self._material.tokens,
                "minutes": round(self.spent * self._order.minutes, 1),
                "speed_up": round(found.prospect.speed_up, 3),
                "draft_cost": round(found.prospect.draft_cost, 3),
                "neurons": _count(parted(neurons_of(found.tensors), found.landing)[1]),
            },
            stop_below=threshold or None,
        )
        listed = {"ids": bench.listed.to(torch.int32)}
        save_head(self._target, about, {**found.tensors, **listed})

    def _judged(
        self, bench: Bench, first: int, landing: int, tensors: Mapping[str, Tensor]
    ) -> Candidate:
        """A head that is there, on the states that its own first layers leave."""
        front, _ = parted(neurons_of(tensors), landing)
        if first == 1 and bench.front and not front:
            every = {0: torch.arange(bench.tail.architecture.feed_forward)}
            whole = Front(self._loaded.model, every)
            bench = replace(bench, held_out=[*map(whole, bench.held_out)])
        return bench.judged(first, landing, tensors)

    def _judged_before(self, bench: Bench) -> Candidate | None:
        """The head that was there, judged on today's answers."""
        before = self._before
        if before is None:
            return None
        kept = self._judged(bench, before.about.first, before.about.jump, before.tensors)
        self._shown.result(f"from an earlier run: {described(kept)}")
        return kept


def _count(neurons: Mapping[int, Tensor]) -> int:
    """How many the last layer keeps; 0: all."""
    return len(neurons[max(neurons)]) if neurons else 0
