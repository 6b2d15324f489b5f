"""The n-gram index against a search through the whole text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.draft.ngrams import LONGEST, TRIED, NgramIndex, common_suffix

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


def indexed(text: list[int]) -> NgramIndex:
    index = NgramIndex(text)
    index.catch_up()
    return index


@MODERATE
@given(text=st.one_of(texts(2, 40), texts(6, 60), texts(40, 60)))
def test_a_match_is_one_and_the_longest_of_the_newest(text: list[int]) -> None:
    found = indexed(text).own_suffix()
    longest = longest_earlier(text)
    if longest == 0:
        assert found is None
        return
    assert found is not None
    length, end = found
    assert 1 <= length <= min(longest, LONGEST)
    assert end < len(text), "the match must have a continuation"
    assert text[end - length : end] == text[len(text) - length :]


@MODERATE
@given(text=texts(12, 60))
def test_where_a_token_is_rare_the_match_is_the_longest(text: list[int]) -> None:
    if text.count(text[-1]) > TRIED:
        return
    found = indexed(text).own_suffix()
    assert (0 if found is None else found[0]) == longest_earlier(text)


@MODERATE
@given(text=texts(5, 40), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_it_does_not_matter_how_the_text_grew(text: list[int], cuts: list[int]) -> None:
    grown: list[int] = []
    index = NgramIndex(grown)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        grown += text[start:stop]
        index.catch_up()
        assert len(index) == len(grown)
    assert index.own_suffix() == indexed(text).own_suffix()


def test_the_end_of_another_text_is_found() -> None:
    index = indexed([5, 1, 2, 3, 4, 6, 2, 3, 7])
    assert index.find([9, 9, 1, 2, 3]) == (3, 4)
    assert index.find([9, 2, 3]) == (2, 8), "the newest of two as long"
    assert index.find([9]) is None
    assert index.find([]) is None
    assert indexed([]).find([1]) is None


def test_the_last_place_of_a_text_can_be_found_from_another() -> None:
    assert indexed([1, 2, 3]).find([7, 2, 3]) == (2, 3)


def test_runs_of_one_hash_are_told_apart() -> None:
    # hash(-1) == hash(-2) in CPython, so these two runs collide.
    assert hash((-1,)) == hash((-2,))
    assert indexed([-1, 5, -2]).own_suffix() is None


@pytest.mark.parametrize(
    ("one", "other", "most", "length"),
    [([1, 2, 3], [9, 2, 3], 32, 2), ([3], [3], 32, 1), ([], [1], 32, 0), ([1] * 9, [1] * 9, 4, 4)],
)
def test_common_suffix(one: list[int], other: list[int], most: int, length: int) -> None:
    assert common_suffix(one, len(one), other, len(other), most) == length


class Counted(int):
    """A token that counts how often it is compared or hashed."""

    asked = 0

    def __hash__(self) -> int:
        Counted.asked += 1
        return int(self)

    def __eq__(self, other: object) -> bool:
        Counted.asked += 1
        return int(self) == other


@pytest.mark.parametrize(
    "make",
    [
        lambda size: [0] * size,
        lambda size: [i % 17 for i in range(size)],
        lambda size: [i * i * 7919 % 1009 % 5 for i in range(size)],
        lambda size: list(range(size)),
    ],
    ids=["one letter", "periodic", "mixed", "all different"],
)
def test_the_cost_of_a_token_does_not_grow(make: Callable[[int], list[int]]) -> None:
    for size in (500, 2000):
        text: list[int] = []
        index = NgramIndex(text)
        Counted.asked = 0
        for token in make(size):
            text.append(Counted(token))
            index.catch_up()
            index.own_suffix()
        assert Counted.asked <= 15 * size + TRIED * LONGEST * size
        assert Counted.asked <= 300 * size
