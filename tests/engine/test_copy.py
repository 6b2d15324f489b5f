"""The suffix automaton against a search through the whole text, and what is copied from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.draft.copy import EVIDENCE_FROM, CopyDrafter, SuffixAutomaton, evidence_class

from .test_cache import small_cache
from .tiny import new_row

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)


def texts(alphabet: int, size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, alphabet - 1), min_size=1, max_size=size)


def longest_earlier(text: Sequence[int]) -> int:
    """Length of the longest suffix that also ends before the last token."""
    size = len(text)
    return max(
        m
        for m in range(size)
        if any(text[end - m : end] == text[size - m :] for end in range(m, size))
    )


def drafted(text: list[int], k: int) -> list[int]:
    drafter, row = CopyDrafter(torch.device("cpu")), new_row(text)
    if drafter.evidence(row) is None:
        return []
    draft = drafter.propose(row, k, small_cache())
    assert draft.probs is None
    assert draft.hidden is None
    return draft.tokens.tolist()


@pytest.mark.parametrize(("alphabet", "size"), [(1, 20), (2, 60), (3, 60), (6, 60)])
@MODERATE
@given(data=st.data())
def test_every_prefix_gets_its_longest_match(alphabet: int, size: int, data: st.DataObject) -> None:
    text = data.draw(texts(alphabet, size))
    automaton = SuffixAutomaton()
    for length in range(1, len(text) + 1):
        automaton.append(text[length - 1])
        assert len(automaton) == length
        seen = text[:length]
        match, end = automaton.match_length, automaton.match_end + 1
        assert match == longest_earlier(seen)
        if match:
            assert end < length, "the match must have a continuation"
            assert seen[end - match : end] == seen[length - match :]


def test_every_short_text_over_two_letters() -> None:
    for size in range(1, 10):
        for text in itertools.product((0, 1), repeat=size):
            automaton = SuffixAutomaton()
            for token in text:
                automaton.append(token)
            assert automaton.match_length == longest_earlier(text)


@MODERATE
@given(text=texts(3, 40), k=st.integers(1, 12))
def test_a_draft_continues_an_earlier_occurrence(text: list[int], k: int) -> None:
    match = longest_earlier(text)
    copied = drafted(text, k)
    if match < 2:
        assert copied == []
        return
    assert len(copied) == k
    suffix = text[len(text) - match :]
    whole = text + copied
    ends = [end for end in range(match, len(text)) if text[end - match : end] == suffix]
    # Token for token what stands after one of the occurrences, the copy itself included.
    assert any(whole[end : end + k] == copied for end in ends)


@pytest.mark.parametrize("period", [1, 2, 3, 7])
def test_a_period_goes_on(period: int) -> None:
    unit = list(range(10, 10 + period))
    text = unit * 4
    assert drafted(text, 2 * period + 1) == (unit * 3)[: 2 * period + 1]


def test_the_example_of_the_module() -> None:
    assert drafted([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]


def test_what_was_said_most_recently_is_copied() -> None:
    assert drafted([1, 2, 3, 0, 1, 2, 4, 0, 0, 1, 2], 1) == [4]


def test_a_drafter_follows_its_row_as_it_grows() -> None:
    drafter, row = CopyDrafter(torch.device("cpu")), new_row([1, 2, 3])
    assert drafter.evidence(row) is None
    row.tokens += [1, 2]
    assert drafter.evidence(row) == 0
    assert drafter.propose(row, 2, small_cache()).tokens.tolist() == [3, 1]
    row.tokens += [3, 1]
    assert drafter.evidence(row) == evidence_class(4)
    assert drafter.propose(row, 1, small_cache()).tokens.tolist() == [2]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, None),
        (1, None),
        (2, 0),
        (3, 1),
        (4, 2),
        (5, 2),
        (6, 3),
        (9, 3),
        (10, 4),
        (19, 4),
        (20, 5),
        (5000, 5),
    ],
)
def test_the_classes_of_evidence(length: int, expected: int | None) -> None:
    assert evidence_class(length) == expected


def test_every_class_can_be_reached() -> None:
    reached = {evidence_class(length) for length in range(EVIDENCE_FROM[-1] + 1)} - {None}
    assert reached == set(range(len(EVIDENCE_FROM)))


class Counted(int):
    """A token that counts how often any table is asked about it."""

    asked = 0

    def __hash__(self) -> int:
        Counted.asked += 1
        return int(self)

    def __eq__(self, other: object) -> bool:
        return int(self) == other


def fibonacci(size: int) -> list[int]:
    """The text that makes a suffix automaton split most often."""
    first, second = [0], [0, 1]
    while len(second) < size:
        first, second = second, second + first
    return second[:size]


@pytest.mark.parametrize(
    "make",
    [
        fibonacci,
        lambda size: [0] * size,
        lambda size: [0] * (size - 1) + [1],
        lambda size: [i % 17 for i in range(size)],
        lambda size: [i * i * 7919 % 1009 % 5 for i in range(size)],
        lambda size: list(range(size)),
    ],
    ids=["fibonacci", "one letter", "surprise", "periodic", "mixed", "all different"],
)
def test_the_cost_grows_with_the_length_alone(make: Callable[[int], list[int]]) -> None:
    for size in (500, 1000, 2000):
        Counted.asked = 0
        automaton = SuffixAutomaton()
        for token in make(size):
            automaton.append(Counted(token))
        assert Counted.asked <= 9 * size
