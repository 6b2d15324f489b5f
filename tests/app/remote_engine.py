"""A daemon in a thread of the test's own process, around any engine, and clients of it.

The whole road is real (socket, HTTP, host, client); only the process is missing. `remote` makes of
an engine one that is reached that way, for suites that run against every kind of engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from app import instance
from app.client import RemoteEngine
from app.daemon import serve
from app.engine_host import OpenEngine
from app.load_attempt import Opened
from app.paths import Paths
from app.settings import Settings
from app.starting import Starter
from app.wire import Startup
from engine.protocol import Engine, EngineError, Event, GenerateRequest, RoundDone
from tests.fakes import STATUS, ScriptedEngine, answer_script


def paths_in(folder: Path) -> Paths:
    return Paths(
        cache=folder / "cache",
        data=folder / "data",
        config=folder / "config",
        runtime=folder / "run",
    )


class NoStarter(Starter):
    """For clients that must find a daemon: starting one is a mistake of the test."""

    def start(self, startup: Startup) -> None:
        raise EngineError("no_start", "a client tried to start a daemon", "")


class Served:
    """A running daemon; `close` ends it."""

    def __init__(self, folder: Path, open_engine: OpenEngine, startup: Startup | None = None):
        self.paths = paths_in(folder)
        self.place = instance.place_of(self.paths.runtime)
        self._startup = startup or Startup()
        self._open_engine = open_engine
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="served")
        self._thread.start()
        assert self._up.wait(20)

    def client(self, settings: Settings | None = None, client: str = "test") -> RemoteEngine:
        starter = NoStarter(self.paths)
        return RemoteEngine(settings or Settings(), self.paths, client, starter)

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: it ended by itself, maybe just now
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with instance.claimed(self.place) as (bound, record):

            async def main() -> None:
                self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
                serving = asyncio.create_task(
                    serve(self._startup, bound, record.token, self._open_engine, self._ending)
                )
                while True:
                    if instance.listening(self.place):
                        break
                    await asyncio.sleep(0.005)
                self._up.set()
                await serving

            asyncio.run(main())


class _Remote(RemoteEngine):
    """A remote engine that takes its daemon along when it is closed."""

    def __init__(self, served: Served) -> None:
        super().__init__(Settings(), served.paths, "test", NoStarter(served.paths))
        self._served = served

    def close(self) -> None:
        self._served.close()


def remote(engine: Engine, folder: Path) -> RemoteEngine:
    """`engine`, reached through a socket in `folder`, loaded."""
    served = Served(folder, lambda wanted, report: Opened(engine=engine))
    reached = _Remote(served)

    async def loaded() -> None:
        async with reached.watch() as statuses:
            async for status in statuses:
                if status.state == "ready":
                    return

    # In a thread: whoever calls may be inside a loop of its own.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(loaded())).result()
    return reached


class PacedEngine(ScriptedEngine):
    """Answers with the text of the question, at a pace, and counts the rounds it was made to do."""

    def __init__(self, model: str = "scripted", pause_s: float = 0.0) -> None:
        super().__init__(
            lambda request: answer_script(question_of(request)),
            status=replace(STATUS, model=model),
        )
        self.rounds: Counter[str] = Counter()
        self._pause_s = pause_s

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        async with super().generate(request) as events:

            async def paced() -> AsyncIterator[Event]:
                async for event in events:
                    await asyncio.sleep(self._pause_s)
                    self.rounds[request.id] += isinstance(event, RoundDone)
                    yield event

            yield paced()


def question_of(request: GenerateRequest) -> str:
    turns = getattr(request.prompt, "turns", ())
    return turns[-1].content if turns else "a fill"


def opening(engine: Engine, opened: list[str] | None = None) -> OpenEngine:
    """Opens always the same engine, and notes what was wanted."""

    def open_engine(wanted: object, report: Callable[[str, int, int], None]) -> Opened:
        report("reading", 1, 2)
        if opened is not None:
            opened.append(wanted.model.model)  # type: ignore[attr-defined]
        return Opened(engine=engine)

    return open_engine
