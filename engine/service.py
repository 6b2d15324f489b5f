"""`LocalEngine`: the one thread that owns the model, and the async face of it.

What callers want crosses to the thread through a queue; events come back through the caller's event
loop. The thread steps one answer at a time and asks `jobs.py` between two steps whose turn it is.
What it looks like to others is published after each step, so that asking costs it nothing.

What an answer does wrong ends that answer. Where the engine itself can't go on, its thread ends,
all who wait are told, and the status says that there is no model any more.

Invariants: torch is called from the engine thread only, once the engine runs; whatever a stream
tells last is published before; a closed engine holds no model.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

from engine.config import Quant
from engine.host_memory import resident_bytes
from engine.jobs import Job, Jobs
from engine.out_of_memory import is_out_of_memory, shortage
from engine.protocol import (
    ChatPrompt,
    EngineError,
    EngineStatus,
    Event,
    Failed,
    FillPrompt,
    Finished,
    GenerateRequest,
    PromptCost,
    Steering,
)
from engine.quant import cpu_library
from engine.session import Session

logger = logging.getLogger(__name__)

FORECAST_S = 1.0
"""How old what was forecast from costs may be while answers run."""


class LocalEngine:
    """An engine in this process."""

    def __init__(self, session: Session) -> None:
        """Takes the session over: nobody else may use it, or keep it, from now on."""
        self._session: Session | None = session
        self._jobs = Jobs(one_row=session.slots.one_for_all)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What the engine thread is to do before its next step."""
        self._closed = threading.Event()
        self._gate = threading.Lock()
        """Held to enter the inbox and to close it: what came in before the end is answered."""
        self._status = _described(session)
        self._forecast_at = float("-inf")
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Stream one answer; leaving the context ends it at the next step."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event]()
        left = threading.Event()

        def send(event: Event) -> None:
            if left.is_set():
                return
            try:
                loop.call_soon_threadsafe(events.put_nowait, event)
            except RuntimeError:  # the caller's loop was closed between the check and the call
                left.set()

        job = Job(request=request, send=send, has_left=left.is_set)
        if not self._tell(partial(self._jobs.add, job)):
            raise _closed()
        try:
            yield _until_last(events)
        finally:
            left.set()

    async def status(self) -> EngineStatus:
        """How the engine stood after its last step."""
        return self.snapshot()

    def snapshot(self) -> EngineStatus:
        """The same without waiting; safe from any thread."""
        return replace(self._status, memory_bytes=resident_bytes())

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """Count a prompt's tokens, beside whatever is decoded. Raises `EngineError`."""
        session = self._session
        if session is None:
            raise _closed()
        return await asyncio.to_thread(session.measure, prompt)

    async def steer(self, request_id: str, steering: Steering) -> None:
        """Change how a running answer drafts, from its next round on; one that is over is left
        alone. Raises `RequestError` for a k out of range and a route that the model lacks."""
        session = self._session
        if session is not None:
            session.check_steering(steering)  # here: the engine thread has nobody to refuse it to
        self._tell(partial(self._jobs.steer, request_id, steering))

    def close(self) -> None:
        """End every answer and the thread, and let go of the model."""
        with self._gate:
            self._closed.set()
            self._inbox.put(_wake)
        self._thread.join()

    def _tell(self, what: Callable[[], None]) -> bool:
        """Let the engine thread do this before its next step; False once it has none any more."""
        with self._gate:
            if self._closed.is_set():
                return False
            self._inbox.put(what)
            return True

    def _serve(self) -> None:
        session = self._session
        assert session is not None, "the thread starts before anything can close the engine"
        end = _closed()
        try:
            while not self._closed.is_set():
                self._take_in(wait=not self._jobs)
                self._jobs.remove_those_left()
                chosen = self._jobs.choose()
                self._publish(session)
                if chosen is not None:
                    self._advance(session, chosen)
        except Exception as error:
            logger.exception("the engine can't go on")
            end = _broken(error)
        finally:
            with self._gate:
                self._closed.set()
            self._take_in(wait=False)  # those who came during the last step
            ended = self._jobs.remove_all()
            self._session = None
            self._status = EngineStatus(state="asleep", model=session.name)
            for job in ended:
                job.send(end.as_event())

    def _take_in(self, *, wait: bool) -> None:
        while True:
            try:
                what = self._inbox.get(block=wait)
            except queue.Empty:
                return
            try:
                what()
            except Exception:
                logger.exception("what was asked of the engine between two steps was left undone")
            wait = False

    def _advance(self, session: Session, job: Job) -> None:
        try:
            if job.answer is None:
                job.answer = session.start(job.request)
                self._publish(session)
                job.send(job.answer.started())
                return
            for event in job.answer.step():
                if isinstance(event, Finished):
                    self._end(session, job)
                job.send(event)
        except EngineError as error:
            self._fail(session, job, error)
        except Exception as error:
            self._fail(session, job, _failure(job, error))

    def _fail(self, session: Session, job: Job, error: EngineError) -> None:
        """End an answer that can't go on; what it has said stays said."""
        rest = None
        try:
            rest = None if job.answer is None else job.answer.rest()
        except Exception:
            logger.exception("answer %s: what it had not told yet is lost", job.request.id)
        try:
            self._end(session, job)
        finally:
            if rest is not None:
                job.send(rest)
            job.send(error.as_event())

    def _end(self, session: Session, job: Job) -> None:
        self._jobs.remove(job)
        self._forecast_at = float("-inf")
        self._publish(session)

    def _publish(self, session: Session) -> None:
        status = self._status
        if (now := time.monotonic()) - self._forecast_at > FORECAST_S:
            self._forecast_at = now
            status = _described(session)
        cache = session.slots.cache
        # In one piece: others look at any moment.
        self._status = replace(
            status,
            running=self._jobs.running(),
            paused=self._jobs.paused(),
            queued=self._jobs.queued(),
            held=session.slots.held(),
            evictions=session.slots.evictions,
            cache_bytes=sum(cache.lengths) * cache.bytes_per_token,
        )


