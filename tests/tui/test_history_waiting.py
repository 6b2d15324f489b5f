"""Questions that wait for the engine: kept, asked or taken back, and found after a window died."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol import ChatPrompt, SamplingParams, Snippet, Steering
from tui.conversation import Talk
from tui.history import History


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def talk_on(history: History) -> Talk:
    return Talk(history, SamplingParams(), Steering())


def die(history: History) -> None:
    """End a window as `kill -9` does: its lock is free, and nothing was settled."""
    opened = history._store._opened
    assert opened is not None
    opened.window.release()


def left(history: History) -> int:
    (rows,) = history._store.connection.execute("SELECT count(*) FROM waiting").fetchone()
    return int(rows)


def threads(history: History) -> list[list[tuple[str, str, str]]]:
    """What was said in every conversation, the latest first: role, text and state."""
    leaves = [history.leaf(one.id) for one in history.conversations()]
    return [
        [(said.role, said.content, said.state) for said in history.thread(leaf)]
        for leaf in leaves
        if leaf is not None
    ]


@pytest.mark.parametrize("killed", [True, False])
def test_what_waited_in_a_window_that_is_gone_can_be_asked(path: Path, killed: bool) -> None:
    history = History.open(path)
    talk = talk_on(history)
    talk.set_system("be brief")
    file = Snippet(path="a.py", text="x = 1\n")
    talk.wait("why?", [file])
    talk.wait("and how?", [])
    assert history.conversations() == []
    die(history) if killed else history.close()
    other = History.open(path)
    ((conversation,), thread) = other.conversations(), threads(other)
    assert (conversation.title, conversation.system) == ("why?", "be brief")
    assert thread == [
        [("user", "why?", "whole"), ("user", "and how?", "whole"), ("assistant", "", "partial")]
    ]
    assert left(other) == 0
    assert [one.id for one in other.conversations("how")] == [conversation.id]
    talk = talk_on(other)
    *_, answer = talk.open(conversation.id)
    asked = talk.answer_again(answer)
    assert isinstance(asked.request.prompt, ChatPrompt)
    system, question = asked.request.prompt.turns
    assert system.content == "be brief"
    assert "x = 1" in question.content
    assert question.content.endswith("why?\n\nand how?")
    other.close()


def test_a_question_goes_below_the_answer_that_it_waited_for(path: Path) -> None:
    history = History.open(path)
    talk = talk_on(history)
    asked = talk.ask("first")
    history.journal(asked.answer, "half an ans", b"")
    talk.wait("second", [])
    die(history)
    other = History.open(path)
    assert threads(other) == [
        [
            ("user", "first", "whole"),
            ("assistant", "half an ans", "partial"),
            ("user", "second", "whole"),
            ("assistant", "", "partial"),
        ]
    ]
    other.close()


def test_a_question_that_is_asked_or_taken_back_waits_no_more(path: Path) -> None:
    history = History.open(path)
    talk = talk_on(history)
    asked, back = talk.wait("asked", []), talk.wait("taken back", [])
    talk.ask("asked", waited=asked)
    assert left(history) == 1
    history.take_back(back)
    assert left(history) == 0
    die(history)
    other = History.open(path)
    assert threads(other) == [[("user", "asked", "whole"), ("assistant", "", "partial")]]
    other.close()


def test_what_waits_in_a_living_window_is_left_alone(path: Path) -> None:
    history, other = History.open(path), History.open(path)
    talk = talk_on(history)
    kept = talk.wait("mine", [])
    other.close()
    History.open(path).close()
    assert left(history) == 1
    talk.ask("mine", waited=kept)
    assert len(threads(history)) == 1
    history.close()


def test_a_conversation_that_is_deleted_takes_along_what_waits_for_it(path: Path) -> None:
    history, other = History.open(path), History.open(path)
    talk = talk_on(history)
    asked = talk.ask("first")
    history.finish(asked.answer, "yes", "whole", None, b"")
    talk.wait("secret", [])
    other.delete(other.conversations()[0].id)
    assert left(history) == 0
    history.close()
    assert other.conversations() == []
    other.close()


@pytest.mark.parametrize("begun", [False, True])
def test_what_waits_behind_a_question_goes_below_its_answer(path: Path, begun: bool) -> None:
    history = History.open(path)
    talk = talk_on(history)
    if begun:
        history.finish(talk.ask("zero").answer, "none", "whole", None, b"")
    first = talk.wait("first", [])
    talk.wait("second", [])
    talk.wait("third", [])
    asked = talk.ask("first", waited=first)
    history.journal(asked.answer, "half an ans", b"")
    die(history)
    other = History.open(path)
    before = [("user", "zero"), ("assistant", "none")] if begun else []
    assert [[said[:2] for said in thread] for thread in threads(other)] == [
        [
            *before,
            ("user", "first"),
            ("assistant", "half an ans"),
            ("user", "second"),
            ("user", "third"),
            ("assistant", ""),
        ]
    ]
    other.close()
