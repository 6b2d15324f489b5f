"""The prompt of a place: its parts, its budget, and what of it stays from key to key."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Snippet
from lsp.context import (
    CHARS_PER_TOKEN,
    Budget,
    Frame,
    budget_for,
    frame_for,
    patient,
    prompt_for,
)
from lsp.document import Snapshot

BUDGET = Budget(prefix=400, suffix=60, snippets=200)
LINES = "".join(f"line_{number} = {number}\n" for number in range(200))


def at(text: str, offset: int, *, before: str = "", name: str = "a.py") -> Snapshot:
    return Snapshot(
        uri="file:///a.py",
        version=1,
        language="python",
        path=None,
        name=name,
        text=text,
        offset=offset,
        before=before,
    )


def test_a_small_document_is_shown_whole() -> None:
    place = at("a = 1\nb = \nc = 3\n", 10)
    frame = frame_for(place, BUDGET)
    prompt = prompt_for(place, frame, BUDGET, (Snippet(path="b.py", text="x"),))
    assert (prompt.prefix, prompt.suffix) == ("a = 1\nb = ", "\nc = 3\n")
    assert (prompt.path, prompt.language) == ("a.py", "python")
    assert [one.path for one in prompt.snippets] == ["b.py"]


def test_a_large_document_is_shown_around_the_cursor_in_whole_lines() -> None:
    place = at(LINES, len(LINES) // 2)
    frame = frame_for(place, BUDGET)
    prompt = prompt_for(place, frame, BUDGET)
    assert prompt.prefix.startswith("line_")
    assert LINES[frame.start - 1] == "\n"
    assert len(prompt.prefix) <= BUDGET.prefix
    assert len(prompt.suffix) <= BUDGET.suffix
    assert prompt.suffix.endswith("\n")


def test_while_one_types_the_window_begins_where_it_did_and_then_jumps_far() -> None:
    """Each move of its beginning makes the engine read all of the prompt anew."""
    offset = len(LINES) // 2
    text, frame, moves = LINES, None, 0
    starts = []
    for _ in range(600):
        text = text[:offset] + "x" + text[offset:]
        offset += 1
        new = frame_for(at(text, offset), BUDGET, frame)
        moves += frame is not None and new.start != frame.start
        frame = new
        starts.append(frame.start)
        assert offset - frame.start <= BUDGET.prefix
    assert moves <= 4
    jumps = [b - a for a, b in itertools.pairwise(starts) if a != b]
    assert min(jumps) >= BUDGET.prefix // 4


def test_between_two_keys_only_the_end_of_the_prefix_changes() -> None:
    offset = len(LINES) // 2
    frame: Frame | None = None
    prefixes = []
    for count in range(20):
        typed = "def total(items):"[:count]
        place = at(LINES[:offset] + typed + LINES[offset:], offset + len(typed))
        frame = frame_for(place, BUDGET, frame)
        prompt = prompt_for(place, frame, BUDGET)
        prefixes.append(prompt.prefix)
        assert prompt.suffix == prompt_for(at(LINES, offset), frame, BUDGET).suffix
    for one, other in itertools.pairwise(prefixes):
        assert other.startswith(one)


def test_lines_that_come_above_the_window_move_it_along() -> None:
    place = at(LINES, len(LINES) // 2)
    frame = frame_for(place, BUDGET)
    shifted = at("import os\n" + LINES, len(LINES) // 2 + 10)
    moved = frame_for(shifted, BUDGET, frame)
    assert moved.start == frame.start + 10
    before = prompt_for(place, frame, BUDGET)
    after = prompt_for(shifted, moved, BUDGET)
    assert before == after


def test_a_jump_upwards_makes_a_new_window() -> None:
    frame = frame_for(at(LINES, len(LINES) - 5), BUDGET)
    above = at(LINES, 300)
    assert frame_for(above, BUDGET, frame).start == 0


def test_line_ends_are_plain_and_a_byte_order_mark_stays_out() -> None:
    place = at("\ufeffa = 1\r\nb = \r\nc = 3\r\n", 12)
    prompt = prompt_for(place, frame_for(place, BUDGET), BUDGET)
    assert (prompt.prefix, prompt.suffix) == ("a = 1\nb = ", "\nc = 3\n")


def test_the_cells_before_are_part_of_a_notebooks_prefix() -> None:
    place = at("print(x)\n", 6, before="x = 1\n")
    prompt = prompt_for(place, frame_for(place, BUDGET), BUDGET)
    assert (prompt.prefix, prompt.suffix) == ("x = 1\nprint(", "x)\n")


def test_one_endless_line_is_cut_where_it_must_be() -> None:
    place = at("x" * 5000, 3000)
    prompt = prompt_for(place, frame_for(place, BUDGET), BUDGET)
    assert 0 < len(prompt.prefix) <= BUDGET.prefix
    assert len(prompt.suffix) == BUDGET.suffix


@pytest.mark.parametrize(("speed", "total"), [(10, 800), (700, 1400), (20_000, 2400)])
def test_a_faster_machine_is_shown_more(speed: float, total: int) -> None:
    budget = budget_for(speed)
    assert budget.prefix + budget.snippets + budget.suffix <= (total + 60) * CHARS_PER_TOKEN
    assert budget.prefix >= 0.5 * total * CHARS_PER_TOKEN
    slow = budget_for(10)
    assert (slow.prefix, slow.suffix) <= (budget.prefix, budget.suffix)


@pytest.mark.parametrize("speed", [None, 10.0, 180.0, 400.0, 20_000.0])
def test_who_asked_and_waits_is_never_shown_less(speed: float | None) -> None:
    budget = budget_for(speed)
    waits = patient(budget, speed)
    assert waits.prefix >= budget.prefix
    assert waits.suffix >= budget.suffix
    assert waits.snippets == budget.snippets
    # Where reading is slow enough, as little as while typing.
    more = (waits.prefix, waits.suffix) != (budget.prefix, budget.suffix)
    assert more == (speed not in (10.0, 20_000.0))


TEXTS = st.text("ab \n\r", max_size=60)


@given(text=TEXTS, offset=st.integers(0, 60), other=TEXTS, at_other=st.integers(0, 60))
def test_the_prompt_is_the_text_around_the_cursor(
    text: str, offset: int, other: str, at_other: int
) -> None:
    """Whatever window was used before, and for whatever text."""
    budget = Budget(prefix=30, suffix=10, snippets=0)
    frame = frame_for(at(other, min(at_other, len(other))), budget)
    place = at(text, min(offset, len(text)))
    frame = frame_for(place, budget, frame)
    prompt = prompt_for(place, frame, budget)
    plain = place.prefix.replace("\r\n", "\n").replace("\r", "\n")
    behind = place.suffix.replace("\r\n", "\n").replace("\r", "\n")
    assert plain.endswith(prompt.prefix)
    assert len(prompt.prefix) <= 30
    assert prompt.prefix or len(plain) <= 30 or plain[-1:] == "\n"
    assert behind.startswith(prompt.suffix) or prompt.suffix.endswith("\n")
