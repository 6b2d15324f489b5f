"""The root of the terminal chat: puts settings, history, engine and screen together and runs them.

Everything that costs time but is not needed for the first paint (the engine's client, the watch on
the settings file, the look at the models on disk) is handed over as a function and called once the
screen stands. Invariant: no torch and no transformers in this process, and nothing but Textual
writes to the terminal while it runs.
"""

from __future__ import annotations

import gc
import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from app.paths import Paths, user_paths
from app.screen_guard import private_screen
from engine.protocol import EngineError, RequestError
from tui.settings import LiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.settings import Settings
    from app.settings_watch import Tell
    from engine.protocol import ModelInfo, SharedEngine
    from tui.chat_app import ChatStart
    from tui.editor_statistics import EditorStatistics
    from tui.history import History


def run_chat(settings: Settings, resume: bool = False) -> int:
    """Run the chat until the user leaves it, and return the exit code.

    Raises `RequestError` where there is no terminal to run it in, or no folder any more, and
    `EngineError` if it crashes.
    """
    # Importing makes many objects and no garbage: looking for some would cost a tenth of the time
    # to the first paint.
    gc.disable()
    from tui.chat_app import ChatApp
    from tui.history import History

    paths = user_paths()
    log = paths.data / "logs" / "chat.log"
    with private_screen(log):
        _log_to_stderr()
        history = History.open_or_in_memory(paths.data / "history.sqlite")
        try:
            app = ChatApp(chat_start(settings, paths, history, resume=resume))
            code = app.run()
        finally:
            history.close()
    return exit_code(code, log)


def exit_code(left_with: int | None, log: Path) -> int:
    """The exit code of a chat that was left with one.

    Raises `EngineError` where it was not left: an error, whose traceback is in `log`, has ended it.
    """
    if left_with is None:
        raise EngineError(
            "chat_failed",
            "the chat ended by an error of its own",
            f"Conversations are kept: `sspec-assist --resume`. {log} has the details.",
        )
    return left_with


def chat_start(settings: Settings, paths: Paths, history: History, *, resume: bool) -> ChatStart:
    """What a chat for these settings works with."""

    from tui.chat_app import ChatStart

    def open_engine() -> SharedEngine:
        # The first paint is done: what was imported stays, and is no more looked through.
        gc.freeze()
        gc.enable()
        # The client would import these at its first request, on the event loop, while keys wait.
        for name in ("httpx", "httpcore", "h11", "anyio._backends._asyncio"):
            importlib.import_module(name)
        from app.client import RemoteEngine

        return RemoteEngine(settings, paths, client="chat")

    def watch(tell: Tell) -> Callable[[], None]:
        from app.settings_watch import watch_settings

        return watch_settings(settings, paths, tell)

    return ChatStart(
        open_engine=open_engine,
        history=history,
        settings=live_settings(settings),
        model=settings.model.model,
        models=lambda: known_models(paths),
        root=working_folder(),
        watch_settings=watch,
        editor_statistics=lambda: counted_in_editors(paths),
        resume=resume,
    )


def working_folder() -> Path:
    """The folder that the chat reads and changes files in. Raises `RequestError` if it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise RequestError(
            "no_folder", "the folder you are in is gone", "Change to another one, then try again."
        ) from error


def live_settings(settings: Settings) -> LiveSettings:
    """What of all settings a running chat can take over."""
    return LiveSettings(chat=settings.chat, sampling=settings.sampling, route=settings.decode.route)


def known_models(paths: Paths) -> tuple[ModelInfo, ...]:
    """The catalogue and what was fetched from the hub, with what is here of it."""
    from app import model_store
    from engine.protocol import ModelInfo

    return tuple(
        ModelInfo(
            name=model.name,
            size_bytes=model.size_bytes,
            licence=model.licence,
            here=model.state == "present",
        )
        for model in model_store.listing(paths)
    )


def counted_in_editors(paths: Paths) -> EditorStatistics:
    """What language servers have counted of completions so far. Raises `EngineError`."""
    from app.editor_stats import completions_file, read_summary

    return read_summary(completions_file(paths))


def _log_to_stderr() -> None:
    """Records go where fd 2 points now, which is the log file."""
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    logging.captureWarnings(True)
