"""A real language server process over a scratch engine, for the programs that measure through it.

Owns the folders that keep such a run apart from the user's own engine and counts, the server's
start and its greeting. What is asked of the server is the caller's business.

Invariant: within `scratch`, this process and all it starts meet in folders of their own, and no
engine is left there.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from app.client import RemoteEngine
from app.editor_wire import EditorWire
from app.paths import user_paths
from app.settings import Settings, user_settings
from app.stopping import stop_engine
from engine.protocol import FillPrompt

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-c", "from app.entry import main; main()", "lsp")
READY_S = 120.0


@contextmanager
def scratch(folder: Path, model: str | None) -> Iterator[Settings]:
    """The user's settings with `model`, for an engine whose runtime and data are in `folder`.

    The engine is ended when the context is left.
    """
    os.environ["SSPEC_ASSIST_RUNTIME"] = str(folder / "runtime")
    os.environ["SSPEC_ASSIST_DATA"] = str(folder / "data")
    if model is not None:
        os.environ["SSPEC_ASSIST_MODEL"] = model
    try:
        yield user_settings({})
    finally:
        stop_engine(user_paths())


async def loaded(settings: Settings, client: str) -> RemoteEngine:
    """The engine with its model in memory. Raises `EngineError`."""
    engine = RemoteEngine(settings, user_paths(), client)
    await engine.measure(FillPrompt(prefix="", suffix=""))
    return engine


@asynccontextmanager
async def served(
    folder: Path, options: Mapping[str, object], logged: Callable[[str], object]
) -> AsyncIterator[EditorWire]:
    """A server that has its engine, with `folder` as the workspace.

    `options` are its settings; `logged` gets each line that it writes into its client's log.
    """
    ready = asyncio.Event()

    def told(method: str, params: Any) -> None:
        if method == "sspecAssist/status" and params.get("state") == "ready":
            ready.set()
        elif method == "window/logMessage":
            logged(params["message"])

    wire = EditorWire(told)
    inherited = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(part for part in (str(ROOT), inherited) if part)
    await wire.start(COMMAND, os.environ | {"PYTHONPATH": path})
    try:
        await _greet(wire, folder, options)
        await asyncio.wait_for(ready.wait(), READY_S)
        yield wire
    finally:
        await wire.close()


async def _greet(wire: EditorWire, folder: Path, options: Mapping[str, object]) -> None:
    hello = {
        "processId": os.getpid(),
        "clientInfo": {"name": "measure"},
        "workspaceFolders": [{"uri": folder.as_uri(), "name": folder.name}],
        "capabilities": {"general": {"positionEncodings": ["utf-16"]}},
        "initializationOptions": dict(options),
    }
    await wire.ask("initialize", hello)[1]
    wire.notify("initialized", {})
