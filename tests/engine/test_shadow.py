"""Guesses that were not drafted, judged by the text that came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import SamplingParams
from engine.shadow import Shadow, Shadows

from .tiny_session import ask, tiny_session

ids = st.lists(st.integers(0, 2), max_size=12)


def judged(shadows: Shadows, tokens: list[int]) -> list[tuple[int, bool]]:
    return [(test.position, test.kept) for test in shadows.tests(tokens)]


def guess(tokens: list[int], start: int) -> Shadow:
    return Shadow(route="copy", evidence=3, tokens=tokens, start=start)


def test_a_guess_is_judged_as_far_as_the_text_has_come() -> None:
    shadows = Shadows()
    shadows.add(guess([7, 8, 9], 2))
    assert judged(shadows, [1, 1]) == []
    assert judged(shadows, [1, 1, 7]) == [(0, True)]
    assert judged(shadows, [1, 1, 7, 8]) == [(1, True)]
    assert judged(shadows, [1, 1, 7, 8, 5, 5]) == [(2, False)]
    assert judged(shadows, [1, 1, 7, 8, 5, 5, 5]) == []


def test_what_follows_a_wrong_token_is_not_judged() -> None:
    shadows = Shadows()
    shadows.add(guess([7, 8, 9], 0))
    assert judged(shadows, [6, 8, 9]) == [(0, False)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(text=ids, guesses=st.lists(st.tuples(ids, st.integers(0, 12)), max_size=5), data=st.data())
def test_however_the_text_comes_every_guess_is_judged_once(
    text: list[int], guesses: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    """Against the definition: all kept tokens and the first wrong one, wherever rounds end."""
    shadows = Shadows()
    wanted = []
    for tokens, start in guesses:
        shadows.add(guess(tokens, start))
        for position, token in enumerate(tokens):
            if start + position >= len(text):
                break
            kept = token == text[start + position]
            wanted.append((position, kept))
            if not kept:
                break
    found, at = [], 0
    while at < len(text):
        at += data.draw(st.integers(1, 4))
        found += judged(shadows, text[:at])
    assert sorted(found) == sorted(wanted)


def test_a_text_decoded_without_copying_teaches_copying() -> None:
    """Where a pass of several rows is dear nothing is copied, and still the record is known."""
    session = tiny_session()
    session.costs.buckets[0].passes[1:] = [99.0] * 32
    session.costs.buckets[0].rests.clear()
    repeats = SamplingParams(max_tokens=60, repetition_penalty=0.5)
    answer = session.start(ask("a b a b a b a b", sampling=repeats))
    while not answer.done:
        list(answer.step())
    assert answer.usage().drafted == 0
    tried = [record for (route, _), record in session._records.items() if route == "copy"]
    assert any(record.tried for record in tried)
    assert max(record.rate(0) for record in tried) > 0.5
