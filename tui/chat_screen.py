"""The chat's screen: transcript, input and meter, and every event that changes what they show.

Owns the layout and the handlers, which own all state through the parts (see `chat_parts`):
`asking` has question and answer, `opening` the engine and its model, `files` what touches files.
Handlers run on the event loop and are short. It must not know how the engine is reached.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import on

from tui import message_deeds, slash
from tui.fitting import Question
from tui.key_actions import KeyActions
from tui.messages import AnswerOver, AnswerProgress, EngineChanged, EngineGone, SettingsChanged
from tui.prompt import PromptInput
from tui.prompt_area import PromptArea
from tui.transcript import Transcript

if TYPE_CHECKING:
    from msgspec import Struct
    from textual.app import ComposeResult

    from tui.chat_app import ChatStart
    from tui.settings import LiveSettings

RECENT_PROMPTS = 200


class ChatScreen(KeyActions):
    """One window."""

    def __init__(self, start: ChatStart) -> None:
        super().__init__(start)
        self._in_force = start.settings
        """The settings as they were read last; the user may have chosen otherwise since."""

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.details
        yield self.line
        yield self.prompt
        yield self.meter

    def on_mount(self) -> None:
        """Show what there is; everything that takes time comes after the first paint."""
        self.show_details(shown=self.start_with.settings.chat.details)
        self.show_meter(self.asking.meter)
        self.show_line()
        # A cursor that blinks would be the one timer of an idle chat.
        self.prompt.query_one(PromptArea).cursor_blink = False
        self.prompt.focus()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        if self.start_with.history.notice:
            self.note(self.start_with.history.notice, "warning")
        self.act(self.opening.run())
        self.act(self._recall_prompts())
        if self.start_with.resume:
            self.act(self.choose_conversation(""))

    async def _recall_prompts(self) -> None:
        self.prompt.history = await asyncio.to_thread(
            self.start_with.history.recent_prompts, RECENT_PROMPTS
        )

    def begin_command(self, name: str) -> None:
        """Have a command that was chosen by name written, or run if it takes no argument."""
        if slash.takes_argument(name):
            self.prompt.load(f"/{name} ")
            self.prompt.focus()
        else:
            self.act(slash.run(self, name, ""))

    @on(PromptInput.Submitted)
    def _submitted(self, event: PromptInput.Submitted) -> None:
        self.files.digests |= event.digests
        question = Question(text=event.text, snippets=event.snippets, draft=event.draft)
        self.act(self.asking.send(question))

    @on(PromptInput.Command)
    def _command(self, event: PromptInput.Command) -> None:
        self.act(slash.run(self, event.name, event.argument))

    @on(AnswerProgress)
    async def _progress(self, event: AnswerProgress) -> None:
        await self.asking.progress(event)

    @on(AnswerOver)
    async def _over(self, event: AnswerOver) -> None:
        await self.asking.over(event)
        self.act(self.asking.send_waiting())

    @on(EngineChanged)
    def _engine_changed(self, event: EngineChanged) -> None:
        self.asking.status_changed(event.status)
        self.opening.status_changed(event.status)
        self.show_line()
        if event.status.state == "failed":
            self.asking.take_back()
        elif self.asking.waiting:
            self.act(self.asking.send_waiting())

    @on(EngineGone)
    def _engine_gone(self, event: EngineGone) -> None:
        self.opening.gone(event.failure)
        self.asking.take_back()

    @on(SettingsChanged)
    def _settings_changed(self, event: SettingsChanged) -> None:
        if event.settings is not None:
            self._take_over(event.settings)
        self.note(event.said)

    def _take_over(self, new: LiveSettings) -> None:
        """Do as the settings say where they say something new; the rest stays as it was chosen."""
        old, self._in_force, talk = self._in_force, new, self.asking.talk
        talk.sampling = replace(talk.sampling, **_news(old.sampling, new.sampling))
        news = _news(old.chat, new.chat)
        if "theme" in news:
            self.chat_app.put_on(new.chat.theme)
        if "details" in news:
            self.show_details(shown=new.chat.details)
        if "provenance" in news:
            self.act(self.transcript.set_provenance(new.chat.provenance))
        if new.route != old.route:
            self.act(self.asking.steer(replace(talk.steering, route=new.route)))

    @on(Transcript.Acted)
    def _acted(self, event: Transcript.Acted) -> None:
        self.act(message_deeds.run(self, event))


def _news(old: Struct, new: Struct) -> dict[str, Any]:
    """The fields of `new` that differ from those of `old`."""
    names = new.__struct_fields__
    return {name: getattr(new, name) for name in names if getattr(new, name) != getattr(old, name)}
