"""What became of a suggestion, read off the document as real clients change it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lsp.document import Document, Edit, Snapshot
from lsp.offer import UNSEEN_S, Ended, Offer, Shown

LATER = 10.0


class Scene:
    """A document with a suggestion at the place of `|` and what was typed of it before."""

    def __init__(self, marked: str, text: str, *, eats: int = 0, typed: int = 0) -> None:
        self.document = Document("u", marked.replace("|", ""))
        self.at = marked.index("|")
        self.shown = Shown(
            id="1", start=self.at - typed, end=self.at + eats, text=text, source="model"
        )
        self.offer = Offer(self.snapshot(), [self.shown], 0.0)

    def snapshot(self) -> Snapshot:
        return self.document.snapshot(self.at)

    def replace(self, start: int, end: int, text: str) -> Edit:
        edit = self.document.replace(start, end, text)
        self.at = start + len(text)
        return edit

    def look(self, *edits: Edit, now: float = LATER) -> Ended | None:
        return self.offer.look(self.document.text, edits, now)

    def insert(self, text: str, now: float = LATER) -> Ended | None:
        return self.look(self.replace(self.at, self.at, text), now=now)

    def keys(self, text: str) -> Ended | None:
        ended = None
        for key in text:
            ended = self.insert(key)
        return ended


def test_the_whole_of_it_at_once_is_accepted() -> None:
    scene = Scene("x = ret|\n", "return a + b", typed=3)
    ended = scene.insert("urn a + b")
    assert ended == Ended(
        outcome="accepted", accepted_chars=9, typed_chars=0, start=4, text="return a + b"
    )


@pytest.mark.parametrize("cut", ["one edit", "from the start", "line by line", "past the bracket"])
def test_it_does_not_matter_how_a_client_cuts_the_change(cut: str) -> None:
    scene = Scene("f(|)\nend", "a,\n  b)", eats=1)
    document = scene.document
    if cut == "one edit":
        edits = [document.replace(2, 3, "a,\n  b)")]
    elif cut == "from the start":
        edits = [document.replace(0, 3, "f(a,\n  b)")]
    elif cut == "line by line":
        edits = [document.replace(2, 3, "a,"), document.replace(4, 4, "\n  b)")]
    else:
        edits = [document.replace(2, 2, "a,\n  b")]
    ended = scene.look(*edits)
    assert ended is not None
    assert (ended.outcome, ended.text) == ("accepted", "a,\n  b)")


def test_word_by_word_is_partial_until_it_is_whole() -> None:
    scene = Scene("|", "return first + second")
    assert scene.insert("return") is None
    assert scene.insert(" first") is None
    assert scene.offer.leave(LATER) == Ended(
        outcome="partial", accepted_chars=12, start=0, text="return first"
    )


def test_a_word_accepted_and_then_something_else_typed() -> None:
    scene = Scene("|\n", "return a + b")
    assert scene.insert("return") is None
    ended = scene.insert("!")
    assert ended == Ended(outcome="partial", accepted_chars=6, start=0, text="return")


def test_words_up_to_the_end_are_accepted() -> None:
    scene = Scene("|", "return value")
    assert scene.insert("return") is None
    ended = scene.insert(" value")
    assert ended is not None
    assert (ended.outcome, ended.accepted_chars) == ("accepted", 12)


def test_typed_out_by_hand() -> None:
    ended = Scene("|\n", "ab = 1").keys("ab = 1")
    assert ended is not None
    assert (ended.outcome, ended.typed_chars, ended.accepted_chars) == ("typed", 6, 0)


def test_typed_through_in_part_and_then_accepted() -> None:
    scene = Scene("|\n", "return a")
    assert scene.keys("ret") is None
    ended = scene.insert("urn a")
    assert ended is not None
    assert (ended.outcome, ended.typed_chars, ended.accepted_chars) == ("accepted", 3, 5)


def test_several_keys_in_one_message_are_still_typed() -> None:
    scene = Scene("|\n", "return a")
    edits = [scene.replace(scene.at, scene.at, key) for key in "ret"]
    assert scene.look(*edits) is None
    assert scene.offer.leave(LATER) == Ended(outcome="rejected", typed_chars=3)


def test_brackets_that_close_themselves_are_typed_through() -> None:
    scene = Scene("|\n", "f(a, [b])")
    scene.keys("f")
    scene.document.replace(1, 1, "()")
    assert scene.offer.look(scene.document.text, [Edit(start=1, end=1, text="()")], LATER) is None
    scene.at = 2
    assert scene.keys("a, ") is None
    assert scene.look(scene.replace(5, 5, "[]")) is None
    scene.at = 6
    ended = scene.keys("b")
    assert ended == Ended(outcome="typed", typed_chars=9, start=0, text="f(a, [b])")


def test_a_closer_typed_over_the_one_behind_the_cursor() -> None:
    scene = Scene("f(|)\n", "a) + 1", eats=1)
    assert scene.keys("a") is None
    assert scene.look(scene.replace(3, 4, ")")) is None
    ended = scene.insert(" + 1")
    assert ended is not None
    assert (ended.outcome, ended.text) == ("accepted", "a) + 1")


def test_a_new_line_with_its_indentation_is_one_key() -> None:
    scene = Scene("if a:|\n", "\n    return b")
    assert scene.insert("\n    ") is None
    assert scene.offer.leave(LATER).outcome == "rejected"


def test_something_else_is_a_rejection_unless_nobody_can_have_read_it() -> None:
    for now, outcome in ((UNSEEN_S + 0.01, "rejected"), (UNSEEN_S - 0.01, "unseen")):
        ended = Scene("|\n", "return a").insert("x", now=now)
        assert ended is not None
        assert ended.outcome == outcome


def test_a_change_elsewhere_ends_it_too() -> None:
    for start, end, text in ((0, 0, "# new\n"), (5, 6, "Z")):
        scene = Scene("ab\n|\ncd", "return a")
        ended = scene.look(scene.document.replace(start, end, text))
        assert ended is not None
        assert ended.outcome == "rejected"


def test_a_partly_accepted_text_is_found_after_a_change_above_it() -> None:
    scene = Scene("ab\n|\ncd", "return a + b")
    scene.insert("return")
    ended = scene.look(scene.document.replace(0, 0, "# new\n"))
    assert ended is not None
    assert scene.document.text[ended.start :].startswith("return")


def test_taking_back_what_was_there_before_ends_it() -> None:
    scene = Scene("ret|\n", "return a", typed=3)
    assert scene.keys("u") is None
    assert scene.look(scene.replace(3, 4, "")) is None
    ended = scene.look(scene.replace(2, 3, ""))
    assert ended is not None
    assert ended.outcome == "rejected"


@pytest.mark.parametrize(
    ("newline", "sent", "arrives"),
    [
        ("\r\n", "a\n  b", "a\r\n  b"),
        ("\r\n", "a\r\n  b", "a\r\n  b"),
        ("\r\n", "a\r\n  b", "a\n  b"),
        ("\n", "a\r\n  b", "a\n  b"),
        ("\r", "a\n  b", "a\r  b"),
    ],
)
def test_line_ends_may_be_those_of_the_document(newline: str, sent: str, arrives: str) -> None:
    ended = Scene(f"x{newline}|{newline}y", sent).insert(arrives)
    assert ended is not None
    assert (ended.outcome, ended.text) == ("accepted", arrives)


def test_of_several_alternatives_any_can_be_accepted() -> None:
    document = Document("u", "x = \n")
    shown = [Shown(id=t, start=4, end=4, text=t, source="model") for t in ("one()", "two()", "on")]
    offer = Offer(document.snapshot(4), shown, 0.0)
    ended = offer.look("x = two()\n", [Edit(start=4, end=4, text="two()")], LATER)
    assert ended is not None
    assert (ended.outcome, ended.text) == ("accepted", "two()")


def continued(scene: Scene, *shown: Shown) -> bool:
    return scene.offer.continued_by(scene.snapshot(), shown)


def test_an_answer_that_goes_on_with_it_is_the_same_offer() -> None:
    scene = Scene("|\n", "return a")
    scene.keys("ret")
    rest = Shown(id="2", start=3, end=3, text="urn a", source="memory")
    assert continued(scene, rest)
    ended = scene.insert("urn a")
    assert ended is not None
    assert (ended.outcome, ended.typed_chars, ended.accepted_chars) == ("accepted", 3, 5)
    assert scene.offer.first.source == "model"


def test_a_longer_answer_goes_on_and_another_does_not() -> None:
    scene = Scene("|\n", "return a")
    longer = Shown(id="2", start=0, end=0, text="return a + b", source="model")
    other = Shown(id="3", start=0, end=0, text="raise", source="model")
    assert continued(scene, longer)
    assert not continued(scene, other)


def test_what_the_client_says_counts_more_than_what_it_looks_like() -> None:
    scene = Scene("|\n", "x")
    scene.offer.confirm("1")
    ended = scene.insert("x")
    assert ended is not None
    assert ended.outcome == "accepted"


def outcomes(keys: Sequence[str]) -> list[str]:
    scene = Scene("|\n", "ab(c)")
    found = [scene.insert(key) for key in keys]
    return [ended.outcome for ended in found if ended is not None]


def test_an_offer_ends_once() -> None:
    assert outcomes(["a", "b(c)"]) == ["accepted"]
    assert outcomes(["a", "x"]) == ["rejected"]
