"""The store against a model of it: any sequence of what two windows may do to trees of messages."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from tui.history import History, HistoryError

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


class Trees(RuleBasedStateMachine):
    """`said` has each message as (conversation, parent, text, state); `left` each leaf."""

    conversations = Bundle("conversations")
    messages = Bundle("messages")
    windows = st.integers(0, 1)

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.open = [History.open(self.folder / "h.sqlite") for _ in range(2)]
        self.left: dict[int, int | None] = {}
        self.titles: dict[int, str] = {}
        self.said: dict[int, tuple[int, int | None, str, str]] = {}
        self.writing: dict[int, int] = {}
        """Answers in progress, and the window that writes each."""

    def teardown(self) -> None:
        for history in self.open:
            history.close()
        shutil.rmtree(self.folder)

    @rule(target=conversations, window=windows)
    def create(self, window: int) -> int:
        made = self.open[window].create().id
        self.left[made] = None
        self.titles[made] = ""
        return made

    @rule(
        target=messages,
        window=windows,
        conversation=conversations,
        parent=st.one_of(st.none(), messages),
        text=TEXTS,
        answer=st.sampled_from(["user", "assistant", "in progress"]),
    )
    def add(
        self, window: int, conversation: int, parent: int | None, text: str, answer: str
    ) -> int:
        history = self.open[window]
        role: Any = "user" if answer == "user" else "assistant"
        state: Any = "partial" if answer == "in progress" else "whole"
        right = parent is None or self.said.get(parent, (None,))[0] == conversation
        if conversation not in self.left or not right:
            with pytest.raises(HistoryError):
                history.add(conversation, parent, role, text, state=state)
            return parent or 0
        made = history.add(conversation, parent, role, text, state=state).id
        assert made not in self.said
        self.said[made] = (conversation, parent, text, state)
        self.left[conversation] = made
        if state == "partial":
            self.writing[made] = window
        return made

    @rule(window=windows, message=messages, text=TEXTS)
    def journal(self, window: int, message: int, text: str) -> None:
        if message not in self.said or self.writing.get(message, window) != window:
            with pytest.raises(HistoryError):
                self.open[window].journal(message, text, b"")
            return
        self.open[window].journal(message, text, text.encode())
        self._now(message, text, "partial")
        self.writing[message] = window

    @rule(window=windows, message=messages, text=TEXTS, state=st.sampled_from(["whole", "failed"]))
    def finish(self, window: int, message: int, text: str, state: Any) -> None:
        if message not in self.said or self.writing.get(message, window) != window:
            with pytest.raises(HistoryError):
                self.open[window].finish(message, text, state, None, b"")
            return
        self.open[window].finish(message, text, state, None, b"")
        self._now(message, text, state)
        self.writing.pop(message, None)

    def _now(self, message: int, text: str, state: str) -> None:
        conversation, parent, *_ = self.said[message]
        self.said[message] = (conversation, parent, text, state)

    @rule(window=windows, conversation=conversations, leaf=st.one_of(st.none(), messages))
    def set_leaf(self, window: int, conversation: int, leaf: int | None) -> None:
        right = leaf is None or self.said.get(leaf, (None,))[0] == conversation
        if conversation in self.left and right:
            self.open[window].set_leaf(conversation, leaf)
            self.left[conversation] = leaf
            return
        with pytest.raises(HistoryError):
            self.open[window].set_leaf(conversation, leaf)

    @rule(window=windows, conversation=conversations)
    def delete(self, window: int, conversation: int) -> None:
        within = [message for message, said in self.said.items() if said[0] == conversation]
        if conversation not in self.left or set(within) & set(self.writing):
            with pytest.raises(HistoryError):
                self.open[window].delete(conversation)
            return
        self.open[window].delete(conversation)
        del self.left[conversation]
        for message in within:
            del self.said[message]

    @rule(window=windows)
    def reopen(self, window: int) -> None:
        self.open[window].close()
        self.open[window] = History.open(self.folder / "h.sqlite")
        assert self.open[window].notice == ""
        self.writing = {m: owner for m, owner in self.writing.items() if owner != window}

    @invariant()
    def both_windows_see_the_model(self) -> None:
        for history in self.open:
            assert {c: history.leaf(c) for c in self.left} == self.left
            listed = {found.id: found.messages for found in history.conversations(limit=10_000)}
            counts: dict[int, int] = {}
            for conversation, *_ in self.said.values():
                counts[conversation] = counts.get(conversation, 0) + 1
            assert listed == counts

    @invariant()
    def every_thread_is_the_path_to_the_root(self) -> None:
        for message, (conversation, parent, text, state) in self.said.items():
            thread = self.open[0].thread(message)
            (found,) = thread[-1:]
            assert (found.conversation, found.parent) == (conversation, parent)
            assert (found.content, found.state) == (text, state)
            assert [one.id for one in thread[:-1]] == self._path(parent)
            beside = [m for m, said in self.said.items() if said[:2] == (conversation, parent)]
            assert [one.id for one in self.open[1].siblings(message)] == sorted(beside)
            assert self.open[0].tip(message) == self._tip(message)

    def _path(self, message: int | None) -> list[int]:
        return [] if message is None else [*self._path(self.said[message][1]), message]

    def _tip(self, message: int) -> int:
        below = [m for m, said in self.said.items() if said[1] == message]
        return self._tip(max(below)) if below else message

    @invariant()
    def the_index_agrees(self) -> None:
        self.open[0]._store.index.check()


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
