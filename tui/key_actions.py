"""What each key, and each entry of the palette, does with the parts of the chat's screen.

Owns the `action_…` methods that `keys.KEYS` names and the ctrl+c ladder. Actions return at once;
whatever waits is handed to `act`. What the parts say of themselves is the screen's business.

Invariant: every action of `keys.KEYS` is here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

from msgspec.structs import replace
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets.text_area import Selection

from engine.protocol import RouteChoice, Steering
from tui.chat_parts import ChatParts
from tui.keys import bindings
from tui.prompt_area import PromptArea

if TYPE_CHECKING:
    from tui.chat_app import ChatStart
    from tui.history import Message

ARMED_S = 3.0
"""A second ctrl+c within this time leaves the chat."""
ROUTES: tuple[RouteChoice, ...] = get_args(RouteChoice)
PINNED = (None, 1, 2, 4, 8)
"""The routes and the values of k that a key goes through."""


class KeyActions(ChatParts):
    """One window, as its keys see it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings()]

    def __init__(self, start: ChatStart) -> None:
        super().__init__(start)
        self._armed = float("-inf")
        self._before_off: RouteChoice = "auto"

    async def interrupt(self) -> None:
        """One rung of the ladder: copy the selection, clear the input, stop, arm, leave."""
        if await self.copy_selection(self):
            return
        if self.prompt.has_text:
            self.prompt.clear()
        elif not self.asking.stop():
            now = time.monotonic()
            if now - self._armed < ARMED_S:
                await self.chat_app.action_leave()
            self._armed = now
            self.say("ctrl+c again leaves the chat")

    async def copy_selection(self, screen: Screen[Any]) -> bool:
        """Copy what is selected, if anything is; then nothing is selected any more."""
        text = screen.get_selected_text()
        if not text and self.prompt.selected_text and screen is self:
            text = self.prompt.selected_text
            area = self.prompt.query_one(PromptArea)
            area.selection = Selection.cursor(area.cursor_location)
        if not text:
            return False
        screen.clear_selection()
        self.act(self.files.copy(text))
        return True

    def show_details(self, *, shown: bool) -> None:
        """Open or close the details; what they tell of editors is read each time they open."""
        opens = shown and not self.details.has_class("-shown")
        self.details.set_class(shown, "-shown")
        self.details.show(self.asking.meter)
        if opens:
            self.act(self._show_editor())

    async def leave(self) -> None:
        """Settle everything before the application ends."""
        await self.asking.leave()
        self.opening.close()

    async def steer(self, steering: Steering) -> None:
        """Draft differently from now on, and say how, in place of what was said before."""
        await self.asking.steer(steering)
        k = "k is free" if steering.k is None else f"k is {steering.k}"
        begins = "from the next round on" if self.asking.answering else "for the next answer"
        self.chat_app.say_instead(f"route {steering.route}, {k}: {begins}")

    async def choose_conversation(self, query: str) -> None:
        """Let the user go to a kept conversation."""
        from tui.sessions_screen import SessionsScreen

        talk = self.asking.talk
        screen = SessionsScreen(talk.history, current=talk.conversation, query=query)
        chosen = await self.app.push_screen_wait(screen)
        if chosen is None:
            return
        self.asking.move_on()
        await asyncio.to_thread(talk.open, chosen)
        self.asking.forget_context()
        await self.show_thread()
        self.prompt.focus()

    def action_help(self) -> None:
        from tui.help_screen import HelpScreen

        self.app.push_screen(HelpScreen())

    def action_palette(self) -> None:
        self.app.action_command_palette()

    def action_stop(self) -> None:
        """Stop the answer; else give up a load; else go back to the input."""
        if self.asking.stop():
            return
        if self.opening.loading:
            self.asking.take_back()
            self.act(self.opening.stop_loading())
        self.prompt.focus()

    def action_details(self) -> None:
        self.show_details(shown=not self.details.has_class("-shown"))

    def action_provenance(self) -> None:
        self.act(self.transcript.set_provenance(not self.transcript.provenance))

    def action_sessions(self) -> None:
        self.act(self.choose_conversation(""))

    def action_new(self) -> None:
        self.act(self._new())

    def action_cycle_route(self) -> None:
        steering = self.asking.talk.steering
        self.act(self.steer(replace(steering, route=_next(ROUTES, steering.route))))

    def action_pin_k(self) -> None:
        steering = self.asking.talk.steering
        self.act(self.steer(replace(steering, k=_next(PINNED, steering.k))))

    def action_speculation(self) -> None:
        """Off is the plain route; on is the route there was before."""
        steering = self.asking.talk.steering
        route: RouteChoice = "plain"
        if steering.route == "plain":
            route = self._before_off
        else:
            self._before_off = steering.route
        self.act(self.steer(replace(steering, route=route)))

    def action_check(self) -> None:
        self.act(self._with_last(self.asking.check))

    def action_regenerate(self) -> None:
        self.act(self._with_last(self.asking.again))

    def action_go_on(self) -> None:
        self.act(self._with_last(self.asking.go_on))

    def action_model(self) -> None:
        self.act(self.opening.choose())

    def action_export(self) -> None:
        self.act(self.files.export(self.asking.talk, ""))

    def action_undo(self) -> None:
        self.act(self.files.undo())

    def action_version(self) -> None:
        self.act(self._other_version())

    async def _show_editor(self) -> None:
        self.details.show_editor(await asyncio.to_thread(self.start_with.editor_statistics))

    async def _other_version(self) -> None:
        """Go to the next of several messages in one place: the one the keys are at, or the last
        that has others beside it."""
        self.asking.move_on()
        history, current = self.asking.talk.history, self.transcript.current
        if (edited := self.asking.talk.edited) is not None:
            await self._show_tip(edited.id)
            self.chat_app.say_instead("back to what was asked before")
            return
        thread = await asyncio.to_thread(self.asking.talk.thread)
        at = current.entry.message_id if current is not None else None
        for message in reversed(thread):
            beside = await asyncio.to_thread(history.siblings, message.id)
            if len(beside) > 1 and at in (None, message.id):
                ids = [one.id for one in beside]
                place = (ids.index(message.id) + 1) % len(ids)
                await self._show_tip(ids[place])
                self.chat_app.say_instead(f"version {place + 1} of {len(ids)}")
                return
        self.chat_app.say_instead("there is only one version")

    async def _show_tip(self, message: int) -> None:
        """Go to the end of the newest branch from a message on."""
        history = self.asking.talk.history
        tip = await asyncio.to_thread(history.tip, message)
        place = await asyncio.to_thread(history.message, tip)
        await asyncio.to_thread(self.asking.talk.go_to, place)
        await self.show_thread()

    async def _new(self) -> None:
        self.asking.new()
        await self.show_thread()
        self.prompt.focus()

    async def _with_last(self, deed: Callable[[Message], Coroutine[Any, Any, None]]) -> None:
        await deed(await self.last_answer())


T = TypeVar("T")


def _next(values: tuple[T, ...], present: T) -> T:
    place = values.index(present) + 1 if present in values else 0
    return values[place % len(values)]
