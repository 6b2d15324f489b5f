"""The input of the chat: text area, popup, the files that go along and what they cost.

Owns the way of a message from keys to `Submitted` or `Command`: history, completion, reading the
files it names, their token counts. It must not know the engine (`count` is handed in), the
conversation or what a command does.

Invariant: a message goes out exactly as typed and pasted, with every file it names, or not at all
and then with a sentence that says why; nothing typed is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea

from engine.protocol import EngineError, Snippet
from tui import commands
from tui.attached_files import Count, FileChips, KeptFiles, problems
from tui.attachments import gather
from tui.completion import Completions, Typed, being_typed
from tui.pastes import Draft
from tui.prompt_area import PromptArea
from tui.prompt_history import PromptHistory
from tui.prompt_layout import shares

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.timer import Timer

COUNT_AFTER_S = 0.3
"""Files are read and counted once the typing has paused for so long."""


class PromptInput(Vertical):
    """Where a message is written."""

    DEFAULT_CSS = """
    PromptInput {
        height: auto;
        & > FileChips, & > #prompt-notice { height: auto; padding: 0 1; }
        &.-tight > PromptArea { border: none; padding: 0 1; background: $boost; }
        & > #prompt-notice.-error { color: $text-error; }
        & > #prompt-notice.-hint { color: $text-muted; }
    }
    """

    class Submitted(Message):
        """A message is to be sent."""

        def __init__(
            self, text: str, draft: Draft, snippets: tuple[Snippet, ...], digests: dict[str, str]
        ) -> None:
            super().__init__()
            self.text = text
            self.draft = draft
            """The same as it stood in the input."""
            self.snippets = snippets
            self.digests = digests
            """SHA-256 of each file that was read, by its path in the working folder."""

    class Command(Message):
        """A slash command is to be run; its argument has been checked."""

        def __init__(self, name: str, argument: str) -> None:
            super().__init__()
            self.name = name
            self.argument = argument

    def __init__(
        self, root: Path, *, count: Count | None = None, history: Iterable[str] = ()
    ) -> None:
        super().__init__()
        self.root = root
        self._past = PromptHistory(map(commands.as_typed, history))
        self._kept = KeptFiles()
        self._timer: Timer | None = None
        self._area = PromptArea(self, placeholder="Ask something · @file · /command")
        self._popup = Completions(root)
        self._files = FileChips(count)
        self._notice = Static(id="prompt-notice", markup=False)
        self._has_notice = False
        self._said_about = ""

    def compose(self) -> ComposeResult:
        yield self._popup
        yield self._notice
        yield self._files
        yield self._area

    @property
    def history(self) -> list[str]:
        """Earlier messages and commands as they were typed, oldest first; set from messages."""
        return self._past.entries

    @history.setter
    def history(self, messages: list[str]) -> None:
        self._past = PromptHistory(map(commands.as_typed, messages))

    @property
    def has_text(self) -> bool:
        return bool(self._area.text)

    @property
    def text(self) -> str:
        """What was typed and pasted, whole."""
        return self._area.whole_text

    @property
    def draft(self) -> Draft:
        """The same as it stands here, placeholders as such."""
        return self._area.draft

    @property
    def selected_text(self) -> str:
        return self._area.selected_text

    def focus(self, scroll_visible: bool = True) -> PromptInput:
        self._area.focus(scroll_visible)
        return self

    def load(self, what: str | Draft, snippets: Sequence[Snippet] | None = None) -> None:
        """Put a text in as if it had been typed; given snippets, even none, put in that message to
        be edited, its files along; a draft comes as it stood here. What was there before can be had
        again with the up arrow."""
        text = what if isinstance(what, str) else what.text
        if self.has_text:
            is_message = self._starts_with_paste()
            self._past.add(commands.as_typed(self.text) if is_message else self.text)
        self._past.leave()
        self._kept = KeptFiles(text, snippets or ())
        as_it_is = snippets is None or isinstance(what, Draft)
        self._put(what if as_it_is else commands.as_typed(text))
        self._say("")
        self._count_soon()

    def clear(self) -> None:
        """Empty the input; what was in it can be had again with the up arrow."""
        self.load("")

    async def take_key(self, key: str) -> bool:
        """The popup's keys while it is open, and enter."""
        # What was typed just before may not have been told yet.
        self._popup.follow(self._being_typed())
        if self._popup.is_open:
            if key in ("up", "down"):
                self._popup.step(1 if key == "down" else -1)
                return True
            if key == "escape":
                self._popup.close()
                return True
            if key in ("tab", "enter"):
                await self._popup.caught_up()
        if key in ("tab", "enter") and self._popup.is_open:
            await self._take_row(by_enter=key == "enter")
        elif key == "enter":
            await self._send()
        else:
            return False
        return True

    def at_edge(self, step: int) -> None:
        """Walk the history."""
        found = self._past.step(step, self._area.draft)
        if found is not None:
            self._put(found)

    def at_start(self) -> None:
        """Take away the last file that came with a loaded message."""
        if self._kept.drop_last():
            self._count_soon()

    async def _take_row(self, *, by_enter: bool) -> None:
        """Put the highlighted row in. Enter also sends what needs nothing more: a command without
        argument, or what had been typed in full."""
        typed, offer = self._popup.typed, self._popup.chosen
        assert typed is not None, "a popup is open for something that was typed"
        cursor = self._area.cursor_location
        start = self._area.location_at(typed.start)
        is_whole = self._area.get_text_range(start, cursor) == offer.insert.rstrip()
        self._popup.close()
        if not (by_enter and is_whole):
            self._area.replace(offer.insert, start, cursor, maintain_selection_offset=False)
        if by_enter and (is_whole or offer.runs):
            await self._send()

    @on(OptionList.OptionSelected)
    async def _row_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self._popup.is_open:
            await self._take_row(by_enter=False)
        self._area.focus()

    @on(TextArea.SelectionChanged)
    def _moved(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        self._popup.follow(self._being_typed())

    @on(TextArea.Changed)
    def _changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._popup.follow(self._being_typed())
        self._count_soon()
        # An edit may be told only after what came of the enter behind it.
        if self._area.text != self._said_about:
            text = self._area.typed_text
            sent = commands.as_message(text)
            self._say(f"Sent as “{sent.splitlines()[0][:40]}”" if sent != text else "", "hint")

    def _put(self, what: str | Draft) -> None:
        self._area.load(what)
        self._popup.leave(self._being_typed())

    def _being_typed(self) -> Typed | None:
        place = self._area.place_of(self._area.cursor_location)
        is_typing = self._area.selection.is_empty
        return being_typed(self._area.typed_text, place) if is_typing else None

    def _count_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(COUNT_AFTER_S, self._weigh)

    @work(group="weigh", exclusive=True)
    async def _weigh(self) -> None:
        """Read the files named and show what they cost, and which of them don't go along."""
        text = self._area.typed_text
        gathered = await asyncio.to_thread(gather, text, self.root)
        self._files.snippets = self._kept.beside(gathered, text)
        if gathered.refused or gathered.unknown:
            self._say(problems(gathered), "error")
        self._arrange()
        await self._files.weigh()

    async def _send(self) -> None:
        """Run what was typed as a command, or send it as a message."""
        text = self.text
        try:
            parsed = None if self._starts_with_paste() else commands.parse(text)
        except EngineError as error:
            self._say(f"{error.message}. {error.hint}", "error")
            return
        if parsed is not None:
            self.clear()
            self.post_message(self.Command(parsed[0].name, parsed[1]))
        elif text.strip():
            await self._submit(self._area.draft)

    async def _submit(self, draft: Draft) -> None:
        typed = self._area.typed_text
        whole = self.text if self._starts_with_paste() else commands.as_message(self.text)
        gathered = await asyncio.to_thread(gather, typed, self.root)
        if self._area.draft != draft:
            return
        if gathered.refused:
            self._say(problems(gathered), "error")
            return
        snippets = self._kept.beside(gathered, typed)
        digests = {one.file: one.digest for one in gathered.attached}
        self.clear()
        self.post_message(self.Submitted(whole, draft, snippets, digests))

    def _starts_with_paste(self) -> bool:
        return any(span.start == 0 for span in self._area.spans)

    def _say(self, what: str | Content, tone: str = "hint") -> None:
        self._notice.update(what)
        self._notice.set_classes(f"-{tone}")
        self._has_notice = bool(what)
        self._said_about = self._area.text
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    @on(Completions.Filled)
    def _arrange(self) -> None:
        share = shares(
            self.app.size.height,
            popup_rows=self._popup.option_count if self._popup.is_open else 0,
            notice=self._has_notice,
            files=bool(self._files.snippets),
        )
        self.set_class(not share.has_frame, "-tight")
        self._area.styles.max_height = share.area
        parts = (
            (self._popup, share.popup),
            (self._notice, share.notice),
            (self._files, share.files),
        )
        for part, lines in parts:
            part.display = lines > 0
            part.styles.max_height = max(1, lines)
