"""Which row a prompt gets: the longest shared prefix, never at the cost of more than it saves; and
whose tokens have to go, which is told."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache import KVCache
from engine.slots import REMEMBERED, Slots, Tap

from .test_cache import LAYERS, NARROW, stamps

SLOTS = 64


def new_slots(rows: int) -> Slots:
    """So many rows for chats; the one for fills is beside them, unless there is only one."""
    rows += rows > 1
    return Slots(
        KVCache(NARROW, rows=rows, slots=SLOTS, dtype=torch.float32, device=torch.device("cpu"))
    )


def take(slots: Slots, prompt: Sequence[int], **who: Any) -> tuple[int, int]:
    """A claimed row and what was shared."""
    claim = slots.take(prompt, **who)
    return claim.row, claim.cached


def write(slots: Slots, row: int, tokens: Sequence[int]) -> None:
    """Fill the row up to `tokens`, as prefill would."""
    done = slots.cache.lengths[row]
    fresh = tokens[done:]
    if fresh:
        span = slots.cache.extend(row, len(fresh))
        for layer in range(LAYERS):
            slots.cache.write(layer, span, stamps(fresh, layer, 1), stamps(fresh, layer, -1))


def answer(
    slots: Slots, prompt: Sequence[int], output: Sequence[int] = (), **who: Any
) -> tuple[int, int]:
    """A whole request: claim, prefill, decode, give back; returns the row and what was shared."""
    row, shared = take(slots, prompt, **who)
    give(slots, row, [*prompt, *output])
    return row, shared


def give(slots: Slots, row: int, tokens: Sequence[int]) -> None:
    """Decode up to `tokens`, of which the last one stays pending, and give the row back."""
    write(slots, row, tokens[:-1])
    slots.give_back(row, tokens[:-1], tokens[-1:])


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
    row, shared = take(slots, [1, 2, 3, 4])
    assert shared == 3
    assert_holds(slots, row, [1, 2, 3])


def test_a_prompt_of_one_token_shares_nothing() -> None:
    slots = new_slots(1)
    answer(slots, [1, 2, 3])
    assert take(slots, [1]) == (0, 0)
    slots.cache.check(0, 0)


def test_the_longest_shared_prefix_wins() -> None:
    slots = new_slots(3)
    prompts = [[1, 2, 8, 9], [1, 2, 3, 4, 9], [1, 7, 8]]
    rows = [take(slots, prompt)[0] for prompt in prompts]  # all at once: none can share
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
    row, shared = take(slots, [1, 2, 3, 30, 31])
    assert (row != chat, shared) == (True, 3)
    assert_holds(slots, row, [1, 2, 3])
    assert_holds(slots, chat, long[:-1])
    slots.give_back(row, [1, 2, 3])
    assert take(slots, long) == (chat, 19)


def test_a_prefix_that_is_half_of_the_row_is_reused_in_place() -> None:
    slots = new_slots(2)
    row = answer(slots, [1, 2, 3, 4, 5, 6, 7])[0]  # holds six
    assert take(slots, [1, 2, 3, 30]) == (row, 3)
    assert_holds(slots, row, [1, 2, 3])


def test_a_prefix_just_short_of_half_of_the_row_is_forked() -> None:
    slots = new_slots(2)
    row = answer(slots, [1, 2, 3, 4, 5, 6, 7, 8])[0]  # holds seven
    other, shared = take(slots, [1, 2, 3, 30])
    assert (other != row, shared) == (True, 3)
    assert_holds(slots, row, [1, 2, 3, 4, 5, 6, 7])


def test_with_one_row_the_shared_prefix_is_kept_whatever_is_lost() -> None:
    slots = new_slots(1)
    answer(slots, list(range(1, 21)))
    assert take(slots, [1, 2, 40]) == (0, 2)
    assert_holds(slots, 0, [1, 2])


def test_a_claimed_row_is_neither_given_nor_copied() -> None:
    slots = new_slots(2)
    answer(slots, [1, 2, 3, 4, 5])
    first, _ = take(slots, [1, 2, 3, 4, 5])
    second, shared = take(slots, [1, 2, 3, 4, 5])
    assert (second != first, shared) == (True, 0)
    with pytest.raises(AssertionError, match="free"):
        take(slots, [1])
    slots.give_back(first, [1, 2])
    assert take(slots, [3])[0] == first


def test_a_row_given_back_in_the_middle_of_prefill_holds_what_was_written() -> None:
    slots = new_slots(1)
    prompt = list(range(1, 31))
    row, _ = take(slots, prompt)
    write(slots, row, prompt[:12])
    slots.give_back(row, prompt[:-1])
    assert take(slots, prompt) == (row, 12)


def test_a_row_given_back_in_the_middle_of_a_draft_forgets_the_draft() -> None:
    slots = new_slots(1)
    row, _ = take(slots, [1, 2, 3, 4])
    write(slots, row, [1, 2, 3, 50, 51, 52])  # three drafted tokens that nobody accepted
    slots.give_back(row, [1, 2, 3])
    slots.cache.check(row, 3)
    assert take(slots, [1, 2, 3, 50, 51]) == (row, 3)


def test_what_is_forgotten_is_not_shared() -> None:
    slots = new_slots(2)
    answer(slots, [1, 2, 3, 4])
    slots.forget()
    assert take(slots, [1, 2, 3, 4])[1] == 0


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
        row, shared = take(slots, prompt)
        assert shared < len(prompt)
        assert_holds(slots, row, prompt[:shared])
        held = [*prompt, *output][:-1]
        write(slots, row, held)
        slots.give_back(row, held)
    take(slots, [1])


# Whose row it is


def chat(number: int, length: int = 6) -> list[int]:
    """The prompt of a conversation that shares nothing with another one's."""
    return [100 * number + position for position in range(length)]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 4),
    order=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=24),
)
def test_the_least_recently_used_conversation_goes_and_is_told_once(
    rows: int, order: list[tuple[int, bool]]
) -> None:
    """Against a list in order of use; fills in between must change nothing."""
    slots = new_slots(rows)
    kept: list[int] = []  # least recently used first
    held = dict.fromkeys(range(1, 7), 0)
    lost = dict(held)
    evictions = 0
    for number, fills in order:
        prompt = chat(number, held[number] + lost[number] + 3)
        if number not in kept and len(kept) == rows:
            gone = kept.pop(0)
            lost[gone], held[gone] = held[gone], 0
            evictions += 1
        claim = slots.take(prompt, str(number))
        assert (claim.cached, claim.evicted) == (held[number], lost[number])
        give(slots, claim.row, prompt)
        held[number], lost[number] = len(prompt) - 1, 0
        kept = [*(other for other in kept if other != number), number]
        if fills and rows > 1:
            answer(slots, [7, 8, 9], priority="fill")
        assert slots.evictions == evictions
        wanted = {str(other): held[other] for other in kept}
        assert {one.conversation: one.tokens for one in slots.held()} == wanted


