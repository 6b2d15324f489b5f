"""Predictions put to the test: real rounds at a fixed k, taking turns with plain ones.

The same requests are decoded plainly and by each path, a few rounds at a time in turn, so that a
slow minute falls on all of them. Greedy, so every arm writes the same text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

TOKENS = 48
"""Of each request's answer."""


@dataclass(slots=True, kw_only=True)
class Arm:
    """One path at a fixed k, and what its rounds took."""

    name: str
    drafter: Drafter
    k: int
    rounds: int = 0
    tokens: int = 0
    ms: float = 0.0
    plain_tokens: int = 0
    plain_ms: float = 0.0

    def timed(self) -> Timed:
        """The sum of it."""
        return Timed(
            name=self.name,
            k=self.k,
            rounds=self.rounds,
            tokens_per_round=self.tokens / max(1, self.rounds),
            times_plain=(self.tokens / self.ms) / (self.plain_tokens / self.plain_ms)
            if self.ms and self.plain_ms
            else 0.0,
        )


def time_request(model: Model, cache: KVCache, question: Question, arms: Sequence[Arm]) -> None:
    """Decode one request's first tokens plainly and by every arm, and add it up in the arms."""
    plain = _decoded(model, cache, question, None)
    runs = [(arm, _decoded(model, cache, question, arm)) for arm in arms]
    again = _decoded(model, cache, question, None)
    best_plain = min(plain, again, key=lambda run: run["ms"] / max(1, run["tokens"]))
    for arm, run in runs:
        arm.rounds += int(run["rounds"])
        arm.tokens += int(run["tokens"])
        arm.ms += run["ms"]
        arm.plain_tokens += int(best_plain["tokens"])
        arm.plain_ms += best_plain["ms"]


def _decoded(
    model: Model, cache: KVCache, question: Question, arm: Arm | None
) -> Mapping[str, float]:
    tokens = list(question.ids)
    cache.rollback(0, 0)
    row = Row(
        id="calibration",
        tokens=tokens,
        prompt_tokens=len(tokens),
        cache_row=0,
        chain=Chain(SamplingParams(), tokens, model.device),
        stop_ids=frozenset(),
        max_tokens=TOKENS,
    )
    drafters = {} if arm is None else {arm.drafter.route: arm.drafter}
    while not prefill_step(model, cache, row, tap=tap_of(drafters.values())):
        pass
    took = {"rounds": 0.0, "tokens": 0.0, "ms": 0.0}
    while row.finished is None and cache.can_extend(0, 1):
        choice = Choice(route="plain", k=0, reason="")
        longest = longest_draft(cache, row)
        if arm is not None and longest and arm.drafter.evidence(row) is not None:
            choice = Choice(route=arm.drafter.route, k=min(arm.k, longest), reason="")
        done = run_round(model, cache, row, drafters, choice)
        took["rounds"] += 1
        took["tokens"] += done.emitted
        took["ms"] += done.total_ms
    return took
