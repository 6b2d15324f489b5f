"""A chat as the tests run it: the real application and history, and a scripted engine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from engine.protocol import ModelInfo, SharedEngine
from tui.chat_app import ChatApp, ChatStart
from tui.chat_screen import ChatScreen
from tui.history import History
from tui.settings import ChatSettings, LiveSettings

MODELS = (
    ModelInfo(name="scripted", size_bytes=98_362_432, licence="Apache-2.0", here=True),
    ModelInfo(name="absent-7b", size_bytes=4_400_000_000, licence="MIT", here=False),
)
WAIT_S = 5.0


def chat(
    engine: SharedEngine,
    folder: Path,
    *,
    model: str = "scripted",
    settings: LiveSettings | None = None,
    history: History | None = None,
) -> ChatApp:
    """A chat on `engine` whose history and working folder are in `folder`."""
    root = folder / "work"
    root.mkdir(exist_ok=True)
    return ChatApp(
        ChatStart(
            open_engine=lambda: engine,
            history=history or History.open(folder / "history.sqlite"),
            settings=settings or LiveSettings(chat=ChatSettings()),
            model=model,
            models=lambda: MODELS,
            root=root,
        )
    )


@asynccontextmanager
async def running(app: ChatApp, size: tuple[int, int] = (100, 30)) -> AsyncIterator[Pilot[int]]:
    """The chat, until the block is left; a model that is here is ready."""
    async with app.run_test(size=size) as pilot:
        if app.start_with.model == "scripted":
            await until(pilot, lambda: app.chat.asking.status is not None)
        try:
            yield pilot
        finally:
            await app.chat.leave()
            app.start_with.history.close()


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test on a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: object, **fixtures: object) -> None:
        asyncio.run(test(*arguments, **fixtures))

    return run


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Let the chat run until something holds; fails after some seconds."""
    async with asyncio.timeout(WAIT_S):
        while not holds():
            await pilot.pause(0.01)
    await pilot.pause()


async def ask(pilot: Pilot[int], text: str) -> None:
    """Type a question or a command, send it and wait until all is quiet again."""
    await send(pilot, text)
    await quiet(pilot)


async def send(pilot: Pilot[int], text: str) -> None:
    """Type a question or a command and send it."""
    screen = screen_of(pilot)
    screen.prompt.load(text)
    screen.prompt.focus()
    await pilot.press("enter")
    await until(pilot, lambda: not screen.prompt.has_text)


async def send_to_wait(pilot: Pilot[int], text: str) -> None:
    """Send a question that can't be asked yet, and see that it waits and is kept."""
    await send(pilot, text)
    await until(pilot, lambda: any(one.waited for one in screen_of(pilot).asking.waiting))


async def quiet(pilot: Pilot[int]) -> None:
    """Wait until nothing runs and nothing waits."""
    screen = screen_of(pilot)

    def is_quiet() -> bool:
        deeds = any(not worker.is_finished for worker in pilot.app.workers)
        return not (deeds or screen.asking.running or screen.asking.waiting)

    await until(pilot, is_quiet)


def screen_of(pilot: Pilot[int]) -> ChatScreen:
    app = pilot.app
    assert isinstance(app, ChatApp)
    return app.chat


def said(pilot: Pilot[int]) -> list[tuple[str, str]]:
    """Everything in the transcript: kind and text."""
    screen = screen_of(pilot)
    for view in screen.transcript.views:
        view.remember()
    return [(entry.kind, entry.text) for entry in screen.transcript.entries]
