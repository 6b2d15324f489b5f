"""`LocalEngine`: the one thread that owns the model, and the async face of it.

Requests cross to the thread through a queue; events come back through the caller's event loop.
Between two steps of an answer the thread looks at who waits: a fill goes before a chat, and within
one priority the first come runs first. A chat that is overtaken keeps its cache row and is told.

Invariant: torch is called from the engine thread only, once the engine runs.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import torch

from engine.answer import Answer
from engine.config import Quant
from engine.protocol import (
    EngineError,
    EngineStatus,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    MemoryLimitError,
    Paused,
    Resumed,
)
from engine.quant import cpu_library
from engine.session import Session

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    request: GenerateRequest
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event]
    left: threading.Event = field(default_factory=threading.Event)
    """Set when the caller has gone."""
    answer: Answer | None = None
    paused_at: float | None = None

    def send(self, event: Event) -> None:
        if self.left.is_set():
            return
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:  # the caller's loop was closed between the check and the call
            self.left.set()


class LocalEngine:
    """An engine in this process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inbox: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._jobs: list[_Job] = []
        self._closed = threading.Event()
        self._gate = threading.Lock()
        """Held to enter the inbox and to close it: what came in before the end is answered."""
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Stream one answer; leaving the context ends it at the next step."""
        job = _Job(request=request, loop=asyncio.get_running_loop(), events=asyncio.Queue())
        with self._gate:
            if self._closed.is_set():
                raise EngineError("closed", "the engine was closed", "Start it again.")
            self._inbox.put(job)
        try:
            yield _until_last(job.events)
        finally:
            job.left.set()

    def status(self) -> EngineStatus:
        """A snapshot; safe from any thread."""
        session, jobs = self._session, list(self._jobs)
        loaded, cache = session.loaded, session.slots.cache
        return EngineStatus(
            model=session.name,
            device=loaded.device,
            quant=loaded.quant,
            exact=is_exact(loaded.device, loaded.quant),
            context_limit=session.context_tokens,
            running=tuple(job.request.id for job in jobs if job.answer is not None),
            queued=tuple(job.request.id for job in jobs if job.answer is None),
            weight_bytes=loaded.model.weight_bytes,
            cache_bytes=sum(cache.lengths) * cache.bytes_per_token,
            plain_tokens_per_s=session.costs.plain_tokens_per_s(0),
        )

    def close(self) -> None:
        """End every answer and the thread."""
        with self._gate:
            self._closed.set()
            self._inbox.put(None)
        self._thread.join()

    def _serve(self) -> None:
        running: _Job | None = None
        while not self._closed.is_set():
            self._collect(wait=not self._jobs)
            self._drop_those_left()
            chosen = self._pick()
            if chosen is None:
                running = None
                continue
            self._announce(running, chosen)
            running = chosen
            self._advance(chosen)
        self._collect(wait=False)  # those who came during the last step
        for job in self._jobs:
            self._end(job)
            job.send(Failed(code="closed", message="the engine was closed", hint="Start it again."))

    def _collect(self, *, wait: bool) -> None:
        while True:
            try:
                job = self._inbox.get(block=wait)
            except queue.Empty:
                return
            if job is None:
                return
            self._jobs.append(job)
            wait = False

    def _drop_those_left(self) -> None:
        for job in [job for job in self._jobs if job.left.is_set()]:
            self._end(job)
            self._jobs.remove(job)

    def _pick(self) -> _Job | None:
        """The first fill, else the first chat; only jobs that hold a row or can get one."""
        can_start = self._session.slots.can_take()
        ready = [job for job in self._jobs if job.answer is not None or can_start]
        return min(ready, key=lambda job: job.request.priority == "chat", default=None)

    def _announce(self, running: _Job | None, chosen: _Job) -> None:
        if running is not None and running is not chosen and running in self._jobs:
            running.paused_at = time.perf_counter()
            running.send(Paused(by=chosen.request.id))
        if chosen.paused_at is not None:
            chosen.send(Resumed(paused_ms=(time.perf_counter() - chosen.paused_at) * 1e3))
            chosen.paused_at = None

    def _advance(self, job: _Job) -> None:
        try:
            if job.answer is None:
                job.answer = self._session.start(job.request)
                job.send(job.answer.started())
                return
            for event in job.answer.step():
                job.send(event)
            if job.answer.done:
                self._jobs.remove(job)
        except EngineError as error:
            self._fail(job, error)
        except (torch.OutOfMemoryError, MemoryError) as error:
            hint = "Start with a smaller --context or a smaller model."
            self._fail(job, MemoryLimitError("out_of_memory", f"memory ran out: {error}", hint))
        except Exception as error:
            logger.exception("answer %s failed", job.request.id)
            hint = "The log has the details; the engine goes on."
            self._fail(job, EngineError("internal", f"the engine failed: {error!r}", hint))

    def _fail(self, job: _Job, error: EngineError) -> None:
        self._end(job)
        self._jobs.remove(job)
        job.send(error.as_event())

    @staticmethod
    def _end(job: _Job) -> None:
        if job.answer is not None:
            job.answer.close()


def is_exact(device: str, quant: Quant) -> bool:
    """Whether greedy text is bit-identical to plain decoding, not only equal in law."""
    return device == "cpu" and (quant != "nf4" or cpu_library() is not None)


async def _until_last(events: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        event = await events.get()
        yield event
        if isinstance(event, Finished | Failed):
            return
