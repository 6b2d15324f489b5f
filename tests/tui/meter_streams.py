"""Streams of events for the meter's tests: any legal one, and the few that its pictures show."""

from __future__ import annotations

from functools import reduce

from hypothesis import strategies as st
from msgspec.structs import replace

from engine.protocol import (
    EngineStatus,
    Event,
    Failed,
    Finished,
    Held,
    Paused,
    Queued,
    Resumed,
    RoundDone,
    Route,
    Started,
    TextDelta,
    Usage,
)
from tests.fakes import STATUS, round_of
from tui.meter_state import MeterState, begin, observe, with_status

STATUS_READY = replace(
    STATUS,
    model="qwen2.5-coder-1.5b-instruct",
    fallback_tokens=9000,
    plain_tokens_per_s=33.0,
    memory_bytes=1_320_000_000,
    weight_bytes=943_718_400,
    cache_bytes=199_229_440,
    held=(Held(conversation="a", tokens=3000), Held(conversation="b", tokens=812)),
)


@st.composite
def played_rounds(draw: st.DrawFn) -> RoundDone:
    """One round, plain or of either route; its parts take no longer than the whole."""
    drafted = draw(st.integers(0, 10))
    done = round_of(
        drafted=drafted,
        accepted=draw(st.integers(0, drafted)),
        context=draw(st.integers(1, 20_000)),
        ms=draw(st.floats(0.01, 500)),
        reason=draw(st.sampled_from(["", "nothing to copy", "copy: α 0.81, k 4", "probe"])),
    )
    route: Route = draw(st.sampled_from(["copy", "layer_skip"])) if drafted else "plain"
    return replace(done, route=route, k=drafted + draw(st.integers(0, 2)) if drafted else 0)


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """A whole stream as an engine may send it: queued, paused, with text held back, its last round
    ended by a drafted stop token or not, and ended in any way."""
    events: list[Event] = [Queued(ahead=n) for n in range(draw(st.integers(0, 2)), 0, -1)]
    if draw(st.integers(0, 19)) == 0:
        return [*events, Failed(code="refused", message="too long", hint="Shorten it.")]
    cached = draw(st.integers(0, 50))
    events.append(Started(prompt_tokens=cached + draw(st.integers(1, 50)), cached_tokens=cached))
    rounds = draw(st.lists(played_rounds(), max_size=30))
    if rounds and rounds[-1].accepted and draw(st.booleans()):
        kept = draw(st.integers(0, rounds[-1].accepted - 1))
        rounds[-1] = replace(rounds[-1], tested=kept, accepted=kept)
    untold = 0
    for done in rounds:
        if draw(st.integers(0, 4)) == 0:
            events += [Paused(by="editor"), Resumed(paused_ms=draw(st.floats(0, 900)))]
        untold += done.accepted + 1
        if draw(st.booleans()):
            told = min(untold, draw(st.integers(0, untold)))
            events += [_delta(told)] if told else []
            untold -= told
        events.append(done)
    if draw(st.integers(0, 9)) == 0:
        return [*events, Failed(code="broken", message="the engine broke", hint="Try again.")]
    return [*events, _end(events, rounds, draw(st.one_of(st.none(), st.floats(1, 99))))]


def _delta(tokens: int) -> TextDelta:
    return TextDelta(text="ab " * tokens, kinds=("accepted",) * tokens, spans=(3,) * tokens)


def _end(events: list[Event], rounds: list[RoundDone], plain: float | None) -> Finished:
    started = next(event for event in events if isinstance(event, Started))
    usage = Usage(
        prompt_tokens=started.prompt_tokens,
        cached_tokens=started.cached_tokens,
        output_tokens=sum(done.accepted + 1 for done in rounds),
        prefill_ms=900.0,
        decode_ms=sum(done.round_ms for done in rounds) * 1.01,
        rounds=len(rounds),
        drafted=sum(done.drafted for done in rounds),
        tested=sum(done.tested for done in rounds),
        accepted=sum(done.accepted for done in rounds),
        plain_tokens_per_s=plain,
    )
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return Finished(reason="stop", text=text, usage=usage)


def folded(events: list[Event], state: MeterState | None = None) -> MeterState:
    """The state after `events`, of a new answer unless one is given."""
    return reduce(observe, events, begin(MeterState()) if state is None else state)


def engine_of(**changes: object) -> MeterState:
    """Nothing asked yet, of an engine that says `changes` of itself."""
    status: EngineStatus = replace(STATUS_READY, **changes)
    return with_status(MeterState(), status)


SHAPES: tuple[tuple[Route, int, int], ...] = (
    ("copy", 4, 4),
    ("copy", 8, 7),
    ("plain", 0, 0),
    ("layer_skip", 3, 1),
    ("layer_skip", 3, 3),
    ("copy", 6, 2),
    ("copy", 4, 4),
    ("plain", 0, 0),
    ("copy", 8, 8),
    ("layer_skip", 2, 0),
)
"""Route, drafted and accepted of the rounds in the pictures."""


def speculating(rounds: int = 57) -> MeterState:
    """In the middle of an answer that drafts pay for."""
    return folded(speculating_events(rounds), begin(engine_of()))


def speculating_events(rounds: int) -> list[Event]:
    """The beginning of such an answer."""
    events: list[Event] = [Started(prompt_tokens=3000, cached_tokens=2200)]
    for number in range(rounds):
        route, drafted, accepted = SHAPES[number % len(SHAPES)]
        events += [_delta(accepted + 1), shape_round(route, drafted, accepted, 3000 + 5 * number)]
    return events


def shape_round(route: Route, drafted: int, accepted: int, context: int) -> RoundDone:
    """A round that takes the longer the more it drafts."""
    alpha = {"copy": "copy: α 0.81", "layer_skip": "layer_skip: α 0.62"}.get(route)
    done = round_of(
        drafted=drafted,
        accepted=accepted,
        context=context,
        ms=30.0 + 3 * drafted,
        reason=f"{alpha}, k {drafted}" if alpha else "nothing to copy",
    )
    draft_ms = {"copy": 0.2, "layer_skip": 8.6}.get(route, 0.0) * min(drafted, 1)
    verify_ms = done.round_ms - draft_ms - 1.9
    return replace(done, route=route, draft_ms=draft_ms, verify_ms=verify_ms)


def plain_with_reason() -> MeterState:
    """Drafting was given up for a reason."""
    reason = "context 6.2k, copy drafts would cost 8 %"
    plain = round_of(drafted=0, accepted=0, context=6212, ms=30.0, reason=reason)
    return folded([_delta(1), plain] * 9, speculating())
