"""The help: every key and every slash command, from the tables that bind and parse them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.commands import COMMANDS
from tui.keys import KEYS, LADDER

if TYPE_CHECKING:
    from textual.app import ComposeResult

_INPUT = (
    ("enter", "send"),
    ("ctrl+j", "a new line; also shift+enter, alt+enter or ctrl+enter"),
    ("@", "attach a file: type a part of its name"),
    ("↑ ↓", "earlier questions, when at the edge of the input"),
    ("tab", "to the messages and their code, and back"),
)

_MESSAGES = (
    ("↑ ↓ or k j", "the message above, below"),
    ("enter", "all that can be done with the message and its code"),
    ("c", "copy it"),
    ("e", "edit a question and ask again"),
    ("r", "answer again"),
    ("g", "continue an answer that was stopped"),
    ("b", "go on from here: branch"),
    ("home end", "the first message, the newest text"),
)


def help_text() -> Content:
    """Keys, then commands, each in two columns."""
    keys = [(key.keys.replace(",", ", "), key.help) for key in (*KEYS, LADDER) if key.keys]
    commands = [(f"/{one.name} {one.argument}".strip(), one.help) for one in COMMANDS]
    parts = [_section("Keys", keys), _section("Input", _INPUT)]
    parts += [_section("Messages (tab goes there)", _MESSAGES), _section("Commands", commands)]
    return Content("\n\n").join(parts)


def _section(title: str, rows: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Content:
    width = max(len(name) for name, _ in rows) + 2
    lines = [Content(title).stylize("bold underline")]
    lines += [Content(f"{name:<{width}}").stylize("bold") + Content(text) for name, text in rows]
    return Content("\n").join(lines)


class HelpScreen(ModalScreen[None]):
    """Scrolls with the arrows; any of three keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "leave", "Close")]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > VerticalScroll {
        width: 88; max-width: 100%; height: auto; max-height: 100%;
        padding: 0 1; border: round $primary; background: $surface;
    }
    HelpScreen Static { height: auto; }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Help"
            box.border_subtitle = "esc closes"
            yield Static(help_text(), markup=False)

    def action_leave(self) -> None:
        """Back to the chat."""
        self.dismiss(None)
