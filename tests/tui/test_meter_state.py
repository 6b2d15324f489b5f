"""The meter's numbers must be the sums of the events seen, at any moment, and those `ask` tells."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.statistics import Statistics
from app.statistics import observe as observe_statistics
from engine.protocol import (
    Event,
    Failed,
    Finished,
    Paused,
    Queued,
    Resumed,
    RoundDone,
    Started,
    TextDelta,
)
from tests.fakes import answer_script, round_of
from tests.tui.meter_streams import engine_of, folded, played_rounds, speculating, streams
from tui.meter_state import (
    DECISIONS,
    ROUNDS,
    WINDOW,
    MeterState,
    begin,
    leave,
    new_conversation,
    observe,
    with_status,
)

COUNTED = (
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "rounds",
    "plain_rounds",
    "drafted",
    "tested",
    "accepted",
    "decode_ms",
    "tokens_per_s",
    "acceptance",
    "tokens_per_round",
)


def rounds_in(events: list[Event]) -> list[RoundDone]:
    return [event for event in events if isinstance(event, RoundDone)]


@given(stream=streams(), cut=st.integers(0, 99))
def test_the_numbers_are_the_sums_of_the_events_seen(stream: list[Event], cut: int) -> None:
    seen = stream[:cut]
    answer, done = folded(seen).answer, rounds_in(seen)
    assert answer.rounds == len(done)
    assert answer.plain_rounds == sum(one.drafted == 0 for one in done)
    for name in ("drafted", "tested", "accepted"):
        assert getattr(answer, name) == sum(getattr(one, name) for one in done)
    pauses = [event.paused_ms for event in seen if isinstance(event, Resumed)]
    assert answer.pauses == len(pauses)
    assert answer.paused_ms == pytest.approx(sum(pauses))
    emitted = answer.accepted + answer.rounds
    if seen and isinstance(seen[-1], Finished):
        assert answer.output_tokens == emitted == seen[-1].usage.output_tokens
    else:
        told = sum(len(event.kinds) for event in seen if isinstance(event, TextDelta))
        assert answer.output_tokens == told
        assert answer.decode_ms == pytest.approx(sum(one.round_ms for one in done))


@given(stream=streams(), cut=st.integers(0, 99))
def test_they_are_the_numbers_that_ask_tells(stream: list[Event], cut: int) -> None:
    seen = stream[:cut]
    state = folded(seen)
    told = reduce(observe_statistics, seen, Statistics())
    for name in COUNTED:
        assert getattr(state.answer, name) == getattr(told, name), name
    assert state.context_tokens == told.context_tokens
    assert state.times_plain == told.times_plain
    assert state.finish == told.finish


@given(rounds=st.lists(played_rounds(), max_size=40))
def test_the_window_is_the_last_tested_tokens_one_by_one(rounds: list[RoundDone]) -> None:
    state = folded([Started(prompt_tokens=1, cached_tokens=0), *rounds])
    verdicts = [at < one.accepted for one in rounds for at in range(one.tested)]
    assert list(state.window) == verdicts[-WINDOW:]
    last = verdicts[-WINDOW:]
    assert state.acceptance == (sum(last) / len(last) if last else None)


@given(rounds=st.lists(played_rounds(), max_size=40))
def test_positions_add_up_and_never_grow_with_depth(rounds: list[RoundDone]) -> None:
    state = folded(list(rounds))
    places = state.positions
    assert sum(place.tested for place in places) == state.answer.tested
    assert sum(place.accepted for place in places) == state.answer.accepted
    assert all(place.accepted <= place.tested for place in places)
    # A place is tested when the draft went on and the place before was accepted.
    assert all(b.tested <= a.accepted for a, b in pairwise(places))


@given(rounds=st.lists(played_rounds(), max_size=60))
def test_the_last_decisions_cover_the_last_rounds_without_a_gap(rounds: list[RoundDone]) -> None:
    state = folded(list(rounds))
    assert len(state.decisions) <= DECISIONS
    assert state.rounds == tuple(rounds[-ROUNDS:])
    for decision in state.decisions:
        for one in rounds[decision.first - 1 : decision.last]:
            assert (one.route, one.k, one.reason) == (decision.route, decision.k, decision.reason)
    numbers = [n for one in state.decisions for n in range(one.first, one.last + 1)]
    assert numbers == list(range(len(rounds) - len(numbers) + 1, len(rounds) + 1))
    neighbours = pairwise(state.decisions)
    assert all((a.route, a.k, a.reason) != (b.route, b.k, b.reason) for a, b in neighbours)


@settings(max_examples=50)
@given(answers=st.lists(streams(), max_size=4))
def test_the_session_is_the_sum_of_its_answers(answers: list[list[Event]]) -> None:
    state = MeterState()
    alone = []
    for stream in answers:
        state = folded(stream, begin(state))
        alone.append(folded(stream).answer)
    assert state.answers == len(answers)
    for name in ("output_tokens", "rounds", "tested", "accepted", "pauses", "decode_ms"):
        together = sum(getattr(one, name) for one in alone)
        assert getattr(state.session, name) == pytest.approx(together)


def test_the_end_marker_counts_as_a_token_although_it_has_no_text() -> None:
    script = answer_script("a b", [round_of(drafted=2, accepted=2, ms=30.0)])
    state = folded(script[:-1])
    assert (state.answer.output_tokens, state.answer.accepted + state.answer.rounds) == (2, 3)
    last = script[-1]
    assert isinstance(last, Finished)
    state = observe(state, replace(last, usage=replace(last.usage, output_tokens=3)))
    assert state.answer.output_tokens == 3
    assert state.answer.tokens_per_s == pytest.approx(100.0)


def test_plain_speed_comes_from_the_status_until_the_answer_tells_its_own() -> None:
    script = answer_script("a b c", [round_of(drafted=2, accepted=2, ms=30.0)])
    state = folded(script[:-1], begin(engine_of(plain_tokens_per_s=20.0)))
    assert state.plain_tokens_per_s == 20.0
    assert state.times_plain == pytest.approx(100.0 / 20.0)
    state = observe(state, script[-1])
    assert state.plain_tokens_per_s == 50.0
    assert state.times_plain == pytest.approx(2.0)


def test_what_was_not_measured_is_unknown_and_not_nought() -> None:
    state = folded([Started(prompt_tokens=3, cached_tokens=0)])
    assert state.answer.tokens_per_s is None
    assert state.times_plain is None
    assert state.acceptance is None
    assert state.recent_tokens_per_s is None
    state = folded(answer_script("a", plain_tokens_per_s=None), begin(engine_of()))
    assert state.times_plain is None


def test_the_session_compares_only_answers_whose_plain_speed_is_known() -> None:
    fast = [round_of(drafted=3, accepted=3, ms=20.0)]
    state = folded(answer_script("a b c d", fast), begin(MeterState()))
    state = folded(answer_script("a b c d", fast, plain_tokens_per_s=None), begin(state))
    assert state.session.output_tokens == 8
    # 4 tokens took 20 ms and would have taken 80 ms at 50 tok/s; the other answer says nothing.
    assert state.session_times_plain == pytest.approx(4.0)


def test_the_speed_of_the_moment_forgets_old_rounds() -> None:
    slow = [round_of(drafted=0, accepted=0, ms=100.0)] * 40
    fast = [round_of(drafted=3, accepted=3, ms=40.0)] * 16
    assert folded([*slow, *fast]).recent_tokens_per_s == pytest.approx(100.0)


def test_a_pause_is_kept_until_the_next_one() -> None:
    state = folded([Started(prompt_tokens=3, cached_tokens=0), Paused(by="editor")])
    assert state.phase == "paused"
    assert state.pause is not None
    assert (state.pause.by, state.pause.ms) == ("editor", None)
    state = observe(state, Resumed(paused_ms=180.0))
    assert state.phase == "reading"
    assert state.pause is not None
    assert (state.pause.by, state.pause.ms) == ("editor", 180.0)
    state = observe(state, round_of(drafted=0, accepted=0))
    assert state.phase == "decoding"
    assert state.answer.paused_ms == 180.0


def test_a_new_answer_starts_from_nought_and_keeps_the_context() -> None:
    state = begin(speculating())
    assert state.phase == "waiting"
    assert state.answers == 2
    assert state.answer.output_tokens == 0
    assert (state.window, state.rounds, state.positions, state.decisions) == ((), (), (), ())
    assert state.context_tokens == speculating().context_tokens
    assert state.session == speculating().session


def test_a_new_conversation_empties_the_context_and_keeps_the_session() -> None:
    state = new_conversation(speculating())
    assert (state.phase, state.context_tokens, state.answers) == ("idle", 0, 1)
    assert state.session == speculating().session
    assert not state.running


def test_leaving_a_stream_ends_it_once() -> None:
    left = leave(speculating())
    assert (left.phase, left.finish, left.running) == ("over", "cancelled", False)
    assert left.answer == speculating().answer
    ended = folded(answer_script("a"))
    assert leave(ended) is ended
    failed = folded([Failed(code="x", message="m", hint="h")])
    assert leave(failed) is failed


def test_a_status_changes_no_count() -> None:
    before = speculating()
    after = with_status(before, engine_of(memory_bytes=1).status)  # type: ignore[arg-type]
    assert after.status != before.status
    assert (after.answer, after.window, after.phase) == (before.answer, before.window, before.phase)


def test_the_queue_is_told_until_the_start() -> None:
    state = folded([Queued(ahead=2), Queued(ahead=1)])
    assert (state.phase, state.ahead) == ("queued", 1)
    state = observe(state, Started(prompt_tokens=3, cached_tokens=1, evicted_tokens=9, notice="n"))
    assert (state.phase, state.ahead, state.evicted_tokens, state.notice) == ("reading", 0, 9, "n")
