"""The process that owns the model: started by the first client, found by the next ones.

It puts the parts together: the place (`instance`), the host of the model (`engine_host`), the
surface (`http_surface`) and the way this machine opens an engine. It answers before torch is
imported; that happens in the thread that loads.

Invariant: nothing listens before the lock is held and the socket is for this user alone; however
the process ends, a lock, a socket or a half-written file never keeps the next one from starting.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil
import uvicorn

from app import instance, logs
from app.engine_host import EngineHost
from app.heap import give_back_freed_memory
from app.http_surface import http_app
from app.load_attempt import Opened
from app.paths import user_paths
from app.wire import Startup, Wanted
from engine.protocol import EngineError

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Sequence

    from app.engine_host import OpenEngine
    from app.paths import Paths
    from app.progress import Report

LOOK_EVERY_S = 5.0
"""How often it is asked whether the model or the process has outlived its time."""
CLOSE_S = 3.0
_TURNS_TO_CONNECT = 3
"""Turns of asyncio's loop from accepting to a connection: its task, its transport, its protocol."""

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run a daemon for this user; the one argument is a `Startup` as JSON. Returns an exit code."""
    startup = msgspec.json.decode(arguments[0], type=Startup)
    return run(startup, user_paths(), open_local)


def run(startup: Startup, paths: Paths, open_engine: OpenEngine) -> int:
    """Serve until it is told to end or nobody needs it; 0 also where another one serves already."""
    try:
        with instance.sentences(paths.log_file().parent):
            logs.configure_file(paths.log_file())
        with instance.claimed(instance.place_of(paths.runtime)) as (bound, record):
            _give_way(startup.daemon.nice)
            logger.info("the engine's process starts, protocol %s", record.protocol)
            asyncio.run(serve(startup, bound, record.token, open_engine))
            logger.info("the engine's process ends")
    except instance.AlreadyRunningError:
        return 0
    except EngineError as error:
        logger.error("%s", error)
        return error.exit_code
    return 0


def open_local(wanted: Wanted, report: Report) -> Opened:
    """The engine of this machine for exactly these settings. Blocking; raises `EngineError`."""
    from app.offline import load_session

    session = load_session(wanted.model, wanted.decode, report)
    from engine.service import LocalEngine

    return Opened(engine=LocalEngine(session))


def check_files(wanted: Wanted) -> None:
    """Raise `ModelError` for a model on disk whose files can't be used; reads their headers."""
    from engine.preflight import inspect

    path = Path(wanted.model.model)
    if path.is_absolute():  # any other is a name, whose files are fetched and checked on loading
        inspect(path)


async def serve(
    startup: Startup,
    bound: socket.socket,
    token: str,
    open_engine: OpenEngine,
    ending: asyncio.Event | None = None,
) -> None:
    """Serve on a bound socket until a client, a signal, idleness or the caller sets `ending`."""
    process = psutil.Process()
    host = EngineHost(
        open_engine,
        startup.wanted,
        startup.daemon,
        free_memory=give_back_freed_memory,
        memory_bytes=lambda: int(process.memory_info().rss),
    )
    ending = ending or asyncio.Event()
    server = _Server(http_app(host, token=token, stop=ending.set, check=check_files), ending)
    host.begin()
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    # A server that fails ends the process too; its error is raised below.
    serving.add_done_callback(lambda _: ending.set())
    looking = asyncio.create_task(_until_unneeded(host, startup, ending))
    await ending.wait()
    looking.cancel()
    # First of all: whoever waits for an answer is told, and the streams end by themselves.
    with suppress(TimeoutError):
        await asyncio.wait_for(host.close(), CLOSE_S)
    await serving


async def _until_unneeded(host: EngineHost, startup: Startup, ending: asyncio.Event) -> None:
    limits = [m * 60 for m in (startup.daemon.idle_minutes, startup.daemon.unload_minutes) if m]
    pause_s = min([LOOK_EVERY_S, *(limit / 4 for limit in limits)])
    while True:
        if await host.tick():
            break
        await asyncio.sleep(pause_s)
    logger.info("nobody has needed the engine for %g minutes", startup.daemon.idle_minutes)
    ending.set()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which end the process before anything is tidied up, and
    without its ten wake-ups a second."""

    def __init__(self, app: object, ending: asyncio.Event) -> None:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._ending = ending

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Windows has no such handlers and ends it outright; a thread of a test has none either.
            with suppress(NotImplementedError, ValueError, RuntimeError):
                asyncio.get_running_loop().add_signal_handler(number, self._ending.set)
        yield

    async def main_loop(self) -> None:
        await self._ending.wait()
        await self._stop_accepting()

    async def _stop_accepting(self) -> None:
        """Let what was accepted become a connection before the servers are closed.

        asyncio mislays one that is accepted in the turn before its server is closed (CPython issue
        109564, open in 2026): nobody closes it, and its client waits for an answer.
        """
        loop = asyncio.get_running_loop()
        for listener in (each for server in self.servers for each in server.sockets):
            # Windows' loop accepts without watching.
            with suppress(NotImplementedError):
                loop.remove_reader(listener.fileno())
        for _ in range(_TURNS_TO_CONNECT):
            await asyncio.sleep(0)


def _give_way(nice: int) -> None:
    """Let screens and editors go first where the cores are few."""
    if nice and hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(nice)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    logging.shutdown()
    # A thread that is inside an import or a measurement can't be stopped, and need not be: nothing
    # is half-written by it, and the interpreter must not be taken down under it.
    os._exit(code)