def is_exact(device: str, quant: Quant) -> bool:
    """Whether greedy text is bit-identical to plain decoding, not only equal in law."""
    return device == "cpu" and (quant != "nf4" or cpu_library() is not None)


def _described(session: Session) -> EngineStatus:
    """What of the status does not change from step to step."""
    loaded = session.loaded
    return EngineStatus(
        model=session.name,
        device=loaded.device,
        quant=loaded.quant,
        exact=is_exact(loaded.device, loaded.quant),
        context_limit=session.context_tokens,
        fallback_tokens=session.fallback_tokens(),
        weight_bytes=loaded.model.weight_bytes,
        plain_tokens_per_s=session.plain_tokens_per_s(),
        notice=loaded.notice,
    )


def _failure(job: Job, error: Exception) -> EngineError:
    if not is_out_of_memory(error):
        logger.exception("answer %s failed", job.request.id)
        hint = "The log has the details; the engine goes on."
        return EngineError("internal", f"the engine failed: {error!r}", hint)
    logger.warning("answer %s ended for want of memory: %s", job.request.id, error)
    row = None if job.answer is None else job.answer.row
    said = len(row.output) if row is not None else 0
    context = f" at a context of {len(row.tokens):,} tokens" if row is not None else ""
    return shortage(
        f"after {said:,} tokens of the answer{context}",
        "What came so far is kept. Close other programs, start with a smaller --context, or take a "
        "smaller model.",
    )


def _closed() -> EngineError:
    return EngineError("closed", "the engine was closed", "Start it again.")


def _broken(error: Exception) -> EngineError:
    hint = "The next question loads the model again. The log has the details."
    return EngineError("engine_broke", f"the engine can't go on: {error!r}", hint)


def _wake() -> None:
    """Nothing to do: it only ends a wait for something."""


async def _until_last(events: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        event = await events.get()
        yield event
        if isinstance(event, Finished | Failed):
            return
