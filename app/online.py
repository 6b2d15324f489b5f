"""The root of shared use from a command: the engine of this user's daemon, loaded and ready.

It shows on stderr how the load goes, changes the model when nobody else would notice, and says so
when the running engine is another than the one that was asked for. It never imports torch.
Invariant: what goes wrong before the block is an `EngineError` with the exit code that in-process
use has; nothing is written to stdout.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.client import RemoteEngine
from app.paths import user_paths
from app.progress import shown_on
from app.stream import error_of
from engine.protocol import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.progress import Report
    from app.settings import Settings
    from engine.protocol import Engine, EngineStatus

LOOK_S, LOOKS = 0.05, 20


@contextmanager
def shared_engine(settings: Settings, client: str) -> Iterator[Engine]:
    """The daemon's engine with its model in memory; the daemon is started if there is none.

    Raises `EngineError` as loading does. Ctrl-C while it loads ends the load, unless another
    client waits for it as well.
    """
    engine = RemoteEngine(settings, user_paths(), client)
    with shown_on(sys.stderr) as progress:
        asyncio.run(until_ready(engine, settings, progress))
    if difference := engine.difference():
        remedy = "others use it: wait, end it with `sspec-assist engine stop`, or use --no-daemon"
        sys.stderr.write(f"the running engine has {difference}; {remedy}\n")
    yield engine


async def until_ready(engine: RemoteEngine, settings: Settings, progress: Report) -> None:
    """Wait until the model is in memory, showing the stages. Raises `EngineError`."""
    tried = False
    """The load that these settings ask for was seen, so its end is the answer."""
    try:
        async with engine.watch() as statuses:
            async for status in statuses:
                if tried and status.state == "ready":
                    _raise_if_refused(status)
                change = _may_change(engine, settings, status)
                if status.state == "ready" and not change:
                    return
                if status.state == "loading" and status.load is not None and not change:
                    progress(status.load.stage, status.load.done, status.load.total)
                    tried = True
                elif tried:
                    _raise_if_over(status if _is_lost(status) else await engine.status())
                else:
                    await engine.use(settings)
                    tried = True
    except asyncio.CancelledError:
        if await _nobody_is_left(engine):
            await engine.stop_loading()
        raise


async def _nobody_is_left(engine: RemoteEngine) -> bool:
    """Whether no client waits for the engine, now that this one watches no longer: its connection
    is closed, which the daemon sees a moment later."""
    for _ in range(LOOKS):
        if not (await engine.status()).clients:
            return True
        await asyncio.sleep(LOOK_S)
    return False


def _may_change(engine: RemoteEngine, settings: Settings, status: EngineStatus) -> bool:
    """Whether the engine is to be changed to `settings`: they were asked for on this command, and
    nobody else is there to be surprised."""
    explicit = ("the command line", "the environment")
    asked = any(settings.origins.get(key) in explicit for key in engine.differing())
    return asked and (status.clients <= 1 or status.state in ("asleep", "failed"))


def _is_lost(status: EngineStatus) -> bool:
    return status.failure is not None and status.failure.code == "engine_lost"


def _raise_if_refused(status: EngineStatus) -> None:
    """The model asked for could not be loaded, and the one before is back."""
    if status.failure is not None:
        raise error_of(status.failure)


def _raise_if_over(status: EngineStatus) -> None:
    if status.state == "failed" and status.failure is not None:
        raise error_of(status.failure)
    if status.state == "asleep":
        raise EngineError("load_stopped", "loading the model was stopped", "Ask again to load it.")
