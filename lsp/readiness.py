"""Whether the engine can answer at once, so that a wish need not wait to find out.

What worked a moment ago is trusted; else the engine is asked, with little patience. One whose model
is not in memory is woken in the background, and not again too soon. It knows no documents.

Invariant: nothing here raises or waits longer than `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.protocol import EngineError, EngineStatus, FillPrompt, SharedEngine

PATIENCE_S = 0.4
TRUST_S = 10.0
WAKE_AGAIN_S = 20.0

log = logging.getLogger(__name__)


class Readiness:
    """What is known of one engine."""

    def __init__(self, engine: SharedEngine, clock: Callable[[], float]) -> None:
        self.plain_tokens_per_s: float | None = None
        self._engine = engine
        self._clock = clock
        self._good_until = float("-inf")
        self._wake_after = float("-inf")
        self._waking: asyncio.Task[None] | None = None

    async def reason_not_to_ask(self) -> str:
        """Why no answer is to be had now; empty if one is."""
        if self._clock() < self._good_until:
            return ""
        status = await self._status()
        if status is None:
            self._wake()
            return "the engine is away"
        if status.state == "ready":
            self.worked()
            return ""
        if status.state == "asleep":
            self._wake()
        return f"the engine is {status.state}"

    async def is_idle(self) -> bool:
        """Whether the engine has nothing to do that a guess could hold up."""
        status = await self._status()
        if status is None or status.state != "ready":
            return False
        return not (status.running or status.paused or status.queued)

    async def held_tokens(self, conversation: str) -> int | None:
        """Tokens of a conversation that the engine keeps; None if it can't be told."""
        status = await self._status()
        if status is None:
            return None
        return next((one.tokens for one in status.held if one.conversation == conversation), None)

    def worked(self) -> None:
        """The engine has just answered."""
        self._good_until = self._clock() + TRUST_S

    def failed(self) -> None:
        """The engine has just failed to answer."""
        self._good_until = float("-inf")

    async def close(self) -> None:
        """Give up what is under way."""
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.wait({self._waking})

    async def _status(self) -> EngineStatus | None:
        try:
            status = await asyncio.wait_for(self._engine.status(), PATIENCE_S)
        except (EngineError, TimeoutError) as error:
            log.info("the engine's status can't be had: %s", error)
            return None
        self.plain_tokens_per_s = status.plain_tokens_per_s or self.plain_tokens_per_s
        return status

    def _wake(self) -> None:
        now = self._clock()
        if now < self._wake_after or (self._waking is not None and not self._waking.done()):
            return
        self._wake_after = now + WAKE_AGAIN_S
        self._waking = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        try:
            # The least that needs a model: counting a prompt's tokens.
            await self._engine.measure(FillPrompt(prefix="", suffix=""))
        except EngineError as error:
            log.info("the engine could not be woken: %s", error)
