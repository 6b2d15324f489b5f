"""Which row a prompt gets: the longest shared prefix, never at the cost of more than it saves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache import KVCache
from engine.slots import Slots

from .test_cache import LAYERS, NARROW, stamps

SLOTS = 64


def new_slots(rows: int) -> Slots:
    return Slots(
        KVCache(NARROW, rows=rows, slots=SLOTS, dtype=torch.float32, device=torch.device("cpu"))
    )


def write(slots: Slots, row: int, tokens: Sequence[int]) -> None:
    """Fill the row up to `tokens`, as prefill would."""
    done = slots.cache.lengths[row]
    fresh = tokens[done:]
    if fresh:
        span = slots.cache.extend(row, len(fresh))
        for layer in range(LAYERS):
            slots.cache.write(layer, span, stamps(fresh, layer, 1), stamps(fresh, layer, -1))


def answer(slots: Slots, prompt: Sequence[int], output: Sequence[int] = ()) -> tuple[int, int]:
    """A whole request: claim, prefill, decode, give back; returns the row and what was shared."""
    row, shared = slots.take(prompt)
    held = [*prompt, *output][:-1]
    write(slots, row, held)
    slots.give_back(row, held)
    return row, shared


def assert_holds(slots: Slots, row: int, tokens: Sequence[int]) -> None:
    slots.cache.check(row, len(tokens))
    for layer in range(LAYERS):
        keys, _ = slots.cache.view(layer, row, 0, len(tokens))
        assert torch.equal(keys[0], stamps(tokens, layer, 1).transpose(0, 1))


def test_the_next_turn_shares_prompt_and_answer() -> None:
    slots = new_slots(2)
    first, shared = answer(slots, [1, 2, 3], [4, 5])
    assert shared == 0
    assert answer(slots, [1, 2, 3, 4, 5, 6, 7]) == (first, 4)


def test_a_prompt_that_is_wholly_cached_leaves_its_last_token_pending() -> None:
    slots = new_slots(1)
    answer(slots, [1, 2, 3, 4], [5, 6])
    row, shared = slots.take([1, 2, 3, 4])
    assert shared == 3
    assert_holds(slots, row, [1, 2, 3])


def test_a_prompt_of_one_token_shares_nothing() -> None:
    slots = new_slots(1)
    answer(slots, [1, 2, 3])
    assert slots.take([1]) == (0, 0)
    slots.cache.check(0, 0)


def test_the_longest_shared_prefix_wins() -> None:
    slots = new_slots(3)
    prompts = [[1, 2, 8, 9], [1, 2, 3, 4, 9], [1, 7, 8]]
    rows = [slots.take(prompt)[0] for prompt in prompts]  # all at once: none can share
    for row, prompt in zip(rows, prompts, strict=True):
        write(slots, row, prompt)
        slots.give_back(row, prompt)
    assert answer(slots, [1, 2, 3, 4, 5]) == (rows[1], 4)


def test_an_unrelated_prompt_takes_an_empty_row_first() -> None:
    slots = new_slots(3)
    used = answer(slots, [1, 2, 3, 4])[0]
    assert answer(slots, [9, 8, 7])[0] != used
    assert answer(slots, [1, 2, 3, 4]) == (used, 3)


def test_an_unrelated_prompt_takes_the_least_recently_used_row() -> None:
    slots = new_slots(2)
    chat = answer(slots, [1, 2, 3, 4])[0]
    fill = answer(slots, [5, 6, 7, 8])[0]
    answer(slots, [1, 2, 3, 4], [5])  # the chat goes on
    assert answer(slots, [20, 21, 22]) == (fill, 0)
    assert answer(slots, [1, 2, 3, 4]) == (chat, 3)


def test_a_short_shared_prefix_is_forked_and_the_conversation_stays() -> None:
    slots = new_slots(2)
    long = [*range(1, 21)]
    chat = answer(slots, long)[0]
    row, shared = slots.take([1, 2, 3, 30, 31])
    assert (row != chat, shared) == (True, 3)
    assert_holds(slots, row, [1, 2, 3])
    assert_holds(slots, chat, long[:-1])
    slots.give_back(row, [1, 2, 3])
    assert slots.take(long) == (chat, 19)


def test_a_prefix_that_is_half_of_the_row_is_reused_in_place() -> None:
    slots = new_slots(2)
    row = answer(slots, [1, 2, 3, 4, 5, 6, 7])[0]  # holds six
    assert slots.take([1, 2, 3, 30]) == (row, 3)
    assert_holds(slots, row, [1, 2, 3])


def test_a_prefix_just_short_of_half_of_the_row_is_forked() -> None:
    slots = new_slots(2)
    row = answer(slots, [1, 2, 3, 4, 5, 6, 7, 8])[0]  # holds seven
    other, shared = slots.take([1, 2, 3, 30])
    assert (other != row, shared) == (True, 3)
    assert_holds(slots, row, [1, 2, 3, 4, 5, 6, 7])


def test_with_one_row_the_shared_prefix_is_kept_whatever_is_lost() -> None:
    slots = new_slots(1)
    answer(slots, list(range(1, 21)))
    assert slots.take([1, 2, 40]) == (0, 2)
    assert_holds(slots, 0, [1, 2])


def test_a_claimed_row_is_neither_given_nor_copied() -> None:
    slots = new_slots(2)
    answer(slots, [1, 2, 3, 4, 5])
    first, _ = slots.take([1, 2, 3, 4, 5])
    second, shared = slots.take([1, 2, 3, 4, 5])
    assert (second != first, shared) == (True, 0)
    assert not slots.can_take()
    with pytest.raises(AssertionError, match="free"):
        slots.take([1])
    slots.give_back(first, [1, 2])
    assert slots.can_take()


def test_a_row_given_back_in_the_middle_of_prefill_holds_what_was_written() -> None:
    slots = new_slots(1)
    prompt = list(range(1, 31))
    row, _ = slots.take(prompt)
    write(slots, row, prompt[:12])
    slots.give_back(row, prompt[:-1])
    assert slots.take(prompt) == (row, 12)


def test_a_row_given_back_in_the_middle_of_a_draft_forgets_the_draft() -> None:
    slots = new_slots(1)
    row, _ = slots.take([1, 2, 3, 4])
    write(slots, row, [1, 2, 3, 50, 51, 52])  # three drafted tokens that nobody accepted
    slots.give_back(row, [1, 2, 3])
    slots.cache.check(row, 3)
    assert slots.take([1, 2, 3, 50, 51]) == (row, 3)


def test_what_is_forgotten_is_not_shared() -> None:
    slots = new_slots(2)
    answer(slots, [1, 2, 3, 4])
    slots.forget()
    assert slots.take([1, 2, 3, 4])[1] == 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 3),
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), min_size=1, max_size=12),
            st.lists(st.integers(0, 1), max_size=6),
        ),
        min_size=1,
        max_size=10,
    ),
)
def test_what_a_row_claims_to_share_is_really_in_it(
    rows: int, requests: list[tuple[list[int], list[int]]]
) -> None:
    slots = new_slots(rows)
    for prompt, output in requests:
        row, shared = slots.take(prompt)
        assert shared < len(prompt)
        assert_holds(slots, row, prompt[:shared])
        held = [*prompt, *output][:-1]
        write(slots, row, held)
        slots.give_back(row, held)
        assert slots.can_take()
