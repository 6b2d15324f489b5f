"""Rounds that stand for none: the real ones, run at the end of a text of noise, and timed.

A pass takes the same time whatever the tokens are. A stand-in drafts any number of tokens for
nothing and leaves as many layers done as a route does, so that the rest of a round is timed apart
from its draft. Invariant: between two rounds the cache's row is as long as it was made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.acceptance import Prior
from engine.cache import KVCache
from engine.decode import run_round
from engine.draft.contract import Draft, Drafter, tap_of
from engine.draft_length import Choice
from engine.model import Model
from engine.protocol import Route, SamplingParams
from engine.row import Chain, Row

_ROUTE: Route = "layer_skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where rounds are pretended, and the drafters whose rounds they stand for."""

    model: Model
    cache: KVCache
    drafters: Sequence[Drafter]

    def fill(self, context: int) -> None:
        """Make the cache's row look `context` tokens long, in memory that is really there:
        untouched pages all read from one, and would flatter attention."""
        for block in (*self.cache.keys, *self.cache.values):
            block[0, :, :context].normal_()
        self.cache.lengths[0] = context

    def row(self, context: int) -> Row:
        """A request with one pending token behind those in the cache, its last state tapped."""
        tokens = [0] * (context + 1)
        return Row(
            id="pretended",
            tokens=tokens,
            prompt_tokens=len(tokens),
            cache_row=0,
            chain=Chain(SamplingParams(), tokens, self.model.device),
            stop_ids=frozenset(),
            max_tokens=1 << 20,
            tapped=torch.randn_like(self._embedded(1)),
        )

    def rest_ms(self, context: int, rows: int, reusable: int = 0) -> float:
        """A round of so many rows, less its drafting; `reusable` layers have been run before."""
        tap = tap_of(self.drafters)
        hidden = self._embedded(rows - 1) if reusable and rows > 1 else None
        stand_in = _StandIn(reusable_layers=reusable, tap_layer=tap, hidden=hidden)
        choice = Choice(route=_ROUTE if rows > 1 else "plain", k=rows - 1, reason="")
        done = run_round(self.model, self.cache, self.row(context), {_ROUTE: stand_in}, choice)
        self.cache.rollback(0, context)
        return done.total_ms - done.draft_ms

    def draft_ms(self, context: int, drafter: Drafter, k: int) -> float:
        """Drafting `k` tokens; one that stops earlier is taken to have gone on at the same pace."""
        row = self.row(context)
        started = time.perf_counter()
        drafted = drafter.propose(row, k, self.cache).tokens.tolist()
        elapsed = time.perf_counter() - started
        self.cache.rollback(0, context)
        return elapsed * 1e3 * k / len(drafted)

    def can_draft(self, context: int, drafter: Drafter) -> bool:
        """Whether the drafter has anything to offer here."""
        return drafter.evidence(self.row(context)) is not None

    def _embedded(self, count: int) -> Tensor:  # (count, D)
        return self.model.embed(torch.zeros(count, dtype=torch.int64, device=self.model.device))


@dataclass(slots=True, kw_only=True)
class _StandIn:
    """Drafts token 0 as often as it is asked, for nothing."""

    reusable_layers: int
    tap_layer: int | None
    hidden: Tensor | None
    route: Route = _ROUTE
    cost_key: str = ""

    def evidence(self, row: Row) -> int | None:
        """Always the same."""
        return 0

    def prior(self, evidence: int) -> Prior:
        """Of no interest."""
        return Prior(rates=(0.0, 0.0, 0.0), worth=1.0)

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """k times token 0, with the slots and states that a route would leave."""
        if self.hidden is not None:
            cache.extend(row.cache_row, k)
        device = cache.keys[0].device
        tokens = torch.zeros(k, dtype=torch.int64, device=device)
        return Draft(tokens=tokens, probs=None, hidden=self.hidden)

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        """Nothing to learn."""
