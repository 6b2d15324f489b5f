"""What is said of an engine while it has no model, and when a watcher should hear of a change.

Pure: structs in, structs out. It owns the words for a load that was stopped, for an engine that
broke and for a process that ends, so that every client reads the same ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import EngineError, EngineStatus, Failed

if TYPE_CHECKING:
    from app.load_attempt import Outcome
    from app.wire import Wanted

STOPPED = Failed(
    code="load_stopped",
    message="loading the model was stopped",
    hint="The next question loads it again; what was fetched is kept.",
)
BROKEN = Failed(
    code="engine_broke",
    message="the engine could not go on",
    hint="The next question loads the model again; `sspec-assist engine logs` has more.",
)
CLOSED = EngineError("closed", "the engine was stopped", "The next question starts it again.")


class Refused(Struct, frozen=True, kw_only=True):
    """A change of the model that failed, and the model that was there before."""

    wanted: Wanted
    failure: Failed
    back: Wanted

    def told(self, status: EngineStatus) -> EngineStatus:
        """The status once the earlier model is back."""
        hint = f" {self.failure.hint}" if self.failure.hint else ""
        said = f"{self._what_failed()}.{hint} {unloaded(self.back).model} is back."
        notice = f"{status.notice} {said}".strip()
        return replace(status, state="ready", failure=self.failure, notice=notice)

    def worded(self, outcome: Outcome) -> Outcome:
        """How going back ended; a failure tells of both models."""
        if not isinstance(outcome, Failed):
            return outcome
        back = unloaded(self.back).model
        message = f"{self._what_failed()}, and {back} did not come back: {outcome.message}"
        return replace(outcome, message=message)

    def _what_failed(self) -> str:
        return f"{unloaded(self.wanted).model} was not loaded: {self.failure.message.rstrip('.')}"


def unloaded(wanted: Wanted) -> EngineStatus:
    """The status of a model that is not in memory."""
    name = wanted.model.model
    return EngineStatus(
        state="asleep",
        model=Path(name).name if Path(name).is_absolute() else name,
        quant=wanted.model.quant,
        context_limit=wanted.model.context or 0,
    )


def completed(known: EngineStatus, notice: str, clients: int, memory_bytes: int) -> EngineStatus:
    """What an engine said of itself, and what it can't know."""
    return replace(
        known,
        load=None,
        failure=None,
        clients=clients,
        memory_bytes=memory_bytes,
        notice=" ".join(part for part in (known.notice, notice) if part),
    )


def emptied(status: EngineStatus) -> EngineStatus:
    """The status of an engine whose model has left memory."""
    return replace(status, running=(), paused=(), queued=(), held=(), weight_bytes=0, cache_bytes=0)


def differs(told: EngineStatus, now: EngineStatus) -> bool:
    """Whether a watcher should hear of it; the process's memory alone moves all the time."""
    step = 8 << 20
    alike = abs(told.memory_bytes - now.memory_bytes) < step
    return now != (replace(told, memory_bytes=now.memory_bytes) if alike else told)
