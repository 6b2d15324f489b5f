"""What every engine's stream of events obeys; no torch, any engine can be held to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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
    Usage,
)


def check_stream(stream: Sequence[Event]) -> Finished | Failed:
    """Assert the order and the sums of a whole stream; returns its last event."""
    events = _after_the_queue(stream)
    *before, last = events
    assert isinstance(last, Finished | Failed), "the last event ends the stream"
    assert not any(isinstance(event, Finished | Failed) for event in before)
    starts = [at for at, event in enumerate(events) if isinstance(event, Started)]
    _check_spans([event for event in before if isinstance(event, TextDelta)])
    if isinstance(last, Failed):
        assert starts in ([], [0])
        assert last.code
        assert last.message
        return last
    assert starts == [0], "Started comes first and once"
    _check_pauses(before)
    started = before[0]
    assert isinstance(started, Started)
    assert 0 <= started.cached_tokens < started.prompt_tokens == last.usage.prompt_tokens
    assert started.cached_tokens == last.usage.cached_tokens
    deltas = [event for event in before if isinstance(event, TextDelta)]
    assert all(delta.text for delta in deltas), "an empty text is no event"
    assert "".join(delta.text for delta in deltas) == last.text
    _check_rounds([event for event in before if isinstance(event, RoundDone)], last.usage)
    _check_kinds([kind for delta in deltas for kind in delta.kinds], last.usage)
    return last


def _after_the_queue(events: Sequence[Event]) -> Sequence[Event]:
    """What follows the `Queued` events, each of which tells of another number than the last."""
    ahead = [event.ahead for event in events if isinstance(event, Queued)]
    assert all(isinstance(event, Queued) for event in events[: len(ahead)])
    assert all(count > 0 for count in ahead), "one whose turn it is does not wait"
    assert all(one != next_ for one, next_ in pairwise(ahead))
    return events[len(ahead) :]


def _check_spans(deltas: Sequence[TextDelta]) -> None:
    for delta in deltas:
        assert len(delta.spans) == len(delta.kinds)
        assert min(delta.spans, default=0) >= 0
        assert sum(delta.spans) <= len(delta.text)


def _check_pauses(events: Sequence[Event]) -> None:
    paused = False
    for event in events:
        if isinstance(event, Paused | Resumed):
            assert isinstance(event, Paused) != paused, "a pause has one beginning and one end"
            paused = not paused
        elif isinstance(event, TextDelta | RoundDone):
            assert not paused, "nothing is decoded during a pause"
    assert not paused


def _check_rounds(rounds: Sequence[RoundDone], usage: Usage) -> None:
    for number, one in enumerate(rounds, 1):
        assert 0 <= one.accepted <= one.tested <= one.drafted <= one.k
        # Only the last round can end at a stop token that was drafted.
        ended = number == len(rounds) and one.tested == one.accepted
        assert one.tested == min(one.accepted + 1, one.drafted) or ended
        assert (one.mode == "speculating") == (one.drafted > 0)
        assert (one.route == "plain") == (one.drafted == 0)
        assert min(one.draft_ms, one.verify_ms, one.round_ms) >= 0
    assert usage.rounds == len(rounds)
    for name in ("drafted", "tested", "accepted"):
        assert getattr(usage, name) == sum(getattr(one, name) for one in rounds)
    assert usage.output_tokens == sum(one.accepted + 1 for one in rounds)


def _check_kinds(kinds: Sequence[str], usage: Usage) -> None:
    """A token has one kind; those whose text never came (a stop token, a cut one) go untold."""
    assert len(kinds) <= usage.output_tokens
    assert kinds.count("accepted") <= usage.accepted
