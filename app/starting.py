"""Starting the daemon from a client: one process for all who ask at once, and words if it fails.

It owns the command, the environment and the patience. The process is detached: it survives its
client, hears no ctrl-C of its terminal, and writes to its log file only. Blocking throughout, and
light: never imports torch.

Invariant: after `start` returned, somebody listens at the place; otherwise it raised a sentence
that ends in what the process said last.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock, Timeout
from msgspec.structs import replace

from app import instance, logs, model_store, snapshot
from app.catalogue import CATALOGUE
from app.wire import Startup, Wanted
from engine.protocol import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.paths import Paths
    from app.settings import Settings

START_PATIENCE_S = 60.0
"""A start takes half a second; a machine that swaps takes its time."""
COMMAND = (sys.executable, "-P", "-m", "app.daemon")
"""-P: a folder called app where the user happens to be is not this program."""
_LOOK_S = 0.02
_LAST_LINES = 5


class Starter:
    """Starts a daemon for `paths`."""

    def __init__(
        self,
        paths: Paths,
        command: Sequence[str] = COMMAND,
        *,
        patience_s: float = START_PATIENCE_S,
    ) -> None:
        self.place = instance.place_of(paths.runtime)
        self._paths = paths
        self._command = tuple(command)
        self._patience_s = patience_s

    def start(self, startup: Startup) -> None:
        """Return once a daemon listens, this one or another's. Raises `EngineError`."""
        instance.prepare(self.place)
        guard = FileLock(self.place.start_lock, mode=0o600)
        try:
            with instance.sentences(self.place.folder):
                guard.acquire(timeout=self._patience_s)
        except Timeout:
            raise self._failed("another program has been starting it for too long", 0) from None
        try:
            if not instance.listening(self.place):
                self._start(startup)
        finally:
            guard.release()

    def _start(self, startup: Startup) -> None:
        log = self._paths.log_file()
        with instance.sentences(log.parent):
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            output = open(log, "ab", opener=logs.open_private)  # noqa: SIM115
        since = log.stat().st_size
        with output:
            process = self._spawned(startup, output.fileno())
        # Whoever lives on must not leave a dead child unburied.
        threading.Thread(target=process.wait, name="daemon's end", daemon=True).start()
        deadline = time.monotonic() + self._patience_s
        while time.monotonic() < deadline:
            if instance.listening(self.place):
                return
            # An exit code of 0 means that another daemon was there first.
            if process.returncode:
                raise self._failed(f"it ended with exit code {process.returncode}", since)
            time.sleep(_LOOK_S)
        raise self._failed(f"it did not answer within {self._patience_s:.0f} s", since)

    def _spawned(self, startup: Startup, output: int) -> subprocess.Popen[bytes]:
        windows = sys.platform == "win32"
        with instance.sentences(self.place.folder):
            return subprocess.Popen(
                [*self._command, msgspec.json.encode(startup).decode()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(self._paths),
                # A folder that stays: the user's own may be unmounted or removed.
                cwd=self.place.folder,
                start_new_session=not windows,
                creationflags=_windows_flags() if windows else 0,
            )

    def _failed(self, why: str, since: int) -> EngineError:
        said = logs.last_lines(self._paths.log_file(), _LAST_LINES, since=since)
        hint = f"Its log is {self._paths.log_file()}"
        if said:
            hint += "; it ends with:\n" + "\n".join(said)
        return EngineError("engine_start", f"the engine could not be started: {why}", hint)


def wanted_by(settings: Settings, paths: Paths) -> Wanted:
    """What a daemon is to serve for `settings`, with the model as any process understands it.

    Raises `ModelError` for a path that is not there and a name that nobody knows. Fetches nothing.
    """
    spec = settings.model.model.strip()
    try:
        spec.encode()
        there = Path(spec).expanduser().exists()
    except (UnicodeError, RuntimeError):
        there = False
    named = spec.lower() in CATALOGUE or (not there and snapshot.HUB_ID.fullmatch(spec))
    if not named:
        spec = str(model_store.resolve(spec, paths, lambda *_: None).path)
    return Wanted(model=replace(settings.model, model=spec), decode=settings.decode)


def _windows_flags() -> int:
    """Detached, and in a group of its own; other systems' Python has no names for these."""
    names = ("DETACHED_PROCESS", "CREATE_NEW_PROCESS_GROUP")
    return sum(int(getattr(subprocess, name, 0)) for name in names)


def _environment(paths: Paths) -> dict[str, str]:
    environment = dict(os.environ)
    for name in ("cache", "data", "config", "runtime"):
        environment[f"SSPEC_ASSIST_{name.upper()}"] = str(getattr(paths, name))
    given = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    root = Path(__file__).parents[1]
    if not {"site-packages", "dist-packages"} & set(root.parts):
        given.append(str(root))
    if given:
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in given)
    return environment
