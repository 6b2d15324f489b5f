"""What is remembered of the changes an answer makes."""

from __future__ import annotations

from engine.draft.changes import LONGEST_NEW, LONGEST_OLD, MOST_RULES, Changes

A, B, OLD, OLDER, NEW, NEWER = 1, 2, 50, 51, 60, 61


def test_a_replacement_is_foreseen_everywhere_else() -> None:
    changes = Changes()
    source = [A, OLD, OLDER, B, 7, OLD, OLDER, 8]
    assert changes.foreseen(source, 5) is None
    changes.learn(source, 1, 3, [NEW])
    assert changes.foreseen(source, 5) == (2, (NEW,))
    assert changes.foreseen(source, 6) is None
    assert changes.foreseen(source, len(source)) is None


def test_what_is_put_in_is_tied_to_the_token_behind_it() -> None:
    changes = Changes()
    source = [A, B, 7, A, B]
    changes.learn(source, 1, 1, [NEW, NEWER])
    assert changes.foreseen(source, 4) == (1, (NEW, NEWER, B))
    changes = Changes()
    changes.learn(source, len(source), len(source), [NEW])
    assert changes.foreseen(source, len(source)) is None


def test_what_is_left_out_is_foreseen() -> None:
    changes = Changes()
    source = [A, OLD, B, OLD]
    changes.learn(source, 1, 2, [])
    assert changes.foreseen(source, 3) == (1, ())


def test_surroundings_decide_where_outcomes_differ() -> None:
    changes = Changes()
    source = [A, OLD, B, 7, OLD, 8, A, OLD, B, 7, OLD, 8, 9, OLD, B]
    changes.learn(source, 1, 2, [NEW])
    changes.kept(source, 4)
    assert changes.foreseen(source, 7) == (1, (NEW,))
    assert changes.foreseen(source, 10) is None
    assert changes.foreseen(source, 13) == (1, (NEW,)), "the token behind it has been seen"


def test_the_last_outcome_counts() -> None:
    changes = Changes()
    source = [A, OLD, B] * 3
    changes.learn(source, 1, 2, [NEW])
    changes.learn(source, 4, 5, [NEWER])
    assert changes.foreseen(source, 7) == (1, (NEWER,))
    changes.kept(source, 4)
    assert changes.foreseen(source, 7) is None


def test_a_replacement_is_known_by_its_beginning() -> None:
    changes = Changes()
    source = [A, OLD, B, 7, OLD, 8]
    changes.learn(source, 1, 2, [NEW, NEWER])
    changes.kept(source, 4)
    assert changes.foreseen(source, 4) is None
    # Left alone there once; but if the answer begins so, the rest is known.
    assert changes.begun(source, 4, [NEW]) == (1, (NEW, NEWER))
    assert changes.begun(source, 4, [NEWER]) is None
    assert changes.begun(source, 4, [NEW, A]) is None
    assert changes.begun(source, 4, [NEW, NEWER, A]) is None


def test_of_two_beginnings_the_last_one_seen_goes_on() -> None:
    changes = Changes()
    source = [A, OLD, B] * 3
    changes.learn(source, 1, 2, [NEW, 1])
    changes.learn(source, 4, 5, [NEW, 2])
    assert changes.begun(source, 7, [NEW]) == (1, (NEW, 2))
    assert changes.begun(source, 7, [NEW, 1]) == (1, (NEW, 1))


def test_the_longest_stretch_goes_first() -> None:
    changes = Changes()
    source = [A, OLD, B, 7, OLD, OLDER, 8, 9, OLD, OLDER, 8]
    changes.learn(source, 1, 2, [NEW])
    changes.learn(source, 4, 6, [NEWER])
    assert changes.foreseen(source, 8) == (2, (NEWER,))


def test_long_changes_are_not_learned() -> None:
    changes = Changes()
    source = list(range(100))
    changes.learn(source, 0, LONGEST_OLD + 1, [NEW])
    changes.learn(source, 20, 21, [NEW] * (LONGEST_NEW + 1))
    assert changes.foreseen(source, 0) is None
    assert changes.foreseen(source, 20) is None


def test_the_oldest_rule_makes_room() -> None:
    changes = Changes()
    source = [3 * i for i in range(MOST_RULES + 2)]
    for at in range(MOST_RULES + 1):
        changes.learn(source, at, at + 1, [NEW])
    assert changes.foreseen(source, 0) is None
    assert changes.foreseen(source, 1) == (1, (NEW,))
    assert changes.foreseen(source, MOST_RULES) == (1, (NEW,))
