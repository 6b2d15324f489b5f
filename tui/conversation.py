"""The conversation that is open: what was said, and what the next request to the engine is.

Owns the place in the tree of messages, the sampling, the steering, and which older messages are no
longer sent. Textual-free and synchronous: it writes through `History` and returns what to ask. It
must not know widgets, tasks or the engine's whereabouts.

Invariant: a request holds exactly the turns from the root to its place in the tree, less those in
`left_out`, and nothing is ever left out without the user having chosen so.
"""

from __future__ import annotations

import re
import uuid
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    ChatPrompt,
    GenerateRequest,
    RequestError,
    SamplingParams,
    Snippet,
    Steering,
    Turn,
)
from tui.history_waiting import Waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tui.history import History, Message

MOST_ASKED = 64
"""Requests that are kept for a check; each holds all that was said until then."""


class Asked(Struct, frozen=True, kw_only=True):
    """A question that is ready to be put to the engine, and the message its answer goes into."""

    request: GenerateRequest
    question: int
    answer: int
    """Ids of the messages that hold the question and the answer."""
    head: str = ""
    """Text of the answer that is there already, when an unfinished one is gone on with."""
    head_kinds: bytes = b""


class Talk:
    """One window's place in one conversation."""

    def __init__(self, history: History, sampling: SamplingParams, steering: Steering) -> None:
        self.history = history
        self.sampling = sampling
        self.steering = steering
        self.conversation: int | None = None
        """None until the first question is asked, so that opening a window leaves no trace."""
        self.leaf: int | None = None
        self.system = ""
        self.model = ""
        """What answers now, noted with each answer."""
        self._edited: Message | None = None
        self.left_out: set[int] = set()
        """Ids of messages that the user chose not to send any more."""
        self.asked: dict[int, Asked] = {}
        """The latest request of each answer that this window saw made of late."""

    def new(self) -> None:
        """Begin afresh; the system text stays."""
        self.conversation = self.leaf = None
        self.left_out = set()

    def open(self, conversation: int) -> list[Message]:
        """Go to where a kept conversation was left, and return what was said there."""
        self.conversation = conversation
        self.left_out = set()
        self.leaf = self.history.leaf(conversation)
        self.system = self.history.conversation(conversation).system
        return self.thread()

    def thread(self) -> list[Message]:
        """Everything said from the root to the place in the tree."""
        return [] if self.leaf is None else self.history.thread(self.leaf)

    def set_system(self, text: str) -> None:
        """What the model is told before everything else; empty for nothing."""
        self.system = text
        if self.conversation is not None:
            self.history.system(self.conversation, text)

    def prompt_with(self, text: str, snippets: Sequence[Snippet] = ()) -> ChatPrompt:
        """The prompt that a question asked now would make; changes nothing."""
        return self._prompt(self.thread(), text, snippets)

    def messages_of_turns(self) -> tuple[tuple[int, ...], ...]:
        """For each turn of a prompt made now, the ids of the messages in it."""
        said = [*self._said(self.thread()), (0, Turn(role="user", content=""))]
        return tuple(tuple(id_ for id_, _ in group if id_) for group in _alternating(said))

    def wait(self, text: str, snippets: Sequence[Snippet]) -> int:
        """Keep a question that can't be asked yet, under the number that is returned."""
        question = Waits(
            conversation=self.conversation,
            parent=self.leaf,
            system=self.system,
            content=text,
            snippets=tuple(snippets),
        )
        return self.history.wait(question)

    def ask(
        self, text: str, snippets: Sequence[Snippet] = (), *, waited: int | None = None
    ) -> Asked:
        """Add a question at the place in the tree, and an empty answer below it; `waited` is the
        number it had until now."""
        prompt = self.prompt_with(text, snippets)
        if self.conversation is None:
            self.conversation = self.history.create(self.system).id
        question = self.history.add(
            self.conversation, self.leaf, "user", text, snippets=tuple(snippets), waited=waited
        )
        return self._answer_to(question.id, prompt)

    def answer_again(self, message: Message) -> Asked:
        """A second answer beside the first: `message` is the answer, or the question it is to."""
        question = message.id if message.role == "user" else message.parent
        if question is None:
            raise _no_question()
        *before, asked = self.history.thread(question)
        return self._answer_to(question, self._prompt(before, asked.content, asked.snippets))

    def go_on(self, answer: Message) -> Asked:
        """Continue an answer that was stopped or cut, in the same message.

        Raises `RequestError` for anything else.
        """
        if answer.role != "assistant" or answer.parent is None:
            raise _no_question()
        *before, question, unfinished = self.history.thread(answer.id)
        if unfinished.state == "whole":
            raise RequestError(
                "complete", "that answer ended by itself", "Ask for more of it instead."
            )
        if not unfinished.content:
            raise RequestError(
                "nothing_to_continue",
                "that answer has no text yet",
                "Ask for it again instead: /regenerate.",
            )
        asked = self._prompt(before, question.content, question.snippets)
        begun = Turn(role="assistant", content=unfinished.content)
        self.go_to(answer)
        return self._asked(
            replace(asked, turns=(*asked.turns, begun)),
            Asked(
                request=_EMPTY,
                question=question.id,
                answer=answer.id,
                head=unfinished.content,
                head_kinds=unfinished.kinds,
            ),
        )

    def go_to(self, message: Message) -> None:
        """Make `message` the place in the tree: the next question branches off there."""
        self.leaf, self._edited = message.id, None
        self.history.set_leaf(message.conversation, message.id)

    def go_before(self, question: Message) -> None:
        """Make the place in the tree the one just before `question`, to ask it differently. The
        history hears of it when that is asked: whoever leaves it at that finds all as it was."""
        self.leaf = question.parent
        self._edited = question

    @property
    def edited(self) -> Message | None:
        """The question that is being asked differently."""
        one = self._edited
        here = one is not None and (one.conversation, one.parent) == (self.conversation, self.leaf)
        return one if here else None

    def plainly(self, answer: int) -> GenerateRequest:
        """The request that made an answer, to be run again without drafting.

        Raises `RequestError` for an answer that was sampled, or that another window saw made.
        """
        asked = self.asked.get(answer)
        if asked is None:
            raise RequestError(
                "not_checkable",
                "that answer was made long ago or elsewhere, and its exact request is not known",
                "Ask for it again (/regenerate), then check that answer.",
            )
        if asked.request.sampling.temperature > 0:
            raise RequestError(
                "not_checkable",
                f"that answer was sampled at temperature {asked.request.sampling.temperature}",
                "Only greedy answers repeat: /temperature 0, then ask again.",
            )
        return replace(asked.request, id=uuid.uuid4().hex, route="plain", k=None)

    def _prompt(
        self, before: Sequence[Message], text: str, snippets: Sequence[Snippet]
    ) -> ChatPrompt:
        """A question behind earlier messages. Their files are quoted in place, just as the engine
        quotes those of the last question, so that the prompt's beginning never changes and its KV
        holds. Questions without an answer between them become one turn: some templates take no
        two in a row."""
        asked = Turn(role="user", content=text)
        groups = _alternating([*self._said(before), (0, asked)])
        turns = (_joined([turn for _, turn in group]) for group in groups)
        return ChatPrompt(turns=tuple(turns), snippets=tuple(snippets))

    def _said(self, messages: Sequence[Message]) -> list[tuple[int, Turn]]:
        """What is sent of earlier messages, each with its id; the system text has none."""
        system = [(0, Turn(role="system", content=self.system))] if self.system else []
        return system + [
            (m.id, Turn(role=m.role, content="".join(map(_quoted, m.snippets)) + m.content))
            for m in messages
            if self._is_sent(m)
        ]

    def _is_sent(self, message: Message) -> bool:
        return message.id not in self.left_out and bool(message.content or message.snippets)

    def _answer_to(self, question: int, prompt: ChatPrompt) -> Asked:
        conversation = self.history.message(question).conversation
        answer = self.history.add(
            conversation,
            question,
            "assistant",
            "",
            state="partial",
            sampling=self.sampling,
            model=self.model,
        )
        self.go_to(answer)
        return self._asked(prompt, Asked(request=_EMPTY, question=question, answer=answer.id))

    def _asked(self, prompt: ChatPrompt, asked: Asked) -> Asked:
        request = GenerateRequest(
            id=uuid.uuid4().hex,
            prompt=prompt,
            sampling=self.sampling,
            route=self.steering.route,
            k=self.steering.k,
            client="chat",
            conversation=f"chat-{self.conversation}",
        )
        self.asked.pop(asked.answer, None)
        while len(self.asked) >= MOST_ASKED:
            del self.asked[next(iter(self.asked))]
        self.asked[asked.answer] = replace(asked, request=request)
        return self.asked[asked.answer]


_EMPTY = GenerateRequest(id="", prompt=ChatPrompt(turns=()))


def _alternating(said: Sequence[tuple[int, Turn]]) -> list[list[tuple[int, Turn]]]:
    """Neighbours of one role together."""
    return [list(group) for _, group in groupby(said, key=lambda one: one[1].role)]


def _joined(turns: Sequence[Turn]) -> Turn:
    return Turn(role=turns[0].role, content="\n\n".join(turn.content for turn in turns))


def _quoted(snippet: Snippet) -> str:
    ticks = max((len(run) for run in re.findall(r"`{3,}", snippet.text)), default=2)
    fence = "`" * (ticks + 1)
    end = "" if snippet.text.endswith("\n") else "\n"
    return f"{snippet.path}\n{fence}\n{snippet.text}{end}{fence}\n\n"


def _no_question() -> RequestError:
    return RequestError(
        "no_question", "that message is no answer to a question", "Choose an answer."
    )