def test_an_eviction_is_logged_with_name_and_size(caplog: pytest.LogCaptureFixture) -> None:
    slots = new_slots(1)
    answer(slots, chat(1), conversation="first")
    with caplog.at_level(logging.INFO):
        answer(slots, chat(2), conversation="second")
    assert "5 cached tokens of conversation first" in caplog.text


def test_fills_never_push_a_chat_out_nor_chats_a_fill() -> None:
    slots = new_slots(2)
    answer(slots, chat(1), conversation="a")
    answer(slots, chat(2), conversation="b")
    for number in range(3, 9):
        answer(slots, chat(number), conversation=f"file {number}", priority="fill")
    assert answer(slots, chat(1), conversation="a")[1] == 5
    assert answer(slots, chat(2), conversation="b")[1] == 5
    answer(slots, chat(9), conversation="c")
    answer(slots, chat(10), conversation="d")
    assert answer(slots, chat(8), conversation="file 8", priority="fill")[1] == 5


def test_a_fill_may_run_while_every_chat_row_is_taken() -> None:
    slots = new_slots(2)
    rows = {slots.take(chat(number)).row for number in (1, 2)}
    with pytest.raises(AssertionError, match="free"):
        slots.take(chat(3))
    assert slots.take(chat(3), None, "fill").row not in rows


def test_with_one_row_a_fill_that_pushes_a_chat_out_says_so() -> None:
    slots = new_slots(1)
    assert slots.one_for_all
    answer(slots, chat(1), conversation="chat")
    answer(slots, chat(2), conversation="file", priority="fill")
    assert slots.evictions == 1
    assert slots.take(chat(1), "chat").evicted == 5


def test_nobody_takes_over_the_row_of_a_conversation_while_another_is_free() -> None:
    """Not even one that shares nearly all of it: that much is copied."""
    slots = new_slots(2)
    owned = answer(slots, chat(1, 20), conversation="a")[0]
    row, shared = answer(slots, [*chat(1, 18), 7, 7])
    assert (row != owned, shared) == (True, 18)
    assert answer(slots, chat(1, 20), conversation="a") == (owned, 19)
    assert slots.evictions == 0


