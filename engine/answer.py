"""One answer from admission to its last event, one step at a time.

A step is a stretch of prefill or one round; between two steps the cache is whole, so an answer can
be paused, steered, cancelled or left for good at any of these points. Events are returned, never
sent: who steps decides where they go. Where memory runs out, a step is tried again with less: a
shorter stretch, a round without a draft.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from engine.decode import PREFILL_TOKENS, Round, prefill_step, run_round
from engine.draft_length import Choice
from engine.drafting import Drafting
from engine.out_of_memory import is_out_of_memory
from engine.protocol import (
    Event,
    Finished,
    FinishReason,
    RoundDone,
    Started,
    Steering,
    TextDelta,
    Usage,
)
from engine.row import Row
from engine.slots import Claim, Tap
from engine.telling import Telling
from engine.totals import Totals

if TYPE_CHECKING:
    from engine.session import Session

logger = logging.getLogger(__name__)

LEAST_STRETCH = 32
"""Prompt tokens per pass below which less would not help."""


@dataclass(slots=True, kw_only=True)
class Answer:
    """A request that holds a cache row until `close`."""

    session: Session
    row: Row
    claim: Claim
    drafting: Drafting
    telling: Telling
    _totals: Totals = field(default_factory=Totals)
    _stretch: int = PREFILL_TOKENS
    _prefilled: bool = False
    _tap: Tap | None = None
    _closed: bool = False

    @property
    def done(self) -> bool:
        """Whether the last event was returned."""
        return self._closed

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the cache held already."""
        return self.claim.cached

    def started(self) -> Started:
        """The first event."""
        return Started(
            prompt_tokens=self.row.prompt_tokens,
            cached_tokens=self.claim.cached,
            evicted_tokens=self.claim.evicted,
            notice=self.session.loaded.notice,
        )

    def step(self) -> Iterator[Event]:
        """Do one stretch of prefill or one round; yields what it brought about."""
        began = time.perf_counter()
        if not self._prefilled:
            self._prefilled = self._prefill()
            if self._prefilled and self.row.tapped is not None:
                # A copy: the state is a slice of those of the whole stretch.
                self._tap = Tap(state=self.row.tapped.clone(), after=len(self.row.tokens) - 1)
            self._totals.prefill_ms += (time.perf_counter() - began) * 1e3
            return
        if not self.session.slots.cache.can_extend(self.row.cache_row, 1):
            self.row.finished = "context"
        else:
            yield from self._round()
        self._totals.decode_ms += (time.perf_counter() - began) * 1e3
        if self.row.finished is not None:
            yield from self._finish(self.row.finished)

    def steer(self, steering: Steering) -> None:
        """Draft like this from the next round on. Raises `RequestError`."""
        self.drafting.steer(steering)

    def usage(self) -> Usage:
        """What the answer has taken so far."""
        return self._totals.usage(self.row, self.claim.cached)

    def rest(self) -> TextDelta | None:
        """Text that is still held back, for an answer that can't go on."""
        return self.telling.rest()

    def close(self) -> None:
        """Give the cache row back; what it holds stays usable for the next request."""
        if not self._closed:
            tokens = self.row.tokens
            tap = self._tap or self.claim.tap
            self.session.slots.give_back(self.row.cache_row, tokens[:-1], tokens[-1:], tap)
            self._closed = True  # not before: a row that is lost must not look as if it were free
            self.session.earlier.add(self.row.output)

    def _prefill(self) -> bool:
        model, cache = self.session.loaded.model, self.session.slots.cache
        while True:
            try:
                tap = self.session.tap_layer
                return prefill_step(model, cache, self.row, most=self._stretch, tap=tap)
            except Exception as error:
                if not is_out_of_memory(error) or self._stretch <= LEAST_STRETCH:
                    raise
            # Not before the handler has ended: the error keeps what the pass had allocated.
            self._stretch //= 2
            self._make_room(f"reading on in stretches of {self._stretch} tokens")

    def _round(self) -> Iterator[Event]:
        row, session = self.row, self.session
        context = len(row.tokens)
        unit_ms = session.costs.unit_ms(context)
        choice = self.drafting.choose(row, session.slots.cache)
        choice, done = self._decode(choice)
        self.drafting.learn(choice, done, row, context)
        session.stands_at(context)
        if session.trace is not None:
            session.trace.write(row.id, choice, done, context_tokens=context, plain_ms=unit_ms)
        self._totals.count(done, unit_ms)
        said = self.telling.say(row.output[-done.emitted :], row.kinds[-done.emitted :])
        if self.telling.stopped:
            row.finished = "stop_string"
        if said is not None:
            yield said
        yield RoundDone(
            route=done.route,
            k=choice.k,
            drafted=done.drafted,
            tested=done.tested,
            accepted=done.accepted,
            draft_ms=done.draft_ms,
            verify_ms=done.verify_ms,
            round_ms=done.total_ms,
            context_tokens=len(row.tokens),
            mode="speculating" if done.drafted else "plain",
            reason=done.reason,
        )

    def _decode(self, choice: Choice) -> tuple[Choice, Round]:
        """One round as chosen; plainly, and so from then on, if memory does not suffice for it."""
        model, cache = self.session.loaded.model, self.session.slots.cache
        try:
            return choice, run_round(model, cache, self.row, self.drafting.drafters, choice)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Not before the handler has ended: the error keeps what the round had allocated.
        cache.rollback(self.row.cache_row, len(self.row.tokens) - 1)
        plain = self.drafting.give_up("memory ran out, so nothing is drafted")
        self._make_room("decoding plainly")
        return plain, run_round(model, cache, self.row, {}, plain)

    def _make_room(self, consequence: str) -> None:
        logger.warning("memory ran out in answer %s: %s", self.row.id, consequence)
        self.session.slots.forget()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _finish(self, reason: FinishReason) -> Iterator[Event]:
        rest = self.rest()
        if rest is not None:
            yield rest
        self.close()
        yield Finished(reason=reason, text=self.telling.text, usage=self.usage())
