"""How much of a text is still there, against the plain definition."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp.edit_distance import MOST_SEARCHED, MOST_WANTED, nearest, share_kept


def by_definition(wanted: str, there: str) -> int:
    row = list(range(len(wanted) + 1))
    least = row[-1]
    for letter in there:
        above, row = row, [0]
        for at, own in enumerate(wanted):
            row.append(min(above[at] + (own != letter), above[at + 1] + 1, row[at] + 1))
        least = min(least, row[-1])
    return least


LETTERS = st.text(alphabet="abcé\n ", max_size=40)


@given(LETTERS, LETTERS)
def test_it_is_the_least_number_of_edits(wanted: str, there: str) -> None:
    assert nearest(wanted, there) == by_definition(wanted, there)


@pytest.mark.parametrize(
    ("wanted", "there", "share"),
    [
        ("return a + b", "def f(a, b):\n    return a + b\n", 1.0),
        ("    x = 1\n    y = 2", "if a:\n        x = 1\n        y = 2", 1.0),
        ("x = 1\r\ny = 2", "x = 1\ny = 2", 1.0),
        ("abcd", "abXd", 0.75),
        ("abcd", "", 0.0),
        ("abcd", "wxyz", 0.0),
        ("", "anything", 1.0),
    ],
)
def test_examples(wanted: str, there: str, share: float) -> None:
    assert share_kept(wanted, there) == share


def test_it_takes_a_bounded_time() -> None:
    begun = time.process_time()
    share_kept("x" * MOST_WANTED * 2, "xy" * MOST_SEARCHED)
    assert time.process_time() - begun < 1.0
