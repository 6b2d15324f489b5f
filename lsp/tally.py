"""How speculation does in the editor: an engine that counts what passes through it.

It forwards everything and changes nothing. Most completions are left before their stream ends, so
what is counted is rounds. Bound to the last few hundred of them, so that the figures are today's.

Invariant: α is accepted ÷ tested; a speed is tokens ÷ the wall time of the rounds that made them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from engine.protocol import (
    ChatPrompt,
    EngineStatus,
    Event,
    FillPrompt,
    GenerateRequest,
    PromptCost,
    RoundDone,
    SharedEngine,
    Steering,
)

ROUNDS = 200
FEWEST_TOKENS = 20
"""Below that many, a ratio says nothing yet."""


class Tally:
    """The figures of the last rounds, and which answers are awaited."""

    def __init__(self) -> None:
        self.awaited: set[str] = set()
        self._rounds: deque[RoundDone] = deque(maxlen=ROUNDS)

    def observe(self, event: Event) -> None:
        """Count an event if it is a round."""
        if isinstance(event, RoundDone):
            self._rounds.append(event)

    @property
    def alpha(self) -> float | None:
        """Accepted ÷ tested; None where too few were tested."""
        tested = sum(one.tested for one in self._rounds)
        if tested < FEWEST_TOKENS:
            return None
        return sum(one.accepted for one in self._rounds) / tested

    def times_plain(self, plain_tokens_per_s: float | None) -> float | None:
        """Tokens per second ÷ those of plain decoding; None where too little was measured."""
        tokens = sum(one.accepted + 1 for one in self._rounds)
        seconds = sum(one.round_ms for one in self._rounds) / 1000
        if not plain_tokens_per_s or tokens < FEWEST_TOKENS or seconds <= 0:
            return None
        return tokens / seconds / plain_tokens_per_s


class TalliedEngine:
    """A `SharedEngine` whose answers are counted."""

    def __init__(self, engine: SharedEngine) -> None:
        self.tally = Tally()
        self._engine = engine

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Forward one answer and count its rounds."""
        if request.priority != "idle":  # for which nobody waits
            self.tally.awaited.add(request.id)
        try:
            async with (
                self._engine.generate(request) as events,
                aclosing(self._counted(events)) as counted,
            ):
                yield counted
        finally:
            self.tally.awaited.discard(request.id)

    async def _counted(self, events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
        async for event in events:
            self.tally.observe(event)
            yield event

    async def status(self) -> EngineStatus:
        """Forwarded."""
        return await self._engine.status()

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """Forwarded."""
        return await self._engine.measure(prompt)

    async def steer(self, request_id: str, steering: Steering) -> None:
        """Forwarded."""
        await self._engine.steer(request_id, steering)

    def close(self) -> None:
        """Forwarded."""
        self._engine.close()

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[EngineStatus]]:
        """Forwarded."""
        return self._engine.watch()

    async def use_model(self, name: str) -> None:
        """Forwarded."""
        await self._engine.use_model(name)

    async def stop_loading(self) -> None:
        """Forwarded."""
        await self._engine.stop_loading()
