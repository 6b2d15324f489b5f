"""A place in a source: how soon it is found again behind a change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft.aligned import LONGEST_CHANGE, Place
from engine.draft.changes import Changes
from engine.draft.ngrams import END

SOURCE = list(range(100, 160))


def place_at(at: int, source: Sequence[int] = SOURCE) -> Place:
    return Place(source, at, Changes(), agreed=8)


def follow(place: Place, *tokens: int) -> Place:
    for token in tokens:
        place.follow(token, len(place.source))
    return place


def test_it_goes_along() -> None:
    place = follow(place_at(10), 110, 111)
    assert (place.standing, place.at, place.run, place.total) == ("along", 12, 10, 10)
    assert place.ahead(3) == [112, 113, 114]


def test_behind_one_other_token_it_guesses_that_it_stands_for_one() -> None:
    place = follow(place_at(10), 7)
    assert (place.standing, place.ahead(2)) == ("guess", [111, 112])


def test_two_tokens_for_one() -> None:
    place = follow(place_at(10), 7, 8)
    assert place.standing == "lost"
    follow(place, 111)
    assert (place.standing, place.ahead(2)) == ("seen", [112, 113])
    follow(place, 112)
    assert (place.standing, place.at, place.run) == ("along", 13, 2)


def test_one_token_for_three() -> None:
    place = follow(place_at(10), 7, 113)
    assert (place.standing, place.ahead(2)) == ("seen", [114, 115])


def test_tokens_put_in() -> None:
    place = follow(place_at(10), 7, 8, 9, 110)
    assert (place.standing, place.ahead(2)) == ("seen", [111, 112])


def test_a_line_put_in_that_ends_like_the_one_before() -> None:
    """`109` is the indentation: it stood before the line and stands behind it."""
    place = follow(place_at(10), 7, 8, 109)
    assert (place.standing, place.ahead(2)) == ("seen", [110, 111])
    follow(place, 110)
    assert (place.standing, place.at) == ("along", 11)


def test_tokens_left_out() -> None:
    place = follow(place_at(10), 114)
    assert (place.standing, place.ahead(2)) == ("seen", [115, 116])
    follow(place, 115)
    assert place.standing == "along"


def test_much_left_out_takes_more_tokens_that_agree() -> None:
    place = follow(place_at(10), 145)
    assert place.standing == "guess"
    follow(place, 146)
    assert (place.standing, place.at) == ("along", 47)


def test_a_change_made_before_is_made_again() -> None:
    source = [1, 2, 50, 51, 3, 4, 5, 6, 50, 51, 7, 8, 9, 50, 51, 3, END]
    place = Place(source, 2, Changes(), agreed=2)
    follow(place, 60, 3, 4)
    assert place.standing == "along"
    assert place.ahead(9) == [5, 6, 60, 7, 8, 9, 60, 3]


def test_a_known_replacement_is_completed() -> None:
    source = [1, 2, 50, 3, 4, 5, 50, 6, 7, 50, 6, 8, 9]
    place = Place(source, 2, Changes(), agreed=2)
    follow(place, 60, 61, 62, 3, 4, 5, 50)  # and kept the second time, before 6
    assert place.standing == "along"
    assert place.ahead(4) == [6, 7, 50, 6]
    follow(place, 6, 7, 60)  # the third time not
    assert (place.standing, place.ahead(4)) == ("known", [61, 62, 6, 8])
    follow(place, 61, 62)
    assert (place.standing, place.run) == ("along", 0)
    assert place.changed == 2


def test_a_source_ends_where_its_text_does() -> None:
    place = place_at(1, [5, 6, 7, END, 8, 9, 10])
    assert place.ahead(9) == [6, 7]
    follow(place, 6, 7)
    assert place.ahead(9) == []


def test_the_text_itself_goes_on_into_the_draft() -> None:
    text = [1, 2, 3, 1, 2]
    place = Place(text, 2, Changes(), agreed=2)
    assert place.ahead(7) == [3, 1, 2, 3, 1, 2, 3]


def test_in_its_own_text_only_what_came_before_counts() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 9, 4]
    place = Place(text, 2, Changes(), agreed=2)
    for at in (10, 11):
        place.follow(text[at], at)
    assert (place.standing, place.at) == ("seen", 4)


def test_it_is_gone_after_a_long_change() -> None:
    place = follow(place_at(10), *([7] * LONGEST_CHANGE))
    assert not place.gone
    follow(place, 7)
    assert place.gone
    follow(place, 110, 111, 112)
    assert place.gone


@pytest.mark.parametrize("at", [0, 59, 60])
def test_both_ends_of_a_source(at: int) -> None:
    place = follow(place_at(at), 7, 8, 9)
    assert place.ahead(4) == SOURCE[at + 1 : at + 5]


def test_what_follows_the_end_of_a_text_is_not_what_was_put_in_there() -> None:
    """Both 7 and 8 agree right before the end, so the change ends where it began: at END."""
    place = follow(place_at(8, [1, 2, 3, 4, 5, 6, 7, 8, END, 1, 2]), 7, 8)
    assert (place.standing, place.at) == ("along", 8)
    assert place.ahead(5) == []


tokens = st.integers(1, 3)


@given(
    texts=st.lists(st.lists(tokens, min_size=1, max_size=8), min_size=1, max_size=4),
    at=st.integers(0, 8),
    said=st.lists(tokens, max_size=30),
)
def test_the_end_of_a_text_is_never_said(texts: list[list[int]], at: int, said: list[int]) -> None:
    source = [token for text in texts for token in (*text, END)]
    place = place_at(min(at, len(source)), source)
    for token in said:
        follow(place, token)
        assert END not in place.ahead(12)