def test_a_conversation_keeps_its_row_when_it_is_branched_early() -> None:
    slots = new_slots(3)
    row = answer(slots, chat(1, 20), conversation="a")[0]
    assert answer(slots, [*chat(1, 3), 9, 9, 9], conversation="a") == (row, 3)
    assert slots.evictions == 0
    assert [one.tokens for one in slots.held()] == [5]


def test_a_conversation_copies_what_another_row_has_more_of() -> None:
    slots = new_slots(3)
    answer(slots, chat(1, 4), conversation="a")
    answer(slots, chat(1, 20), conversation="b")
    claim = slots.take(chat(1, 20), "a")
    assert claim.cached == 19
    assert_holds(slots, claim.row, chat(1, 19))
    give(slots, claim.row, chat(1, 20))
    assert {one.conversation: one.tokens for one in slots.held()} == {"a": 19, "b": 19}


def test_what_is_still_there_was_not_evicted() -> None:
    """The other one went on from the same text, so a part of what was lost lies in its row."""
    slots = new_slots(1)
    answer(slots, chat(1, 20), conversation="a")
    answer(slots, [*chat(1, 8), 7, 7, 7], conversation="b")
    assert slots.evictions == 1
    claim = slots.take(chat(1, 20), "a")
    assert (claim.cached, claim.evicted) == (8, 19 - 8)


def test_a_loss_is_told_to_the_next_request_only() -> None:
    slots = new_slots(1)
    answer(slots, chat(1), conversation="a")
    answer(slots, chat(2), conversation="b")
    assert slots.take(chat(1), "a").evicted == 5
    slots.give_back(0, [])
    assert slots.take(chat(3), "a").evicted == 0


def test_forgetting_is_an_eviction_too() -> None:
    slots = new_slots(2)
    answer(slots, chat(1), conversation="a")
    taken = slots.take(chat(2), "b")
    slots.forget()
    assert slots.evictions == 1
    assert slots.held() == ()
    give(slots, taken.row, chat(2))
    assert slots.take(chat(1), "a").evicted == 5
    assert slots.take(chat(2), "b").cached == 5


def test_the_memory_of_what_was_lost_is_bounded() -> None:
    slots = new_slots(1)
    for number in range(3 * REMEMBERED):
        answer(slots, chat(number), conversation=str(number))
    assert len(slots._evicted) == REMEMBERED
    assert slots.take(chat(1), "1").evicted == 0


def test_what_followed_a_text_is_found_with_the_token_that_was_pending() -> None:
    slots = new_slots(2)
    answer(slots, [1, 2, 3], [4, 5, 6])
    assert [list(found) for found in slots.after([1, 2, 3])] == [[4, 5, 6]]
    assert list(slots.after([1, 2, 9])) == []
    assert list(slots.after([1, 2, 3, 4, 5, 6])) == []


def test_what_was_tapped_at_a_prompts_end_is_there_for_the_same_prompt_only() -> None:
    slots = new_slots(3)
    prompt, tap = [1, 2, 3, 4, 5], Tap(state=torch.ones(1, 8), after=4)
    row, _ = take(slots, prompt)
    write(slots, row, [*prompt, 6, 7])
    slots.give_back(row, [*prompt, 6, 7], [8], tap)
    for other, cached in (([1, 2, 3, 9], 3), ([*prompt, 6, 9], 6), ([1, 2, 3, 4], 3)):
        claim = slots.take(other, "busy")
        assert (claim.cached, claim.tap) == (cached, None)
        slots.give_back(claim.row, other[: claim.cached])
    again = slots.take(prompt)
    assert (again.cached, again.tap) == (4, tap)
    slots.give_back(again.row, prompt[:4], prompt[4:], tap)
    slots.forget()
    assert slots.take(prompt).tap is None


def test_what_was_tapped_goes_along_with_a_prefix_that_is_copied() -> None:
    slots = new_slots(2)
    prompt, tap = [1, 2, 3, 4, 5], Tap(state=torch.ones(1, 8), after=4)
    row, _ = take(slots, prompt, conversation="a")
    write(slots, row, prompt)
    slots.give_back(row, prompt, (), tap)
    copied = slots.take(prompt, "b")
    assert copied.row != row
    assert copied.tap is tap
