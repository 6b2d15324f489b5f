"""Questions and answers of one window: what waits, what runs, what comes next.

Owns the answer under way (or the check of one) and the questions that wait for it. It is the
screen's right hand: all of it runs on the event loop and talks to widgets through the screen. It
must not know how a request travels.

Invariant: at most one stream runs at a time; a question that was sent is asked, waits in sight, or
is back in the input.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import EngineError, EngineStatus, RequestError
from tui import endings, fitting
from tui.answer_record import AnswerRecord
from tui.checking import Checked, rerun
from tui.conversation import Asked, Talk
from tui.history_file import HistoryError
from tui.meter_state import MeterState, begin, new_conversation, with_status, with_steering
from tui.pastes import joined
from tui.stream import AnswerStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.protocol import PromptCost, Snippet, Steering
    from tui.chat_parts import ChatParts
    from tui.fitting import Question
    from tui.history import Message
    from tui.messages import AnswerOver, AnswerProgress

log = logging.getLogger(__name__)


class Asking:
    """The talk of one window with the engine."""

    def __init__(self, screen: ChatParts, talk: Talk) -> None:
        self.talk = talk
        self.meter = MeterState()
        self.status: EngineStatus | None = None
        self.waiting: list[Question] = []
        self.lost: str | None = None
        """The text of the answer that broke off when the engine was lost."""
        self._screen = screen
        self._stream: AnswerStream | None = None
        self._check: Checked | None = None
        self._sending = False
        self._leaving = False

    @property
    def running(self) -> bool:
        """Whether an answer or a check is under way."""
        return self._stream is not None

    @property
    def answering(self) -> bool:
        """Whether an answer is under way whose drafting can be changed; a check's can't."""
        return self._stream is not None and self._check is None

    @property
    def ready(self) -> bool:
        """Whether the engine has its model in memory."""
        return self.status is not None and self.status.state == "ready"

    async def send(self, question: Question) -> None:
        """Ask, now or when what is in the way is over."""
        self._screen.opening.wake()
        # Behind those that wait already, also where nothing is in their way any more.
        self.waiting.append(question)
        if not self._is_free or len(self.waiting) > 1:
            self._screen.show_line()
            await self._keep(question)
        await self.send_waiting()

    async def send_waiting(self) -> None:
        """Ask the first question that waits, if nothing is in its way any more."""
        if self.waiting and self._is_free:
            await self._send(self.waiting.pop(0))
            self._screen.show_line()

    def take_back(self) -> None:
        """Put what waits back into the input, in front of what is being typed. In a window that
        is closing it stays: the history asks it."""
        if not self.waiting or self._leaving:
            return
        prompt, waiting = self._screen.prompt, self.waiting
        self.waiting = []
        draft = joined([*(question.draft for question in waiting), prompt.draft])
        snippets = [snippet for question in waiting for snippet in question.snippets]
        prompt.load(draft, snippets)
        self._screen.show_line()
        for question in waiting:
            self._screen.act(self._forget(question))

    @property
    def _is_free(self) -> bool:
        """Whether a question can be asked now."""
        return self.ready and not self.running and not self._sending

    async def _keep(self, question: Question) -> None:
        """Have the history keep a question that waits, so that it outlives this window."""
        try:
            waited = await asyncio.to_thread(self.talk.wait, question.text, question.snippets)
        except HistoryError as error:
            # Whoever asks it will be told.
            log.warning("a question waits in memory only: %s", error)
            return
        kept = replace(question, waited=waited)
        for at, waiting in enumerate(self.waiting):
            if waiting is question:
                self.waiting[at] = kept
                return
        await self._forget(kept)  # it has been sent or taken back meanwhile

    async def _forget(self, question: Question) -> None:
        """A question that waited is back in the input."""
        if question.waited is not None:
            await asyncio.to_thread(self.talk.history.take_back, question.waited)

    async def _send(self, question: Question) -> None:
        self._sending = True
        try:
            fitted = await fitting.fitted(self._screen, question)
            if fitted is None:
                self._screen.prompt.load(question.draft, question.snippets)
                await self._forget(question)
                return
            asked = await self._asked(fitted)
            await self._screen.transcript.add_user(asked.question, fitted.text, fitted.snippets)
            await self.begin(asked)
        except EngineError as error:
            self._screen.tell(error)
            self._screen.prompt.load(question.draft, question.snippets)
            self._screen.act(self._forget(question))
        finally:
            self._sending = False

    async def _asked(self, question: Question) -> Asked:
        """Put a question into the history; from here on in memory where the file takes no more."""
        waited = question.waited
        ask = partial(self.talk.ask, question.text, question.snippets, waited=waited)
        try:
            return await asyncio.to_thread(ask)
        except HistoryError as error:
            if not await asyncio.to_thread(self.talk.history.go_on_without_file, error):
                raise
            said = f"{error.message}. What is said now is kept only until this window is closed."
            self._screen.note(said, "warning")
            return await asyncio.to_thread(ask)

    async def begin(self, asked: Asked) -> None:
        """Start the stream of an answer."""
        self.lost = None
        await self._screen.begin_answer(asked.answer)
        self._start(asked, AnswerRecord(self.talk.history, asked))

    async def again(self, message: Message) -> None:
        """Answer a question once more, beside the answer it has."""
        await self._begin_with(self.talk.answer_again, message)

    async def go_on(self, message: Message) -> None:
        """Continue an answer that was stopped, cut, or lost."""
        await self._begin_with(self.talk.go_on, message)

    async def _begin_with(self, ask: Callable[[Message], Asked], message: Message) -> None:
        self.refuse_while_running()
        # From here on: until the stream is there, another key would start a second one.
        self._sending = True
        try:
            asked = await asyncio.to_thread(ask, message)
            await self._screen.show_thread()
            await self.begin(asked)
        finally:
            self._sending = False
            self._screen.act(self.send_waiting())  # where nothing was begun, nothing will end

    async def check(self, message: Message) -> None:
        """Run an answer's request again without drafting, to compare. Raises `EngineError`."""
        self.refuse_while_running()
        request = self.talk.plainly(message.id)
        asked = self.talk.asked[message.id]
        self._check, request = rerun(message, asked, request)
        self._screen.note("check: answering again without drafts …")
        self._start(replace(asked, request=request, head="", head_kinds=b""), None)

    def stop(self) -> bool:
        """Stop what runs, keeping what came; False if nothing does."""
        if self._stream is None:
            return False
        self._stream.cancel()
        return True

    async def leave(self) -> None:
        """Stop what runs and wait until what came is kept; what waits stays to be asked."""
        self._leaving = True
        if self._stream is not None:
            await self._stream.stopped()

    async def steer(self, steering: Steering) -> None:
        """Draft differently, the running answer included."""
        self.talk.steering = steering
        self._show(self.meter)
        if self._stream is not None and self._check is None:
            await self._stream.steer(steering)

    async def progress(self, event: AnswerProgress) -> None:
        """Show what came."""
        if self._check is None:
            await self._screen.append(event.deltas)
        self._show(event.meter)

    async def over(self, event: AnswerOver) -> None:
        """Settle an answer that ended, and ask what waits."""
        self._stream = None
        outcome = event.outcome
        if self._check is not None:
            # How its rerun ended says nothing of the answer.
            self._show(replace(event.meter, finish=None))
            checked, self._check = self._check, None
            exact = self.status is not None and self.status.exact
            self._screen.note(*endings.of_check(checked, outcome, exact=exact))
        else:
            self._show(event.meter)
            await self._screen.finish(outcome.text)
            if outcome.failed is not None and outcome.failed.code == "engine_lost":
                self.lost = outcome.text
            for sentence, kind in endings.of_answer(outcome, self.talk.sampling.max_tokens):
                self._screen.note(sentence, kind)
        if outcome.finished is None or outcome.finished.reason == "cancelled":
            self.take_back()

    def status_changed(self, status: EngineStatus) -> None:
        """Take over what the engine says of itself."""
        self.status = status
        self.talk.model = status.model
        self._show(self.meter)

    def engine_back(self) -> str | None:
        """A lost engine has its model again; gives the text of the answer that broke off then."""
        if self.meter.phase == "failed":
            self._show(replace(self.meter, phase="over", failure=None))
        return self.lost

    def new(self) -> None:
        """Begin a new conversation."""
        self.move_on()
        self.talk.new()
        self.forget_context()

    def forget_context(self) -> None:
        """Another conversation is open: what is known of the context was the other's."""
        self._show(new_conversation(self.meter))

    async def cost_of(self, text: str, snippets: tuple[Snippet, ...]) -> PromptCost:
        """What a question would take of the context. Raises `EngineError`."""
        if not self.ready:
            raise RequestError("not_ready", "the model is not in memory yet", "Wait a moment.")
        prompt = await asyncio.to_thread(self.talk.prompt_with, text, snippets)
        return await self._screen.opening.engine.measure(prompt)

    def _start(self, asked: Asked, record: AnswerRecord | None) -> None:
        self._show(begin(self.meter))
        self._stream = AnswerStream(
            self._screen.opening.engine,
            asked.request,
            record or AnswerRecord(None, asked),
            self._screen.post_message,
            self.meter,
        )
        self._stream.start()

    def _show(self, meter: MeterState) -> None:
        meter = with_steering(meter, self.talk.steering)
        self.meter = with_status(meter, self.status) if self.status is not None else meter
        self._screen.show_meter(self.meter)

    def move_on(self) -> None:
        """Before another place becomes the one to ask at: what waits was meant for this one, and
        is back in the input. Raises `RequestError` while an answer is under way."""
        self.refuse_while_running()
        self.take_back()

    def refuse_while_running(self) -> None:
        """Raises `RequestError` while an answer is under way."""
        if self.running or self._sending:
            raise RequestError("busy", "an answer is under way", "Esc stops it.")
