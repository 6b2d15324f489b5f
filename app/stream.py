"""Reading one answer to its end, for commands: events to a callback, a failure to an exception.

Knows of the engine only its protocol. Invariant: however the reading ends, the engine's context was
left, so nothing goes on being decoded that nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import EngineError, Event, Failed, MemoryLimitError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.protocol import Engine, GenerateRequest

_KINDS: Mapping[str, type[EngineError]] = {
    "closed": EngineError,
    "internal": EngineError,
    "out_of_memory": MemoryLimitError,
}
"""Codes of a running engine that are not the request's fault."""


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


def error_of(failed: Failed) -> EngineError:
    """The error that came over the seam as an event."""
    kind = _KINDS.get(failed.code, RequestError)
    return kind(failed.code, failed.message, failed.hint)
