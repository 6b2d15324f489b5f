"""The parts of one chat window, and what they all need of its screen.

Owns the widgets and the parts (`asking`: question and answer, `opening`: the engine and its model,
`files`: what touches files) and the few ways in which these speak to the user. Keys are the
business of `key_actions`, events that of `chat_screen`.

Invariant: an error that a user can act on is shown as its own sentence, whatever raised it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from textual.screen import Screen

from engine.protocol import EngineError, RequestError, Steering
from tui.asking import Asking
from tui.conversation import Talk
from tui.details import Details
from tui.engine_line import EngineLine
from tui.file_actions import FileActions
from tui.meter import Meter
from tui.opening import Opening
from tui.prompt import PromptInput
from tui.transcript import Transcript

if TYPE_CHECKING:
    from engine.protocol import PromptCost, Snippet, TextDelta
    from tui.answer_view import AnswerView
    from tui.chat_app import ChatApp, ChatStart
    from tui.history import Message
    from tui.message_view import Kind
    from tui.meter_state import MeterState


HINT = "f1 help · ctrl+k all commands · tab to the messages"


class ChatParts(Screen[None]):
    """One window, taken apart."""

    def __init__(self, start: ChatStart) -> None:
        super().__init__()
        self.start_with = start
        steering = Steering(route=start.settings.route)
        self.asking = Asking(self, Talk(start.history, start.settings.sampling, steering))
        self.files = FileActions(self, start.root)
        self.opening = Opening(self, start)
        self.transcript = Transcript(provenance=start.settings.chat.provenance)
        self.prompt = PromptInput(start.root, count=self._count)
        self.details = Details()
        self.line = EngineLine()
        self.meter = Meter()
        self._answer: AnswerView | None = None

    @property
    def chat_app(self) -> ChatApp:
        """The application, as what it is."""
        return cast("ChatApp", self.app)

    def act(self, deed: Coroutine[Any, Any, None]) -> None:
        """Run something that waits beside the handlers; what goes wrong is told."""

        async def run() -> None:
            try:
                await deed
            except EngineError as error:
                self.tell(error)

        self.run_worker(run(), group="deeds")

    def say(self, text: str) -> None:
        """A short message that goes away."""
        self.chat_app.say(text)

    def note(self, text: str, kind: Kind = "information") -> None:
        """A sentence that stays in the transcript."""
        self.transcript.add_notice(text, kind)
        self.call_later(self.show_line)

    def tell(self, error: EngineError) -> None:
        """An error in its own words."""
        self.note(str(error), "error")

    def show_meter(self, meter: MeterState) -> None:
        """Draw the numbers as they are now."""
        self.meter.show(meter)
        self.details.show(meter)

    def show_line(self) -> None:
        """Say what the next answer waits for."""
        hint = "" if self.transcript.entries else HINT
        self.line.show(self.asking.status, len(self.asking.waiting), hint)

    async def show_thread(self) -> None:
        """Show the conversation from the root to where the talk is."""
        thread = await asyncio.to_thread(self.asking.talk.thread)
        await self.transcript.show_thread(thread)
        self.show_line()

    async def begin_answer(self, answer: int) -> None:
        """Show an answer that is about to come."""
        self._answer = await self.transcript.begin_answer(answer)
        self.show_line()

    async def append(self, deltas: tuple[TextDelta, ...]) -> None:
        """Show more of it."""
        if self._answer is not None:
            for delta in deltas:
                await self._answer.append(delta)

    async def finish(self, text: str) -> None:
        """It is over, and this is all of it."""
        if self._answer is not None:
            await self._answer.finish(text)
            self._answer = None

    async def last_answer(self) -> Message:
        """The answer that the talk is at. Raises `RequestError` if there is none."""
        thread = await asyncio.to_thread(self.asking.talk.thread)
        if not thread:
            raise RequestError("no_answer", "there is no answer yet", "Ask something first.")
        return thread[-1]

    async def _count(self, snippets: tuple[Snippet, ...]) -> PromptCost:
        return await self.asking.cost_of("", snippets)
