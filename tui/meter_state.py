"""What the meter knows: a pure fold of an answer's events and of the engine's status.

Counts are sums over the events that were seen, so they reconcile with the stream at any moment, and
they are the ones that `ask` tells (app/statistics.py). Times come from the events: there is no
clock here, no widget and no engine. What was not measured is None, never 0.

Invariant: after every event `len(window) == min(tested, WINDOW)`, and the tested and accepted
tokens of `positions` add up to those of `answer`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    EngineStatus,
    Event,
    Failed,
    Finished,
    FinishReason,
    Paused,
    Queued,
    Resumed,
    RoundDone,
    Started,
    Steering,
    TextDelta,
    Usage,
)
from tui.meter_counts import Decision, Pause, Position, Totals

WINDOW = 64
"""Tested tokens that the shown α is over."""
ROUNDS = 32
"""Rounds whose route, k and time are kept."""
RECENT_ROUNDS = 16
"""Rounds that the speed of the moment is over."""
DECISIONS = 12
"""Decisions of the arbiter that are kept."""

Phase = Literal["idle", "waiting", "queued", "reading", "decoding", "paused", "over", "failed"]
"""`reading` is the prompt's prefill; `over` is an answer that ended or was left."""


class MeterState(Struct, frozen=True, kw_only=True):
    """Everything the meter and the details panel show."""

    status: EngineStatus | None = None
    steering: Steering = Steering()
    """What the user has pinned."""
    phase: Phase = "idle"
    answers: int = 0
    """Answers begun in this session, the present one included."""
    answer: Totals = Totals()
    earlier: Totals = Totals()
    """Sums over the answers before the present one."""
    earlier_plain_ms: float = 0.0
    """What plain decoding would have taken for those of them whose plain speed was measured, and
    what they did take."""
    earlier_compared_ms: float = 0.0
    window: tuple[bool, ...] = ()
    """Whether each of the last `WINDOW` tested tokens was accepted, oldest first."""
    positions: tuple[Position, ...] = ()
    rounds: tuple[RoundDone, ...] = ()
    """The last `ROUNDS` rounds of this answer, oldest first."""
    decisions: tuple[Decision, ...] = ()
    """The last `DECISIONS` of this answer, oldest first; equal neighbours are one."""
    context_tokens: int = 0
    ahead: int = 0
    evicted_tokens: int = 0
    notice: str = ""
    pause: Pause | None = None
    finish: FinishReason | None = None
    failure: Failed | None = None
    usage: Usage | None = None
    """What `Finished` said; while an answer is made, the engine's status tells the plain speed."""

    @property
    def running(self) -> bool:
        """Whether an answer is wanted that has not ended."""
        return self.phase not in ("idle", "over", "failed")

    @property
    def plain_tokens_per_s(self) -> float | None:
        """This machine's measured speed of plain decoding; None if it was not measured."""
        if self.usage is not None:
            return self.usage.plain_tokens_per_s
        return self.status.plain_tokens_per_s if self.status is not None else None

    @property
    def times_plain(self) -> float | None:
        """The answer's speed as a multiple of plain decoding; None where either is unknown."""
        return _ratio(self.answer.tokens_per_s, self.plain_tokens_per_s)

    @property
    def recent_tokens_per_s(self) -> float | None:
        """Speed over the last `RECENT_ROUNDS` rounds, each of accepted + 1 tokens."""
        recent = self.rounds[-RECENT_ROUNDS:]
        took_ms = sum(one.round_ms for one in recent)
        return sum(one.accepted + 1 for one in recent) / took_ms * 1e3 if took_ms > 0 else None

    @property
    def acceptance(self) -> float | None:
        """α over the last `WINDOW` tested tokens; None when none was tested."""
        return sum(self.window) / len(self.window) if self.window else None

    @property
    def session(self) -> Totals:
        """Sums over all answers of the session, the present one included."""
        return self.earlier.plus(self.answer)

    @property
    def session_times_plain(self) -> float | None:
        """The same for the session, over the answers whose plain speed was measured."""
        plain_ms, compared_ms = _compared(self)
        return _ratio(plain_ms or None, compared_ms)


def begin(state: MeterState) -> MeterState:
    """A new answer is asked for: the present one goes into the session's sums."""
    plain_ms, compared_ms = _compared(state)
    return MeterState(
        status=state.status,
        steering=state.steering,
        phase="waiting",
        answers=state.answers + 1,
        earlier=state.session,
        earlier_plain_ms=plain_ms,
        earlier_compared_ms=compared_ms,
        context_tokens=state.context_tokens,
    )


def leave(state: MeterState) -> MeterState:
    """The stream was left before its last event, so that none will come."""
    return replace(state, phase="over", finish="cancelled") if state.running else state


