"""One attempt to bring a model into memory: blocking work in a thread, seen from an event loop.

It owns the thread, the pace of its progress reports and the way to stop it: the next report raises
in the thread, so the work unwinds as it would after Ctrl-C and leaves nothing half-written. It
knows neither torch nor what is loaded.

Invariant: every attempt has exactly one outcome, and an engine that came too late is closed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.protocol import EngineError, Failed, LoadProgress, MemoryLimitError

if TYPE_CHECKING:
    from app.progress import Report
    from engine.protocol import Engine

REPORT_EVERY_S = 0.1

logger = logging.getLogger(__name__)


class LoadStoppedError(BaseException):
    """Raised in the loading thread; no `except Exception` on its way may take it for a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An engine that is ready."""

    engine: Engine
    notice: str = ""
    """What was done differently from what was asked."""


Outcome = Opened | Failed | None
"""None where the attempt was stopped."""


class LoadAttempt:
    """Runs `work` at once. Needs a running loop, and is to be used from it alone."""

    def __init__(
        self, work: Callable[[Report], Opened], tell: Callable[[LoadProgress], None]
    ) -> None:
        self._work = work
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._stop = threading.Event()
        self._stage = ""
        self._told_at = 0.0
        # A daemon thread: what can't be stopped (an import, a measurement) must not hold the
        # process when it is asked to end.
        threading.Thread(target=self._run, name="load", daemon=True).start()

    def stop(self) -> None:
        """Have it end at its next report."""
        self._stop.set()

    async def outcome(self) -> Outcome:
        """How it ended. Being cancelled here does not stop the attempt."""
        return await asyncio.shield(self._outcome)

    def _run(self) -> None:
        outcome: Outcome
        try:
            outcome = self._work(self._report)
            if self._stop.is_set():
                outcome.engine.close()
                outcome = None
        except LoadStoppedError:
            outcome = None
        except EngineError as error:
            outcome = error.as_event()
        except MemoryError:
            outcome = out_of_memory().as_event()
        except BaseException as error:
            logger.exception("loading failed")
            outcome = EngineError(
                "internal", f"loading failed: {error!r}", "`sspec-assist engine logs` has more."
            ).as_event()
        if outcome is None:
            logger.info("loading was stopped")
        elif isinstance(outcome, Failed):
            logger.warning("not loaded: %s. %s", outcome.message, outcome.hint)
        self._in_loop(lambda: self._outcome.set_result(outcome))

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise LoadStoppedError
        now = time.monotonic()
        if stage == self._stage and done != total and now - self._told_at < REPORT_EVERY_S:
            return
        self._stage, self._told_at = stage, now
        # A total of 1 belongs to a stage that has nothing to count.
        counted = total > 1
        told = LoadProgress(stage=stage, done=done if counted else 0, total=total if counted else 0)
        self._in_loop(lambda: self._tell(told))

    def _in_loop(self, call: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            logger.info("a load ended after the process had begun to")


def out_of_memory() -> MemoryLimitError:
    """Memory ran out where the plan had not foreseen it."""
    return MemoryLimitError(
        "out_of_memory",
        "memory ran out while the model was loaded",
        "Close other programs, or choose a smaller model or a smaller --context.",
    )
