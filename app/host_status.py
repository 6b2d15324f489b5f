"""What is said of an engine while it has no model, and when a watcher should hear of a change.

Pure: structs in, structs out. It owns the words for a load that was stopped and for a process that
ends, so that every client reads the same ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import EngineError, EngineStatus, Failed

if TYPE_CHECKING:
    from app.wire import Wanted

STOPPED = Failed(
    code="load_stopped",
    message="loading the model was stopped",
    hint="The next question loads it again; what was fetched is kept.",
)
CLOSED = EngineError("closed", "the engine was stopped", "The next question starts it again.")


def unloaded(wanted: Wanted) -> EngineStatus:
    """The status of a model that is not in memory."""
    name = wanted.model.model
    return EngineStatus(
        state="asleep",
        model=Path(name).name if Path(name).is_absolute() else name,
        quant=wanted.model.quant,
        context_limit=wanted.model.context or 0,
    )


def differs(told: EngineStatus, now: EngineStatus) -> bool:
    """Whether a watcher should hear of it; the process's memory alone moves all the time."""
    step = 8 << 20
    alike = abs(told.memory_bytes - now.memory_bytes) < step
    return now != (replace(told, memory_bytes=now.memory_bytes) if alike else told)