def new_conversation(state: MeterState) -> MeterState:
    """Nothing is in the context any more; the session's sums stay."""
    return replace(begin(state), phase="idle", answers=state.answers, context_tokens=0)


def with_status(state: MeterState, status: EngineStatus) -> MeterState:
    """`state` with what the engine says of itself."""
    return replace(state, status=status)


def with_steering(state: MeterState, steering: Steering) -> MeterState:
    """`state` with what is pinned from now on."""
    return replace(state, steering=steering)


def observe(state: MeterState, event: Event) -> MeterState:
    """`state` with one more event of the present answer in it."""
    match event:
        case Queued():
            return replace(state, phase="queued", ahead=event.ahead)
        case Started():
            return _observe_start(state, event)
        case Paused():
            pause = Pause(by=event.by, after_rounds=state.answer.rounds)
            return replace(state, phase="paused", pause=pause)
        case Resumed():
            return _observe_end_of_pause(state, event)
        case TextDelta():
            tokens = state.answer.output_tokens + len(event.kinds)
            return replace(state, answer=replace(state.answer, output_tokens=tokens))
        case RoundDone():
            return _observe_round(state, event)
        case Finished():
            return _observe_end(state, event)
        case Failed():
            return replace(state, phase="failed", failure=event)


def _observe_start(state: MeterState, event: Started) -> MeterState:
    answer = replace(
        state.answer, prompt_tokens=event.prompt_tokens, cached_tokens=event.cached_tokens
    )
    return replace(
        state,
        phase="reading",
        answer=answer,
        ahead=0,
        context_tokens=event.prompt_tokens,
        evicted_tokens=event.evicted_tokens,
        notice=event.notice,
    )


def _observe_end_of_pause(state: MeterState, event: Resumed) -> MeterState:
    answer = replace(
        state.answer,
        pauses=state.answer.pauses + 1,
        paused_ms=state.answer.paused_ms + event.paused_ms,
    )
    return replace(
        state,
        phase="decoding" if answer.rounds else "reading",
        answer=answer,
        pause=replace(state.pause, ms=event.paused_ms) if state.pause else None,
    )


def _observe_round(state: MeterState, event: RoundDone) -> MeterState:
    before = state.answer
    answer = replace(
        before,
        rounds=before.rounds + 1,
        plain_rounds=before.plain_rounds + (not event.drafted),
        drafted=before.drafted + event.drafted,
        tested=before.tested + event.tested,
        accepted=before.accepted + event.accepted,
        decode_ms=before.decode_ms + event.round_ms,
    )
    verdicts = (at < event.accepted for at in range(event.tested))
    return replace(
        state,
        phase="decoding",
        answer=answer,
        window=(*state.window, *verdicts)[-WINDOW:],
        positions=_with_draft(state.positions, event),
        rounds=(*state.rounds, event)[-ROUNDS:],
        decisions=_with_decision(state.decisions, event, answer.rounds),
        context_tokens=event.context_tokens,
    )


def _observe_end(state: MeterState, event: Finished) -> MeterState:
    answer = replace(
        state.answer,
        # The end marker is a token that was decoded and has no text.
        output_tokens=event.usage.output_tokens,
        prefill_ms=event.usage.prefill_ms,
        decode_ms=event.usage.decode_ms,
    )
    return replace(
        state,
        phase="over",
        answer=answer,
        finish=event.reason,
        usage=event.usage,
    )


def _with_draft(positions: tuple[Position, ...], event: RoundDone) -> tuple[Position, ...]:
    missing = max(0, event.tested - len(positions))
    return tuple(
        Position(
            tested=one.tested + (at < event.tested), accepted=one.accepted + (at < event.accepted)
        )
        for at, one in enumerate((*positions, *(Position() for _ in range(missing))))
    )


def _with_decision(
    decisions: tuple[Decision, ...], event: RoundDone, number: int
) -> tuple[Decision, ...]:
    new = Decision(route=event.route, k=event.k, reason=event.reason, first=number, last=number)
    if decisions:
        latest = decisions[-1]
        if replace(latest, first=number, last=number) == new:
            return (*decisions[:-1], replace(latest, last=number))
    return (*decisions, new)[-DECISIONS:]


def _compared(state: MeterState) -> tuple[float, float]:
    """Milliseconds of plain decoding that the session's answers are compared with, and their own;
    only of answers whose plain speed was measured."""
    plain_ms, compared_ms = state.earlier_plain_ms, state.earlier_compared_ms
    plain, answer = state.plain_tokens_per_s, state.answer
    if plain and answer.tokens_per_s is not None:
        plain_ms += answer.output_tokens / plain * 1e3
        compared_ms += answer.decode_ms
    return plain_ms, compared_ms


def _ratio(speed: float | None, of: float | None) -> float | None:
    return speed / of if speed is not None and of else None
