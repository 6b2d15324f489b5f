"""The two contracts: an engine, and one that several clients share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from engine.protocol.events import Event
from engine.protocol.requests import (
    ChatPrompt,
    FillPrompt,
    GenerateRequest,
    PromptCost,
    Steering,
)
from engine.protocol.status import EngineStatus


class Engine(Protocol):
    """What every engine can do: the local one, the remote one and the scripted one of the tests."""

    def generate(
        self, request: GenerateRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Stream the events of one answer; leaving the context cancels it within one round."""
        ...

    async def status(self) -> EngineStatus:
        """Describe the engine without counting as use of it."""
        ...

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """Count a prompt's tokens without answering it. Raises `EngineError`."""
        ...

    async def steer(self, request_id: str, steering: Steering) -> None:
        """Change how a running answer drafts; an answer that is over is left alone. Raises
        `EngineError` for what no answer of this engine can do."""
        ...

    def close(self) -> None:
        """Stop all work and free the model. Calling it twice is harmless."""
        ...


class SharedEngine(Engine, Protocol):
    """An engine in a process of its own, which several clients share."""

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[EngineStatus]]:
        """The status now and after each change. Being watched keeps the engine's process alive,
        and does not count as use of the model."""
        ...

    async def use_model(self, name: str) -> None:
        """Begin to load another model, fetching it if need be; `watch` tells how it goes."""
        ...

    async def stop_loading(self) -> None:
        """Give up a load or a download that is under way; what was fetched is kept."""
        ...
