"""Reading one answer to its end, for commands: events to a callback, a failure to an exception.

Knows of the engine only its protocol. Invariant: however the reading ends, the engine's context was
left, so nothing goes on being decoded that nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import (
    EngineError,
    Event,
    Failed,
    MemoryLimitError,
    ModelError,
    RequestError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from engine.protocol import Engine, GenerateRequest


async def read_events(
    engine: Engine, request: GenerateRequest, show: Callable[[Event], bool]
) -> None:
    """Hand every event to `show`, the last one included, until it returns False.

    Raises the `EngineError` that a `Failed` stands for, after it was shown.
    """
    async with engine.generate(request) as events:
        async for event in events:
            goes_on = show(event)
            if isinstance(event, Failed):
                raise error_of(event)
            if not goes_on:
                return


async def only(event: Event) -> AsyncIterator[Event]:
    """A stream of one event."""
    yield event


def error_of(failed: Failed) -> EngineError:
    """The error that came over the seam as an event, of the kind that its exit code says."""
    kinds = (RequestError, ModelError, MemoryLimitError)
    kind = next((kind for kind in kinds if kind.exit_code == failed.exit_code), EngineError)
    return kind(failed.code, failed.message, failed.hint)
