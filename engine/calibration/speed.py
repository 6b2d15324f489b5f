"""Predictions put to the test: real rounds at a fixed k, taking turns with plain ones.

The same requests are decoded plainly and by each path, so that a slow minute falls on all of them.
Greedy, so every arm writes the same text. Invariant: what is compared was decoded in full by all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cache import KVCache
from engine.calibration.figures import Timed
from engine.decode import longest_draft, prefill_step, run_round
from engine.draft.contract import Drafter, tap_of
from engine.draft_length import Choice
from engine.model import Model
from engine.protocol import SamplingParams
from engine.row import Chain, Row
from engine.train.answers import Question

MOST_TOKENS = 48
"""Of each request's answer."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What the rounds of one answer, or of many, came to."""

    rounds: int = 0
    tokens: int = 0
    ms: float = 0.0
    drafted: int = 0
    draft_ms: float = 0.0

    def add(self, other: Run) -> None:
        """Both together."""
        self.rounds += other.rounds
        self.tokens += other.tokens
        self.ms += other.ms
        self.drafted += other.drafted
        self.draft_ms += other.draft_ms

    @property
    def ms_per_token(self) -> float:
        """0 where nothing was run."""
        return self.ms / max(1, self.tokens)


class Arm:
    """One path at a fixed k, what its rounds took, and what plain ones of the same texts did."""

    def __init__(self, *, name: str, drafter: Drafter, k: int) -> None:
        self.name, self.drafter, self.k = name, drafter, k
        self._own, self._plain = Run(), Run()

    @property
    def rounds(self) -> int:
        """How many were run."""
        return self._own.rounds

    def add(self, own: Run, plain: Run) -> None:
        """Count one request."""
        self._own.add(own)
        self._plain.add(plain)

    def timed(self) -> Timed:
        """The sum of it, once there are rounds."""
        own, plain_ms = self._own, self._plain.ms_per_token
        return Timed(
            name=self.name,
            k=self.k,
            rounds=own.rounds,
            tokens_per_round=own.tokens / own.rounds,
            times_plain=plain_ms / own.ms_per_token,
            c=own.draft_ms / max(1, own.drafted) / plain_ms,
        )


class Trial:
    """Decodes requests' first tokens, plainly and by every arm."""

    def __init__(self, model: Model, cache: KVCache, *, max_tokens: int = MOST_TOKENS) -> None:
        self._model, self._cache, self._max_tokens = model, cache, max_tokens

    def decode(self, question: Question, arms: Sequence[Arm]) -> None:
        """Add one request up in the arms, whole or, where this is interrupted, not at all."""
        first = self._decoded(question, None)
        runs = [self._decoded(question, arm) for arm in arms]
        plain = min(first, self._decoded(question, None), key=lambda run: run.ms_per_token)
        for arm, run in zip(arms, runs, strict=True):
            arm.add(run, plain)

    def _decoded(self, question: Question, arm: Arm | None) -> Run:
        tokens = list(question.ids)
        cache, model = self._cache, self._model
        cache.rollback(0, 0)
        row = Row(
            id="calibration",
            tokens=tokens,
            prompt_tokens=len(tokens),
            cache_row=0,
            chain=Chain(SamplingParams(), tokens, model.device),
            stop_ids=question.stop_ids,
            max_tokens=self._max_tokens,
        )
        drafters = {} if arm is None else {arm.drafter.route: arm.drafter}
        while not prefill_step(model, cache, row, tap=tap_of(drafters.values())):
            pass
        took = Run()
        while row.finished is None and cache.can_extend(0, 1):
            choice = Choice(route="plain", k=0, reason="")
            longest = longest_draft(cache, row)
            if arm is not None and longest and arm.drafter.evidence(row) is not None:
                choice = Choice(route=arm.drafter.route, k=min(arm.k, longest), reason="")
            done = run_round(model, cache, row, drafters, choice)
            took.rounds += 1
            took.tokens += done.emitted
            took.ms += done.total_ms
            took.drafted += done.drafted
            took.draft_ms += done.draft_ms
        return took
