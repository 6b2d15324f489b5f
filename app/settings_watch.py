"""Watches the settings file while a chat runs: what may change at once is told, the rest is named.

Owns the watch and the words for it. A file that can't be used any more changes nothing: the mistake
is told and the settings in force stay. Options of the command line stay on top of the file, as at
the start. Knows no widget; it tells through a callback, from the watching thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from threading import Timer
from typing import TYPE_CHECKING

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from app.settings import TABLES, Settings, Tables, changed, read_settings
from engine.protocol import EngineError
from tui.messages import SettingsChanged
from tui.settings import LiveSettings

if TYPE_CHECKING:
    from pathlib import Path

    from app.paths import Paths

SETTLE_S = 0.2
"""Editors write a file in several steps; it is read once they are quiet."""

logger = logging.getLogger(__name__)

Tell = Callable[[SettingsChanged], object]


class SettingsWatch(FileSystemEventHandler):
    """Reads the file again after each change to it and tells what that means."""

    def __init__(self, settings: Settings, file: Path, tell: Tell) -> None:
        self._settings = settings
        self._options = options_of(settings)
        self._file = file
        self._names = {os.fspath(file), os.path.realpath(file)}
        self._tell = tell
        self._timer: Timer | None = None

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Arrange for a reading when it is the file that changed."""
        if event.event_type in ("opened", "closed_no_write"):
            return
        if self._names.isdisjoint((os.fspath(event.src_path), os.fspath(event.dest_path or ""))):
            return
        self.cancel()
        self._timer = Timer(SETTLE_S, self.read)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Forget a reading that was arranged."""
        if self._timer is not None:
            self._timer.cancel()

    def read(self) -> None:
        """Read the file now and tell what changed; nothing is told when nothing did."""
        try:
            new = read_settings(self._file, os.environ, self._options)
        except EngineError as error:
            self._tell(SettingsChanged(None, f"The settings stay as they were: {error}"))
            return
        live, restart = changed(self._settings, new)
        if not live and not restart:
            return
        self._settings = new
        settings = LiveSettings(chat=new.chat, sampling=new.sampling, route=new.decode.route)
        self._tell(SettingsChanged(settings, sentence(live, restart)))


def options_of(settings: Settings) -> Tables:
    """The values that came from the command line, as a layer to lay over the file again."""
    options: dict[str, dict[str, object]] = {table: {} for table in TABLES}
    for name, origin in settings.origins.items():
        table, key = name.split(".", 1)
        if origin == "the command line":
            options[table][key] = getattr(getattr(settings, table), key)
    return options


def sentence(live: tuple[str, ...], restart: tuple[str, ...]) -> str:
    """What a change of these keys means."""
    parts = []
    if live:
        parts.append(f"Settings taken over: {', '.join(live)}.")
    if restart:
        parts.append(
            f"Held back until engine and chat are started again (sspec-assist engine stop): "
            f"{', '.join(restart)}."
        )
    return " ".join(parts)


def watch_settings(settings: Settings, paths: Paths, tell: Tell) -> Callable[[], None]:
    """Begin to watch; the result ends it. The folder is made, so that a first file is seen too;
    where none can be, or the system gives out no more watches, there is nothing to watch."""
    file = paths.config_file()
    watch = SettingsWatch(settings, file, tell)
    try:
        observer = Observer()
        observer.daemon = True
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The file may be a link into a folder where all of a user's settings are kept.
        for folder in dict.fromkeys((file.parent, file.resolve().parent)):
            if folder.exists():
                observer.schedule(watch, os.fspath(folder))
        observer.start()
    except OSError as error:
        logger.info("settings are not watched: %s", error)
        return lambda: None

    def stop() -> None:
        watch.cancel()
        observer.stop()
        observer.join(1.0)

    return stop
