"""One answer from admission to its last event, one step at a time.

A step is a stretch of prefill or one round; between two steps the cache is whole, so an answer can
be paused, cancelled or left for good at any of these points. Events are returned, never sent: who
steps decides where they go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.decode import Round, longest_draft, offers, prefill_step, run_round
from engine.draft.contract import Drafter
from engine.draft_length import DraftLength
from engine.protocol import (
    Event,
    Finished,
    FinishReason,
    RoundDone,
    Route,
    Started,
    TextDelta,
    TokenKind,
    Usage,
)
from engine.row import Row
from engine.stream_text import StreamText

if TYPE_CHECKING:
    from engine.session import Session


OWN_PLAIN_ROUNDS = 8
"""From so many on, an answer's own plain rounds tell the plain speed."""


@dataclass(slots=True, kw_only=True)
class _Totals:
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    plain_ms: float = 0.0
    """What the same tokens would have taken one by one, at the speed in the cost table."""
    plain_rounds: int = 0
    plain_rounds_ms: float = 0.0
    """This answer's own plain rounds: the better measure, once there are some."""
    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    def plain_tokens_per_s(self, produced: int) -> float | None:
        """Speed of plain decoding in this answer's own minute, if it decoded enough plainly; else
        by the table, which an earlier minute may have filled."""
        if self.plain_rounds >= OWN_PLAIN_ROUNDS:
            return 1e3 * self.plain_rounds / self.plain_rounds_ms
        return 1e3 * produced / self.plain_ms if self.plain_ms else None


@dataclass(slots=True, kw_only=True)
class Answer:
    """A request that holds a cache row until `close`."""

    session: Session
    row: Row
    cached_tokens: int
    drafters: Mapping[Route, Drafter]
    lengths: DraftLength
    stream: StreamText
    _totals: _Totals = field(default_factory=_Totals)
    _text: list[str] = field(default_factory=list)
    _unsaid: list[TokenKind] = field(default_factory=list)
    """Kinds of tokens whose text is still held back."""
    _prefilled: bool = False
    _closed: bool = False

    @property
    def done(self) -> bool:
        """Whether the last event was returned."""
        return self._closed

    def started(self) -> Started:
        """The first event."""
        return Started(prompt_tokens=self.row.prompt_tokens, cached_tokens=self.cached_tokens)

    def step(self) -> Iterator[Event]:
        """Do one stretch of prefill or one round; yields what it brought about."""
        began = time.perf_counter()
        model, cache = self.session.loaded.model, self.session.slots.cache
        if not self._prefilled:
            self._prefilled = prefill_step(model, cache, self.row)
            self._totals.prefill_ms += (time.perf_counter() - began) * 1e3
            return
        if not cache.can_extend(self.row.cache_row, 1):
            self.row.finished = "context"
        else:
            yield from self._round()
        self._totals.decode_ms += (time.perf_counter() - began) * 1e3
        if self.row.finished is not None:
            yield from self._finish(self.row.finished)

    def usage(self) -> Usage:
        """What the answer has taken so far."""
        totals, produced = self._totals, len(self.row.output)
        return Usage(
            prompt_tokens=self.row.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=produced,
            prefill_ms=totals.prefill_ms,
            decode_ms=totals.decode_ms,
            rounds=totals.rounds,
            drafted=totals.drafted,
            tested=totals.tested,
            accepted=totals.accepted,
            plain_tokens_per_s=totals.plain_tokens_per_s(produced),
        )

    def close(self) -> None:
        """Give the cache row back; what it holds stays usable for the next request."""
        if not self._closed:
            self._closed = True
            self.session.slots.give_back(self.row.cache_row, self.row.tokens[:-1])

    def _round(self) -> Iterator[Event]:
        row, session = self.row, self.session
        context = len(row.tokens)
        longest = longest_draft(session.slots.cache, row)
        found = offers(list(self.drafters.values()), row)
        choice = self.lengths.choose(found, context_tokens=context, longest=longest)
        unit_ms = session.costs.at(context).unit_ms
        done = run_round(session.loaded.model, session.slots.cache, row, self.drafters, choice)
        self._learn(done, found.get(choice.route, 0), context)
        self._count(done, unit_ms)
        yield from self._say(row.output[-done.emitted :], row.kinds[-done.emitted :])
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

    def _learn(self, done: Round, evidence: int, context: int) -> None:
        self.lengths.observe(done.route, evidence, tested=done.tested, accepted=done.accepted)
        if not done.drafted:
            self.session.costs.observe_plain(context, done.total_ms)
            return
        self.session.costs.observe_draft(
            context,
            k=done.drafted,
            draft_ms=done.draft_ms,
            rest_ms=done.total_ms - done.draft_ms,
            by_layers=self.drafters[done.route].reusable_layers > 0,
        )

    def _count(self, done: Round, unit_ms: float) -> None:
        totals = self._totals
        totals.rounds += 1
        totals.drafted += done.drafted
        totals.tested += done.tested
        totals.accepted += done.accepted
        totals.plain_ms += done.emitted * unit_ms
        if not done.drafted:
            totals.plain_rounds += 1
            totals.plain_rounds_ms += done.total_ms

    def _say(self, tokens: list[int], kinds: list[TokenKind]) -> Iterator[Event]:
        visible = [token for token in tokens if token not in self.row.stop_ids]
        self._unsaid += kinds
        text = self.stream.push(visible)
        if self.stream.stopped is not None:
            self.row.finished = "stop_string"
        if text:
            yield self._delta(text)

    def _delta(self, text: str) -> TextDelta:
        self._text.append(text)
        kinds, self._unsaid = tuple(self._unsaid), []
        return TextDelta(text=text, kinds=kinds)

    def _finish(self, reason: FinishReason) -> Iterator[Event]:
        rest = self.stream.flush()
        if rest:
            yield self._delta(rest)
        self.close()
        yield Finished(reason=reason, text="".join(self._text), usage=self.usage())
