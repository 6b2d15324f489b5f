"""The list of kept conversations: searched as one types, resumed, renamed, deleted.

Owns the choosing and gives back a conversation's id. The store is asked in a thread, so that a long
search never holds up a key. It must not open a conversation itself, nor touch the one that is open.

Invariant: the row that is highlighted is the one that enter, rename and delete are about; what is
shown of titles and texts is plain, with control characters made visible.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from tui.history import HistoryError
from tui.safe_text import visible
from tui.sessions_dialogs import DeleteDialog, RenameDialog

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from tui.history import Conversation, History

SHOWN = 200
"""Rows at most; what is older is found by searching."""
SETTLED_S = 0.1
"""How long the typing must rest before a search begins."""
_DAY_S = 86_400


class SessionsScreen(ModalScreen[int | None]):
    """Gives back the id of the conversation to go on with; None when nothing was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Close"),
        Binding("up", "move('up')", "Up", show=False),
        Binding("down", "move('down')", "Down", show=False),
        Binding("pageup", "move('page_up')", "Page up", show=False),
        Binding("pagedown", "move('page_down')", "Page down", show=False),
        Binding("f2", "rename", "Rename", priority=True),
        Binding("ctrl+d", "delete", "Delete", priority=True),
        Binding("delete", "delete", "Delete", show=False),
    ]
    DEFAULT_CSS = """
    SessionsScreen { align: center middle; background: $background 60%; }
    SessionsScreen > Vertical {
        width: 88; max-width: 100%; height: 80%; min-height: 12; max-height: 100%;
        padding: 0 1; border: round $primary; background: $surface;
    }
    SessionsScreen Input { background: $boost; }
    SessionsScreen OptionList {
        height: 1fr; margin: 1 0; padding: 0;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    SessionsScreen #note { height: auto; max-height: 3; color: $text-muted; }
    SessionsScreen Horizontal { height: 1; }
    SessionsScreen Button { margin: 0 1 0 0; min-width: 0; padding: 0; }
    SessionsScreen.-narrow OptionList, SessionsScreen.-short OptionList { margin: 0; }
    """

    def __init__(
        self,
        history: History,
        *,
        current: int | None = None,
        query: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        """`current` is the conversation that is open, which can't be deleted from here."""
        super().__init__()
        self._history = history
        self._current = current
        self._query = query
        self._now = now
        self._rows: dict[str, Conversation] = {}

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Conversations"
            box.border_subtitle = "↑ ↓ choose · esc closes"
            yield Input(
                self._query,
                placeholder="search titles and texts",
                select_on_focus=False,
                compact=True,
            )
            yield OptionList(markup=False, compact=True)
            yield Static(id="note", markup=False)
            with Horizontal():
                yield Button("Resume", id="resume", compact=True, variant="primary")
                yield Button("Rename f2", id="rename", compact=True)
                yield Button("Delete ctrl+d", id="delete", compact=True, variant="error")

    def on_mount(self) -> None:
        """List what there is; the cursor is in the search."""
        self.query_one(Input).focus()
        self._search(0)

    def _search(self, wait_s: float) -> None:
        self.run_worker(self._find(wait_s), group="search", exclusive=True)

    async def _find(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        query = self._query
        try:
            found = await asyncio.to_thread(self._history.conversations, query, SHOWN)
        except HistoryError as error:
            self._say(str(error))
            return
        self._show(found, query)

    def _show(self, found: list[Conversation], query: str) -> None:
        options = self.query_one(OptionList)
        kept = self._chosen()
        self._rows = {str(conversation.id): conversation for conversation in found}
        options.clear_options()
        now = self._now()
        options.add_options(
            Option(self._row(conversation, query.split(), now), id=name)
            for name, conversation in self._rows.items()
        )
        if found:
            again = kept is not None and str(kept.id) in self._rows
            options.highlighted = options.get_option_index(str(kept.id)) if again and kept else 0
        self._say(_summary(len(found), query))

    def _row(self, conversation: Conversation, words: list[str], now: float) -> Content:
        title = conversation.title or "Untitled conversation"
        facts = [age(now - conversation.updated), counted(conversation.messages, "message")]
        if conversation.id == self._current:
            facts.append("open now")
        row = _marked(title, words).stylize("bold")
        row += Content("\n  " + " · ".join(facts)).stylize("dim")
        if conversation.excerpt:
            row += Content("\n  ") + _marked(conversation.excerpt, words).stylize("italic dim")
        return row

    def _chosen(self) -> Conversation | None:
        option = self.query_one(OptionList).highlighted_option
        return None if option is None else self._rows.get(option.id or "")

    def _say(self, text: str) -> None:
        note = self.query_one("#note", Static)
        note.update(Content(visible(text)))
        note.display = bool(text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query = event.value
            self._search(SETTLED_S)

    @on(Input.Submitted)
    @on(Button.Pressed, "#resume")
    def _resume(self) -> None:
        chosen = self._chosen()
        if chosen is not None:
            self.dismiss(chosen.id)

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(int(event.option_id or 0))

    @on(Button.Pressed, "#rename")
    def action_rename(self) -> None:
        """Ask for another title for the highlighted conversation."""
        chosen = self._chosen()
        if chosen is None:
            return

        def rename(title: str | None) -> None:
            if title is not None and title.strip():
                self._change(lambda: self._history.rename(chosen.id, title))

        self.app.push_screen(RenameDialog(chosen.title), rename)

    @on(Button.Pressed, "#delete")
    def action_delete(self) -> None:
        """Ask whether to delete the highlighted conversation."""
        chosen = self._chosen()
        if chosen is None:
            return
        if chosen.id == self._current:
            self._say("That conversation is open: begin or resume another one first.")
            return

        def delete(sure: bool | None) -> None:
            if sure:
                self._change(lambda: self._history.delete(chosen.id))

        title = chosen.title or "Untitled conversation"
        question = f"Delete “{title}” and {counted(chosen.messages, 'message')} for good?"
        self.app.push_screen(DeleteDialog(question), delete)

    def _change(self, change: Callable[[], None]) -> None:
        self.run_worker(self._changed(change), group="change")

    async def _changed(self, change: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(change)
        except HistoryError as error:
            self._say(str(error))
            return
        self._search(0)

    def action_move(self, where: str) -> None:
        """Move the highlight while the cursor stays in the search."""
        options = self.query_one(OptionList)
        move: dict[str, Callable[[], None]] = {
            "up": options.action_cursor_up,
            "down": options.action_cursor_down,
            "page_up": options.action_page_up,
            "page_down": options.action_page_down,
        }
        move[where]()

    def action_leave(self) -> None:
        """Close without a choice."""
        self.dismiss(None)


def _marked(text: str, words: list[str]) -> Content:
    """The text, safe to show, with the words that were searched for underlined."""
    content = Content(visible(text))
    for word in words:
        pattern = re.compile(re.escape(visible(word)), re.IGNORECASE)
        content = content.highlight_regex(pattern, style="underline")
    return content


def _summary(count: int, query: str) -> str:
    if query.strip():
        return "" if count else "No conversation has all of these words."
    if count == SHOWN:
        return f"The latest {SHOWN} are shown; a search finds older ones too."
    return "" if count else "Nothing is kept yet: conversations are listed here once begun."


def age(seconds: float) -> str:
    """How long ago, in the largest unit that fits."""
    if seconds < 60:
        return "just now"
    for limit, size, unit in ((3600, 60, "min"), (_DAY_S, 3600, "h")):
        if seconds < limit:
            return f"{int(seconds // size)} {unit} ago"
    days = int(seconds // _DAY_S)
    if days < 60:
        return f"{counted(days, 'day')} ago"
    if days < 730:
        return f"{days // 30} months ago"
    return f"{days // 365} years ago"


def counted(number: int, thing: str) -> str:
    """The number with its noun."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
