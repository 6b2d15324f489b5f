"""The chat with the scripted daemon behind it, noting what comes: `python -m` this module.

The one argument is a file that gets a line for each piece of text: the monotonic time and how many
characters have come. The folders come from the environment, as for the real chat.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from app.chat import chat_start
from app.client import RemoteEngine
from app.paths import Paths, user_paths
from app.screen_guard import private_screen
from app.settings import ModelSettings, Settings
from app.starting import Starter
from engine.protocol import Event, GenerateRequest, TextDelta
from tests.app.scripted_daemon import COMMAND as DAEMON
from tui.chat_app import ChatApp
from tui.history import History

COMMAND = (sys.executable, "-m", "tests.e2e.scripted_chat")


class NotedEngine(RemoteEngine):
    """Notes all text that comes, the moment it does."""

    def __init__(self, settings: Settings, paths: Paths, notes: int) -> None:
        super().__init__(settings, paths, "chat", Starter(paths, DAEMON))
        self._notes = notes

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        async with super().generate(request) as events:

            async def noted() -> AsyncIterator[Event]:
                came = 0
                async for event in events:
                    if isinstance(event, TextDelta):
                        came += len(event.text)
                        os.write(self._notes, f"{time.monotonic()} {came}\n".encode())
                    yield event

            yield noted()


def main() -> None:
    paths = user_paths()
    settings = Settings(model=ModelSettings(model="org/scripted"))
    notes = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with private_screen(paths.data / "chat.log"):
        history = History.open(paths.data / "history.sqlite")
        start = chat_start(settings, paths, history, resume=False)
        engine = NotedEngine(settings, paths, notes)
        ChatApp(replace(start, open_engine=lambda: engine)).run()
        history.close()


if __name__ == "__main__":
    main()
