"""What the daemon keeps alive: one model, asleep, loading, ready or failed, and who waits for it.

It owns the decision when the model is loaded, put away and exchanged, and when nobody needs the
process any longer. How a model is opened is given to it, and so is the clock; it knows no HTTP and
no torch.

Invariant: at most one model is in memory or on its way there, and a model is never taken from
under an answer. Watching and asking for the status are not use; a client that is connected keeps
the process, use keeps the model.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.host_status import BROKEN, CLOSED, STOPPED, Refused, completed, differs, emptied, unloaded
from app.load_attempt import LoadAttempt, Opened
from app.stream import error_of, only
from engine.protocol import EngineError, EngineStatus, Event, Failed, GenerateRequest, LoadProgress

if TYPE_CHECKING:
    from app.load_attempt import Outcome
    from app.progress import Report
    from app.settings import DaemonSettings
    from app.wire import Wanted
    from engine.protocol import ChatPrompt, Engine, FillPrompt, PromptCost, Steering

OpenEngine = Callable[["Wanted", "Report"], Opened]
"""Blocking; raises `EngineError`."""

BUSY_LOOK_S = 0.25
IDLE_LOOK_S = 15.0
"""How often the status is compared for a watcher, beside the moments when it is known to change."""
RETRY_S = 10.0
"""A load that failed is not tried again sooner: an editor asks at every key."""

logger = logging.getLogger(__name__)


class EngineHost:
    """Needs a running loop from `begin` on, and is to be used from it alone."""

    def __init__(
        self,
        open_engine: OpenEngine,
        wanted: Wanted,
        daemon: DaemonSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        free_memory: Callable[[], object] = gc.collect,
        memory_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self.wanted = wanted
        self._open_engine = open_engine
        self._daemon = daemon
        self._clock = clock
        self._free_memory = free_memory
        self._memory_bytes = memory_bytes
        self._engine: Engine | None = None
        self._known = unloaded(wanted)
        self._notice = ""
        self._move: asyncio.Task[None] | None = None
        """Under way from one state to another."""
        self._attempt: LoadAttempt | None = None
        self._progress: LoadProgress | None = None
        self._failure: Failed | None = None
        self._failed_at = 0.0
        self._proven: Wanted | None = None
        """What was in memory last; a change that fails goes back to it."""
        self._refused: Refused | None = None
        """The change that failed, until the model that came back is used."""
        self._answers = 0
        """Requests that the engine is busy with."""
        self._connections: Counter[str] = Counter()
        self._last_need = self._last_use = clock()
        self._changed = asyncio.Event()
        self._closed = False

    def begin(self, wanted: Wanted | None = None) -> None:
        """Begin to load, giving up what is loaded or being loaded if that is something else."""
        wanted = self.wanted if wanted is None else wanted
        same = wanted == self.wanted
        if self._closed or (same and (self._moving or self._engine is not None)):
            return
        self.wanted = wanted
        self._failure = self._refused = None
        self._move = asyncio.create_task(self._bring(wanted, self._move), name="bring a model")
        self._tell_progress(LoadProgress(stage="starting"))

    async def stop_loading(self) -> None:
        """End a load at its next step; a change that waits for running answers has begun none."""
        if self._attempt is not None and self._move is not None:
            self._attempt.stop()
            await asyncio.wait([self._move])

    @contextmanager
    def present(self, client: str) -> Iterator[None]:
        """Hold one connection of `client` open."""
        self._connections[client] += 1
        self._tell()
        try:
            yield
        finally:
            self._connections[client] -= 1
            self._connections += Counter()  # drops those that are down to nothing
            self._last_need = self._clock()
            self._tell()

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Stream an answer, once there is a model; what prevents that is the stream's one event."""
        try:
            engine = await self._ready()
        except EngineError as error:
            yield only(error.as_event())
            return
        with self._in_use():
            async with engine.generate(request) as events:
                yield events

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """Count a prompt's tokens; loads the model if need be. Raises `EngineError`."""
        engine = await self._ready()
        with self._in_use():
            return await engine.measure(prompt)

    async def steer(self, request_id: str, steering: Steering) -> None:
        """Change how a running answer drafts."""
        if self._engine is not None:
            await self._engine.steer(request_id, steering)

    async def status(self) -> EngineStatus:
        """What the engine says of itself, and what it can't know."""
        await self._look()
        told = completed(self._known, self._notice, len(self._connections), self._memory_bytes())
        if self._engine is not None and (self._answers or not self._moving):
            return self._refused.told(told) if self._refused else replace(told, state="ready")
        if self._progress is not None:
            return replace(told, state="loading", load=self._progress)
        if self._failure is not None and self._failure != STOPPED:
            return replace(told, state="failed", failure=self._failure)
        return replace(told, state="asleep")

    async def watch(self) -> AsyncIterator[EngineStatus]:
        """The status now and after each change, until the host is closed."""
        told: EngineStatus | None = None
        while True:
            changed, closing = self._changed, self._closed
            status = await self.status()
            if told is None or differs(told, status):
                told = status
                yield status
            if closing:
                return
            wait_s = BUSY_LOOK_S if self._answers or self._moving else IDLE_LOOK_S
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait_s)

    async def tick(self) -> bool:
        """Put the model away if its time is over; True when nobody needs the process any longer."""
        if self._answers or self._moving:
            return False
        now = self._clock()
        unload_s, idle_s = self._daemon.unload_minutes * 60, self._daemon.idle_minutes * 60
        if self._engine is not None and 0 < unload_s <= now - self._last_use:
            self._move = asyncio.create_task(self._put_away(), name="put the model away")
            await asyncio.wait([self._move])
        if self._connections or not idle_s:
            return False
        return now - max(self._last_use, self._last_need) >= idle_s

    async def close(self) -> None:
        """End every answer and every load, and let go of the model. Twice is harmless."""
        self._closed = True
        if self._attempt is not None:
            self._attempt.stop()
        if self._move is not None:
            self._move.cancel()
            await asyncio.wait([self._move])
        await self._put_away()
        self._notice = CLOSED.message
        self._tell()

    @property
    def holds_model(self) -> bool:
        """Whether a change of the model gives one up."""
        return self._engine is not None

    @property
    def _moving(self) -> bool:
        return self._move is not None and not self._move.done()

    async def _look(self) -> None:
        """Ask the engine how it stands; one that ended by itself is put away."""
        if (engine := self._engine) is not None:
            with suppress(EngineError):  # it was closed in this moment
                self._known = await engine.status()
                if self._known.state == "asleep" and self._engine is engine:
                    self._failure = BROKEN
                    await self._put_away()

    async def _ready(self) -> Engine:
        while True:
            await self._look()
            recent = self._failure is not None and self._clock() - self._failed_at < RETRY_S
            absent = not self._moving and self._engine is None
            if absent and (not recent or self._failure in (STOPPED, BROKEN)):
                self.begin()
            while self._moving and self._move is not None:
                await asyncio.wait([self._move])
            # Neither here nor failed: it was just being put away, and is wanted again.
            if self._engine is not None or self._failure is not None or self._closed:
                break
        if self._engine is None or self._closed:
            raise CLOSED if self._closed or self._failure is None else error_of(self._failure)
        return self._engine

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._answers += 1
        self._tell()
        try:
            yield
        finally:
            self._answers -= 1
            self._refused = None
            self._last_use = self._clock()
            self._tell()

    async def _bring(self, wanted: Wanted, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            if self._attempt is not None:
                self._attempt.stop()
            await asyncio.wait([before])
        if self._engine is not None:
            await self._until_unused(wanted)
            await self._put_away()
        if wanted != self.wanted:
            return  # somebody wished for yet another one meanwhile
        outcome, back = await self._tried(wanted), self._proven
        if isinstance(outcome, Failed) and back and wanted == self.wanted != back:
            self._refused = refused = Refused(wanted=wanted, failure=outcome, back=back)
            self.wanted = wanted = back
            self._tell_progress(LoadProgress(stage="going back"))
            outcome = refused.worded(await self._tried(back))
        if isinstance(outcome, Opened):
            self._engine, self._notice, self._failure = outcome.engine, outcome.notice, None
            self._proven = wanted
            logger.info("loaded %s", wanted.model.model)
        else:
            self._failure = outcome or STOPPED
        self._failed_at = self._last_use = self._clock()
        self._tell()

    async def _tried(self, wanted: Wanted) -> Outcome:
        """How one attempt to load ended."""
        self._known, self._notice = unloaded(wanted), ""
        self._attempt = LoadAttempt(
            lambda report: self._open_engine(wanted, report), self._tell_progress
        )
        try:
            return await self._attempt.outcome()
        finally:
            self._attempt = None
            if wanted == self.wanted:
                self._progress = None

    async def _until_unused(self, wanted: Wanted) -> None:
        while self._answers:
            self._notice = f"changing to {unloaded(wanted).model} once the running answers are over"
            self._tell()
            await self._changed.wait()

    async def _put_away(self) -> None:
        if self._engine is None:
            return
        engine, self._engine = self._engine, None
        self._known = emptied(self._known)
        await asyncio.to_thread(engine.close)
        del engine
        await asyncio.to_thread(self._free_memory)
        logger.info("the model left memory")
        self._tell()

    def _tell_progress(self, progress: LoadProgress) -> None:
        self._progress = progress
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
