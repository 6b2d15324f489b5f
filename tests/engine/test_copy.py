"""What is copied, from where, and how soon after a change."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import MAX_DRAFT_TOKENS
from engine.draft.copy import (
    GUESS,
    KNOWN,
    MATCH_FROM,
    RATES,
    RUN_FROM,
    SEEN,
    CopyDrafter,
)
from engine.draft.earlier import Earlier

from .test_cache import small_cache
from .tiny import new_row

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)
CPU = torch.device("cpu")


def drafted(text: list[int], k: int, earlier: Earlier | None = None) -> list[int]:
    drafter, row = CopyDrafter(CPU, earlier), new_row(text)
    if drafter.evidence(row) is None:
        return []
    draft = drafter.propose(row, k, small_cache())
    assert draft.probs is None
    assert draft.hidden is None
    guess = drafter.guess(row, k)
    assert guess == draft.tokens.tolist()
    return guess


def rounds(prompt: list[int], answer: list[int], k: int, earlier: Earlier | None = None) -> int:
    """How many rounds the answer takes when every draft is used."""
    drafter, row = CopyDrafter(CPU, earlier), new_row(prompt)
    count = done = 0
    while done < len(answer):
        draft = [] if drafter.evidence(row) is None else drafter.guess(row, k)
        kept = 0
        while kept < len(draft) and answer[done + kept : done + kept + 1] == [draft[kept]]:
            kept += 1
        row.tokens += answer[done : done + kept + 1]
        done += kept + 1
        count += 1
    return count


@MODERATE
@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=40), k=st.integers(1, 12))
def test_a_draft_continues_an_earlier_occurrence(text: list[int], k: int) -> None:
    copied = drafted(text, k)
    if text[-1] not in text[:-1]:
        assert copied == []
        return
    assert len(copied) == k
    whole = text + copied
    ends = [end for end in range(1, len(text)) if text[end - 1] == text[-1]]
    # Token for token what stands after one of the occurrences, the copy itself included.
    assert any(whole[end : end + k] == copied for end in ends)


def test_a_period_goes_on() -> None:
    for period in (1, 2, 3, 7):
        unit = list(range(10, 10 + period))
        assert drafted(unit * 4, 2 * period + 1) == (unit * 3)[: 2 * period + 1]


def test_the_example_of_the_module() -> None:
    assert drafted([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]


def test_what_was_said_most_recently_is_copied() -> None:
    assert drafted([1, 2, 3, 0, 1, 2, 4, 0, 0, 1, 2], 1) == [4]


def test_the_longer_match_is_copied() -> None:
    assert drafted([7, 1, 2, 3, 0, 1, 2, 4, 0, 7, 1, 2], 1) == [3]


def test_a_drafter_follows_its_row_as_it_grows() -> None:
    drafter, row = CopyDrafter(CPU), new_row([1, 2, 3])
    assert drafter.evidence(row) is None
    row.tokens += [1, 2]
    assert drafter.evidence(row) == 1
    assert drafter.propose(row, 2, small_cache()).tokens.tolist() == [3, 1]
    row.tokens += [3, 1]
    assert drafter.evidence(row) == 3
    assert drafter.propose(row, 1, small_cache()).tokens.tolist() == [2]


def test_a_guess_changes_nothing() -> None:
    drafter, row = CopyDrafter(CPU), new_row([1, 2, 3, 4, 1, 2])
    assert drafter.evidence(row) == 1
    assert [drafter.guess(row, 3) for _ in range(3)] == [[3, 4, 1]] * 3
    assert drafter.evidence(row) == 1


def test_a_drafter_asked_late_knows_the_same() -> None:
    prompt, answer = [5, *range(100, 140)], [5, *range(100, 120), 7, *range(121, 130)]
    often, seldom = CopyDrafter(CPU), CopyDrafter(CPU)
    row, late = new_row(prompt), new_row(prompt)
    for token in answer:
        row.tokens.append(token)
        often.evidence(row)
    late.tokens += answer[:9]
    seldom.evidence(late)
    late.tokens += answer[9:]
    assert seldom.evidence(late) is not None
    assert seldom.guess(late, 5) == often.guess(row, 5) == [130, 131, 132, 133, 134]


def test_every_class_has_rates() -> None:
    assert len(RATES) == len(MATCH_FROM) + len(RUN_FROM) + 3 == GUESS + 1
    assert sorted({KNOWN, SEEN, GUESS}) == [len(RATES) - 3, len(RATES) - 2, len(RATES) - 1]
    for evidence in range(len(RATES)):
        rates = CopyDrafter(CPU).prior(evidence).rates
        assert all(0 < rate < 1 for rate in rates)


SOURCE = [1, *range(100, 200)]
"""A file, `1` the fence before it; all tokens differ, so that nothing but the place can help."""


def test_an_unchanged_file_takes_one_round_per_draft() -> None:
    answer = SOURCE[:]
    assert rounds(SOURCE, answer, MAX_DRAFT_TOKENS) == 1 + -(-100 // 33)


def test_one_replaced_token_costs_one_round() -> None:
    whole = rounds(SOURCE, SOURCE, 8)
    changed = [*SOURCE[:40], 7, *SOURCE[41:]]
    assert rounds(SOURCE, changed, 8) <= whole + 1


def test_tokens_put_in_or_left_out_cost_little() -> None:
    whole = rounds(SOURCE, SOURCE, 8)
    put_in = [*SOURCE[:40], 7, 8, *SOURCE[40:]]
    left_out = [*SOURCE[:40], *SOURCE[50:]]
    assert rounds(SOURCE, put_in, 8) <= whole + 3
    assert rounds(SOURCE, left_out, 8) <= whole + 1


def lines(name: list[int], count: int) -> list[int]:
    """A file whose every line holds `name` and else only tokens of its own."""
    return [1] + [t for i in range(count) for t in (*range(1000 + 9 * i, 1006 + 9 * i), *name, 2)]


def test_a_rename_in_every_line_is_foreseen_after_the_first() -> None:
    for old, new in (([50], [60]), ([50, 51], [60]), ([50], [60, 61, 62]), ([50, 51], [60, 61])):
        source, answer = lines(old, 20), lines(new, 20)
        ideal = len(answer) / 9
        assert rounds(source, answer, 8) <= ideal + 6, (old, new)


def test_what_was_left_alone_once_is_not_changed_there_again() -> None:
    drafter = CopyDrafter(CPU)
    source = [1, *range(100, 110), 50, 3, 111, 112, 50, 4, 113, 114, 50, 3, 115, 116, 50, 4, 117]
    row = new_row(source)
    row.tokens += [1, *range(100, 110), 60, 3, 111, 112, 50, 4, 113]
    for _ in range(2):
        assert drafter.evidence(row) is not None
    row = new_row(source)
    drafter = CopyDrafter(CPU)
    for token in [1, *range(100, 110), 60, 3, 111, 112, 50, 4, 113]:
        row.tokens.append(token)
        drafter.evidence(row)
    assert drafter.guess(row, 8) == [114, 60, 3, 115, 116, 50, 4, 117]


def test_the_session_s_answers_are_copied_from() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4, 5, 6])
    assert drafted([9, 2, 3], 8, earlier) == [4, 5, 6]
    assert drafted([9, 2, 3], 8) == []


def test_the_longer_match_wins_whoever_said_it() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4, 5])
    assert drafted([2, 3, 7, 0, 1, 2, 3], 1, earlier) == [4]
    assert drafted([0, 1, 2, 3, 7, 0, 1, 2, 3], 1, earlier) == [7]


def test_at_the_end_of_an_earlier_answer_there_is_nothing() -> None:
    earlier = Earlier()
    earlier.add([1, 2, 3, 4, 5, 6])
    assert drafted([9, 4, 5, 6], 8, earlier) == []


def test_the_same_text_gives_the_same_drafts() -> None:
    source, answer = lines([50], 12), lines([60, 61], 12)
    found = []
    for _ in range(2):
        drafter, row = CopyDrafter(CPU), new_row(source)
        seen: list[object] = []
        for token in answer:
            row.tokens.append(token)
            evidence = drafter.evidence(row)
            seen.append((evidence, None if evidence is None else drafter.guess(row, 9)))
        found.append(seen)
    assert found[0] == found[1]
