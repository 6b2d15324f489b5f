"""The chat as a Textual application: themes, the palette, the interrupt key, and one screen.

Owns what is true of every screen alike. It is given everything it works with as one `ChatStart`,
and must not know where the engine runs or where settings come from. No torch, no transformers and
no HTTP library are loaded by importing it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Provider

from tui.chat_screen import ChatScreen
from tui.keys import LADDER
from tui.meter import NARROW_BELOW, SHORT_BELOW
from tui.safe_text import visible
from tui.terminal_keys import accept_any_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from textual.screen import Screen

    from engine.protocol import ModelInfo, SharedEngine
    from tui.editor_statistics import EditorStatistics
    from tui.history import History
    from tui.messages import SettingsChanged
    from tui.settings import LiveSettings

Severity = Literal["information", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatStart:
    """Everything a chat works with."""

    open_engine: Callable[[], SharedEngine]
    """Called in a thread after the first paint, so that no import delays it."""
    history: History
    settings: LiveSettings
    model: str
    """The model that the settings name."""
    models: Callable[[], tuple[ModelInfo, ...]]
    """What can be had; looks at the disk, so it is called in a thread."""
    root: Path
    """The folder that files are read from and changed in."""
    watch_settings: Callable[[Callable[[SettingsChanged], object]], Callable[[], None]] | None = (
        None
    )
    """Begins to watch the settings file and gives back how to end it."""
    editor_statistics: Callable[[], EditorStatistics | None] = lambda: None
    """What was counted of completions in editors; reads the disk, so it is called in a thread."""
    resume: bool = False
    """Begin with the list of kept conversations."""


def chat_commands() -> type[Provider]:
    """The palette's own entries; loaded when the palette is first opened."""
    from tui.palette import ChatCommands

    return ChatCommands


class ChatApp(App[int]):
    """The chat. Its return value is the exit code of the command."""

    TITLE = "sspec-assist"
    CSS_PATH = "chat.tcss"
    COMMANDS: ClassVar = {chat_commands}
    COMMAND_PALETTE_BINDING = "ctrl+k"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW_BELOW, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (SHORT_BELOW, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(LADDER.keys, LADDER.action, LADDER.title, priority=True, show=False),
        Binding("ctrl+q", "leave", "Quit", priority=True, show=False),
    ]

    def __init__(self, start: ChatStart) -> None:
        super().__init__()
        accept_any_bytes()
        self.start_with = start
        self.chat = ChatScreen(start)

    def get_default_screen(self) -> ChatScreen:
        """The only screen that is not a dialogue."""
        return self.chat

    def on_mount(self) -> None:
        """Put the theme on before anything is drawn."""
        self.put_on(self.start_with.settings.chat.theme)

    def put_on(self, theme: str) -> None:
        """Change the theme, or say that there is none of that name."""
        if theme in self.available_themes:
            self.theme = theme
            return
        near = difflib.get_close_matches(theme, self.available_themes, n=1)
        meant = f"Did you mean {near[0]}?" if near else "The palette lists all themes."
        self.say(f"there is no theme called '{theme}'. {meant}", "warning")

    def say(self, text: str, severity: Severity = "information") -> None:
        """A short message that goes away; whatever the text holds is shown as it is."""
        self.notify(visible(text), markup=False, severity=severity)

    def say_instead(self, text: str) -> None:
        """The same, in place of the short messages that are still there."""
        self.clear_notifications()
        self.say(text)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Of Textual's own commands those that make sense here."""
        yield SystemCommand("Theme", "choose the colours", self.action_change_theme)
        yield SystemCommand("Quit", "end the chat; answers are kept", self.action_leave)

    async def action_interrupt(self) -> None:
        """One rung of the ctrl+c ladder: copy, clear, stop, arm, quit."""
        if self.screen is self.chat:
            await self.chat.interrupt()
        elif not await self.chat.copy_selection(self.screen):
            self.screen.dismiss(None)

    async def action_leave(self) -> None:
        """End the chat; what came of a running answer is kept."""
        await self.chat.leave()
        self.exit(0)
