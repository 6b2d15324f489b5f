"""The conversation on the screen: messages from top to bottom, read by mouse or by keys.

Owns which messages have a widget (the latest ones; earlier ones come when asked for), whether the
end is followed, and which message the keys are at. Says by `Transcript.Acted` what the user wants
done; does none of it. Must not know the engine or the history.

Invariant: text that comes while the user reads elsewhere never moves what they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Click
from textual.message import Message

from engine.protocol import Snippet
from tui.answer_view import AnswerView
from tui.code_blocks import CodeBlock, code_blocks
from tui.message_actions import Choice, MessageActions, Verb, choices
from tui.message_scroll import Earlier, Messages, Pill
from tui.message_view import Entry, Kind, MessageView, ShownMessage

FIRST_LOAD = 20
"""Messages of a thread that are shown at once, and how many more each time they are asked for."""
PRUNE_ABOVE = 1500
KEEP_LINES = 1000
"""Lines that remain when more than `PRUNE_ABOVE` stand above the end."""


class Transcript(Container, can_focus=True):
    """The messages of a conversation."""

    DEFAULT_CSS = """
    Transcript { layers: text over; }
    Transcript > Messages { layer: text; padding: 0 0 0 1; scrollbar-gutter: stable; }
    Transcript > Pill {
        layer: over; dock: bottom; height: 1; width: 100%;
        text-align: center; background: $accent 40%; text-style: bold; display: none;
    }
    Transcript:focus MessageView.-current { border-left: outer $accent; }
    Transcript Earlier { height: 1; color: $foreground 60%; text-align: center; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "previous", "Previous message", show=False),
        Binding("down,j", "next", "Next message", show=False),
        Binding("enter", "open", "Actions", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "first", "First message", show=False),
        Binding("end", "last", "To the end", show=False),
        Binding("c", "act('copy')", "Copy", show=False),
        Binding("e", "act('edit')", "Edit", show=False),
        Binding("r", "act('regenerate')", "Answer again", show=False),
        Binding("g", "act('continue')", "Continue", show=False),
        Binding("b", "act('branch')", "Go on from here", show=False),
    ]

    class Acted(Message):
        """The user wants something done with a message."""

        def __init__(self, choice: Choice, entry: Entry) -> None:
            super().__init__()
            self.verb: Verb = choice.verb
            self.message_id = entry.message_id
            """None for a notice."""
            self.text = entry.text
            """The whole message, exactly."""
            self.block: CodeBlock | None = choice.block

    def __init__(self, *, id: str | None = None, provenance: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.entries: list[Entry] = []
        """Every message, shown or not."""
        self.provenance = provenance
        self._messages = Messages()
        self._earlier = Earlier(markup=False)
        self._pill = Pill(markup=False)
        self._seen_lines = 0

    def compose(self) -> ComposeResult:
        """The messages, and over them what tells of new text."""
        with self._messages:
            yield self._earlier
        yield self._pill

    def on_mount(self) -> None:
        """Look at each change of what is in sight."""
        self.watch(self._messages, "virtual_size", self._grown, init=False)
        self.watch(self._messages, "scroll_y", self._grown, init=False)

    @property
    def views(self) -> list[MessageView]:
        """The messages that are shown."""
        return self._messages.views

    @property
    def following(self) -> bool:
        """Whether new text is scrolled into view."""
        return self._messages.following

    @property
    def current(self) -> MessageView | None:
        """The message that the keys are at."""
        return self._messages.current

    async def add_user(
        self, message_id: int, text: str, snippets: Sequence[Snippet] = ()
    ) -> MessageView:
        """Show a question, and go to the end."""
        paths = tuple(snippet.path for snippet in snippets)
        view = await self._add(Entry(kind="user", text=text, message_id=message_id, paths=paths))
        self.action_last()
        return view

    async def begin_answer(self, message_id: int, text: str = "", kinds: bytes = b"") -> AnswerView:
        """Show an answer that is about to be written. One that is shown already is gone on with;
        `text` and `kinds` are what there is of it, where the transcript doesn't know."""
        entry = next((one for one in self.entries if one.message_id == message_id), None)
        if entry is not None:
            text, kinds = text or entry.text, kinds or entry.kinds
            self.entries.remove(entry)
            await self._messages.remove_children([v for v in self.views if v.entry is entry])
        view = await self._add(
            Entry(kind="assistant", text=text, message_id=message_id, kinds=kinds, live=True)
        )
        assert view.answer is not None, "an assistant's message has an answer"
        return view.answer

    def add_notice(self, text: str, kind: Kind = "information") -> None:
        """Show a sentence of the chat itself."""
        self.call_later(self._add, Entry(kind=kind, text=text))

    async def show_thread(self, messages: Sequence[ShownMessage]) -> None:
        """Show a conversation in place of what is shown: its end at once, the rest when asked."""
        self.entries = [Entry.of(message) for message in messages]
        await self._messages.remove_children(MessageView)
        self._seen_lines = 0
        await self._show_before(FIRST_LOAD)
        self._messages.follow()

    async def set_provenance(self, shown: bool) -> None:
        """Show where the tokens of all answers came from, or the answers."""
        self.provenance = shown
        for view in self.views:
            if view.answer is not None:
                await view.answer.set_provenance(shown)

    async def load_earlier(self) -> None:
        """Show more of the messages before those that are shown."""
        before = self._messages.virtual_size.height
        await self._show_before(FIRST_LOAD)

        def stay() -> None:
            added = self._messages.virtual_size.height - before
            self._messages.scroll_relative(y=added, animate=False, force=True)

        self.call_after_refresh(stay)

    async def _show_before(self, count: int) -> None:
        left = self._left_out()
        entries = self.entries[max(0, left - count) : left]
        views = [MessageView(entry, provenance=self.provenance) for entry in entries]
        await self._messages.mount_all(views, after=self._earlier)
        self._earlier.show(left - len(views))

    async def _add(self, entry: Entry) -> MessageView:
        self.entries.append(entry)
        view = MessageView(entry, provenance=self.provenance)
        await self._messages.mount(view)
        self.call_after_refresh(self._prune)
        return view

    def _left_out(self) -> int:
        return len(self.entries) - len(self.views)

    async def _prune(self) -> None:
        """Take the widgets of the earliest messages away, once there are many lines of them."""
        lines = self._messages.virtual_size.height
        if lines <= PRUNE_ABOVE or not self.following:
            return
        gone: list[MessageView] = []
        for view in self.views[:-2]:
            if lines <= KEEP_LINES or view.entry.live:
                break
            lines -= view.outer_size.height
            view.remember()
            gone.append(view)
        await self._messages.remove_children(gone)
        self._earlier.show(self._left_out())

    @on(AnswerView.Over)
    def _answer_over(self, event: AnswerView.Over) -> None:
        event.stop()
        for view in self.views:
            if view.answer is event.view:
                view.entry.live = False
                view.remember()
        self.call_after_refresh(self._prune)

    def _grown(self) -> None:
        """Count what came since the user left the end."""
        height = self._messages.virtual_size.height
        if self.following:
            self._seen_lines = height
        self._pill.show(height - self._seen_lines)

    @on(Click, "Pill")
    def _pill_clicked(self) -> None:
        self.action_last()

    @on(Click, "Earlier")
    async def _earlier_clicked(self) -> None:
        await self.load_earlier()

    @on(MessageView.Picked)
    def _picked(self, event: MessageView.Picked) -> None:
        event.stop()
        self._messages.mark(event.view)

    @on(MessageView.CodePicked)
    def _code_picked(self, event: MessageView.CodePicked) -> None:
        event.stop()
        self._messages.mark(event.view)
        event.view.remember()
        entry = event.view.entry
        for block in code_blocks(entry.text):
            if block.line == event.line:
                self.post_message(self.Acted(Choice(verb=event.verb, block=block), entry))

    async def action_previous(self) -> None:
        """Go to the message above; through a tall one, page by page."""
        await self._step(upwards=True)

    async def action_next(self) -> None:
        """Go to the message below; through a tall one, page by page."""
        await self._step(upwards=False)

    async def _step(self, *, upwards: bool) -> None:
        views, current = self.views, self.current
        if not views:
            return
        if current is None:
            self._messages.go_to(views[-1], upwards=True)
            return
        if self._messages.hidden_part(current, upwards=upwards):
            self.action_page(-0.5 if upwards else 0.5)
            return
        place = views.index(current) + (-1 if upwards else 1)
        if place < 0 and self._left_out():
            await self.load_earlier()
        elif 0 <= place < len(views):
            self._messages.go_to(views[place], upwards=upwards)
        elif place == len(views):
            self.action_last()

    def action_page(self, pages: float) -> None:
        """Scroll by pages, down or, with a negative number, up."""
        height = max(1, self._messages.scrollable_content_region.height - 1)
        self._messages.scroll_relative(y=round(pages * height), animate=False)

    async def action_first(self) -> None:
        """Go to the first message that is shown, or show earlier ones if already there."""
        if self._messages.scroll_offset.y == 0 and self._left_out():
            await self.load_earlier()
        else:
            self._messages.scroll_home(animate=False)

    def action_last(self) -> None:
        """Go to the end and follow it."""
        self._messages.follow()

    @work
    async def action_open(self) -> None:
        """Offer what can be done with the current message."""
        views = self.views
        if not views:
            return
        view = self.current or views[-1]
        self._messages.mark(view)
        view.remember()
        if len(choices(view.entry)) == 1:
            return  # a notice can only be copied, which has a key
        choice = await self.app.push_screen_wait(MessageActions(view.entry))
        if choice is not None:
            self.post_message(self.Acted(choice, view.entry))

    def action_act(self, verb: Verb) -> None:
        """Do one thing with the current message, if it is a thing that can be done with it."""
        if (view := self.current) is None:
            return
        view.remember()
        wanted = [choice for choice in choices(view.entry) if choice.verb == verb]
        if wanted:
            self.post_message(self.Acted(wanted[0], view.entry))
