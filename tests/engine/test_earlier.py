"""The session's earlier answers: found, kept apart, bounded."""

from __future__ import annotations

from engine.draft.earlier import SHORTEST, Earlier
from engine.draft.ngrams import END


def test_an_answer_is_found_again() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4, 5])
    found = earlier.find([9, 2, 3])
    assert found is not None
    source, at, length = found
    assert length == 2
    assert list(source[at : at + 3]) == [4, 5, END]


def test_answers_are_kept_apart() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4])
    earlier.add([5, 6, 7, 8])
    assert earlier.find([4, 5]) is not None
    found = earlier.find([3, 4, 5, 6])
    assert found is not None
    assert found[2] == 2, "no match reaches over the end of an answer"


def test_an_empty_memory_finds_nothing() -> None:
    assert Earlier().find([1, 2]) is None
    assert len(Earlier()) == 0


def test_short_answers_are_not_kept() -> None:
    earlier = Earlier()
    earlier.add(list(range(SHORTEST - 1)))
    assert len(earlier) == 0


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    earlier = Earlier(100)
    for start in range(0, 5000, 10):
        earlier.add(list(range(start, start + 9)))
        assert len(earlier) <= 100
    assert earlier.find([4990, 4991]) is not None
    assert earlier.find([0, 1]) is None
    assert len(earlier) >= 50, "half of it survives when the other half goes"


def test_of_a_very_long_answer_the_end_is_kept() -> None:
    earlier = Earlier(100)
    earlier.add(list(range(1000)))
    assert len(earlier) <= 100
    assert earlier.find([998, 999]) is not None
    assert earlier.find([0, 1]) is None


def test_it_can_be_made_to_forget() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4])
    earlier.forget()
    assert len(earlier) == 0
    assert earlier.find([1, 2]) is None
