"""Ending the daemon: by asking it, and by force where it does not listen any more.

It owns the patience, and that only the process that holds the lock is ever signalled. Blocking and
light. Invariant: when it returns, nobody holds the place.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from app import instance
from app.client import RemoteEngine
from app.settings import Settings
from engine.processes import process_of
from engine.protocol import EngineError

if TYPE_CHECKING:
    from app.instance import Place
    from app.paths import Paths

ASKED_S = 8.0
"""Longer than the daemon gives its answers to end."""
SIGNALLED_S = 3.0
_LOOK_S = 0.05


def stop_engine(paths: Paths, *, patience_s: float = SIGNALLED_S) -> bool:
    """End the daemon of this user, if there is one; tells whether there was.

    One that gives no answer for `patience_s` is ended by force, with as much for each signal.
    Raises `EngineError` if it can't be ended.
    """
    place = instance.place_of(paths.runtime)
    if not instance.is_held(place):
        return False
    with suppress(EngineError, TimeoutError):
        asyncio.run(_asked(paths, patience_s))
        if _is_free(place, ASKED_S):
            return True
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        _signal(place, number)
        if _is_free(place, patience_s):
            return True
    record = instance.read_record(place)
    named = f"process {record.pid}" if record else "an unknown process"
    raise EngineError(
        "engine_stays", f"the engine does not end ({named})", "End that process by other means."
    )


async def _asked(paths: Paths, patience_s: float) -> None:
    async with asyncio.timeout(patience_s):
        await RemoteEngine(Settings(), paths, "stop").shut_down()


def _signal(place: Place, number: int) -> None:
    """Signal the process in the record, if it is still the one that wrote it."""
    import psutil

    record = instance.read_record(place)
    process = process_of(record.pid, record.started) if record else None
    if process is None:
        return
    with suppress(psutil.Error):
        process.terminate() if sys.platform == "win32" else process.send_signal(number)


def _is_free(place: Place, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while instance.is_held(place):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True
