"""The command palette: everything a key or a slash command does, found by typing a part of it.

Owns the list, not the deeds: each entry runs an action of the chat's screen or the command itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from tui.commands import COMMANDS
from tui.keys import KEYS

if TYPE_CHECKING:
    from textual.fuzzy import Matcher

    from tui.chat_screen import ChatScreen


class ChatCommands(Provider):
    """The chat's own entries."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for title, help_text, deed in self._entries():
            yield DiscoveryHit(Content(title), deed, text=title, help=help_text)

    async def search(self, query: str) -> Hits:
        """Those that match."""
        matcher = self.matcher(query)
        for title, help_text, deed in self._entries():
            score = max(matcher.match(title), matcher.match(f"{title} {help_text}") / 2)
            if score > 0:
                yield Hit(score, _marked(matcher, title), deed, text=title, help=help_text)

    def _entries(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        from tui.chat_screen import ChatScreen

        screen = self.screen
        if not isinstance(screen, ChatScreen):
            return
        for key in KEYS:
            if key.action != "palette":
                title = f"{key.title}  ({key.keys.replace(',', ', ')})" if key.keys else key.title
                yield title, key.help, partial(screen.run_action, key.action)
        for command in COMMANDS:
            title = f"/{command.name} {command.argument}".strip()
            yield title, command.help, partial(self._command, screen, command.name)

    @staticmethod
    def _command(screen: ChatScreen, name: str) -> None:
        screen.begin_command(name)


def _marked(matcher: Matcher, title: str) -> Content:
    """The title with what was matched told apart. The matcher's own way takes the brackets of an
    argument for markup."""
    shown = Content(title)
    score, places = matcher.fuzzy_search.match(matcher.query, title)
    for place in places if score else ():
        shown = shown.stylize(matcher.match_style, place, place + 1)
    return shown
