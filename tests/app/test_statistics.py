"""The fold must reconcile with the events, whole or interrupted, and the line must say why."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.statistics import LAST_TOKEN, Statistics, observe, summary
from engine import draft_length
from engine.protocol import Finished, Paused, Resumed, RoundDone, TextDelta
from tests.fakes import answer_script, round_of

ROUNDS = st.lists(
    st.integers(0, 8).flatmap(
        lambda k: st.builds(
            round_of,
            drafted=st.just(k),
            accepted=st.integers(0, k),
            context=st.integers(1, 9999),
            ms=st.floats(1, 500),
        )
    ),
    max_size=12,
)


@given(rounds=ROUNDS, words=st.integers(1, 40), cut=st.integers(0, 60))
def test_counts_are_the_sums_of_the_events_seen(
    rounds: list[RoundDone], words: int, cut: int
) -> None:
    seen = answer_script(" ".join("w" * words), rounds)[:cut]
    folded = reduce(observe, seen, Statistics())
    done = [event for event in seen if isinstance(event, RoundDone)]
    assert folded.rounds == len(done)
    assert folded.drafted == sum(event.drafted for event in done)
    assert folded.tested == sum(event.tested for event in done)
    assert folded.accepted == sum(event.accepted for event in done)
    assert folded.plain_rounds == sum(event.drafted == 0 for event in done)
    assert folded.output_tokens == sum(len(e.kinds) for e in seen if isinstance(e, TextDelta))
    assert folded.decode_ms == pytest.approx(sum(event.round_ms for event in done))
    drafted = [event.drafted for event in done if event.drafted]
    assert (folded.k_low, folded.k_high) == (min(drafted, default=None), max(drafted, default=None))
    if seen and isinstance(seen[-1], Finished):
        usage = seen[-1].usage
        assert folded.output_tokens == usage.output_tokens
        assert (folded.rounds, folded.tested) == (usage.rounds, usage.tested)


def test_the_line_of_a_speculating_answer() -> None:
    rounds = [
        round_of(drafted=2, accepted=2, ms=30.0),
        round_of(drafted=4, accepted=1, context=1234, ms=30.0),
    ]
    seen = reduce(observe, answer_script("a b c d e", rounds), Statistics())
    line = summary(seen, 16384)
    assert line == (
        "5 tokens · 83.3 tok/s · 1.67 × plain · α 0.75 (3/4 tested) · 2.50 tokens per round · "
        "k 2–4 · context 1,234/16,384"
    )


def test_plain_decoding_says_why() -> None:
    seen = reduce(observe, answer_script("a b", plain_tokens_per_s=None), Statistics())
    line = summary(seen, 4096)
    assert "× plain not measured" in line
    assert "nothing drafted" in line
    assert line.endswith("speculation off: nothing to copy")


def test_a_partly_plain_answer_says_how_far() -> None:
    rounds = [round_of(drafted=3, accepted=1)]
    seen = reduce(observe, answer_script("a b c d", rounds), Statistics())
    assert "speculation off in 2 of 3 rounds: nothing to copy" in summary(seen, 4096)


def test_the_last_token_does_not_explain_the_rounds_before_it() -> None:
    assert LAST_TOKEN == draft_length.LAST_TOKEN
    cost = round_of(drafted=0, accepted=0, reason="context 32, copy drafts would cost 8 %")
    last = round_of(drafted=0, accepted=0, reason=LAST_TOKEN)
    seen = reduce(observe, [cost, cost, last], Statistics())
    assert "speculation off: context 32, copy drafts would cost 8 %" in summary(seen, 4096)
    assert "speculation off: the last token" in summary(observe(Statistics(), last), 4096)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("length", "cut at --max-tokens"),
        ("context", "cut because the context is full"),
        ("cancelled", "stopped before its end"),
    ],
)
def test_an_answer_cut_short_says_so(reason: str, said: str) -> None:
    seen = reduce(observe, answer_script("a", reason=reason), Statistics())
    assert summary(seen, 4096).endswith(said)


def test_nothing_seen_is_told_without_numbers() -> None:
    assert summary(Statistics(), 4096).startswith("0 tokens · speed not measured")


def test_the_end_marker_counts_as_a_decoded_token() -> None:
    *before, last = answer_script("a b", [round_of(drafted=1, accepted=1, ms=30.0)])
    assert isinstance(last, Finished)
    usage = replace(last.usage, output_tokens=last.usage.output_tokens + 1)
    seen = reduce(observe, [*before, replace(last, usage=usage)], Statistics())
    assert seen.output_tokens == 3
    assert seen.tokens_per_s == pytest.approx(100.0)


def test_a_pause_counts_nothing() -> None:
    before = Statistics(output_tokens=3)
    assert observe(observe(before, Paused(by="fill")), Resumed(paused_ms=9.0)) == before
