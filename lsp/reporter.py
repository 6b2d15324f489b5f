"""Follows the engine and tells the client how it is: status, load progress, and when it is away.

It watches only while completions are switched on, because watching starts the engine's process and
keeps it. When the engine can't be reached it says so once, and tries again after waits that grow.
What is told, and in which words, is `status`'s and `client`'s business.

Invariant: it never raises and never ends of itself; a client that hears nothing new knows all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.protocol import EngineError, EngineStatus
from lsp.client import Client
from lsp.status import OFF, away, progress_text, status_of
from lsp.tally import TalliedEngine

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
REFRESH_S = 2.0
"""How often the figures are looked at."""

log = logging.getLogger(__name__)


class Reporter:
    """Tells one client of one engine."""

    def __init__(
        self,
        client: Client,
        engine: TalliedEngine,
        enabled: Callable[[], bool],
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._client = client
        self._engine = engine
        self._enabled = enabled
        self._first_wait_s = first_wait_s
        self._last: EngineStatus | None = None
        self._wake = asyncio.Event()

    def settings_changed(self) -> None:
        """Look again whether completions are switched on."""
        self._wake.set()

    async def run(self) -> None:
        """Follow the engine until cancelled."""
        while True:
            self._wake.clear()
            if not self._enabled():
                self._client.end_progress("switched off")
                self._client.show(OFF)
                await self._wake.wait()
                continue
            following = asyncio.ensure_future(self._follow())
            refreshing = asyncio.ensure_future(self._refresh())
            try:
                while self._enabled():
                    await self._wake.wait()
                    self._wake.clear()
            finally:
                following.cancel()
                refreshing.cancel()
                await asyncio.gather(following, refreshing, return_exceptions=True)

    async def _follow(self) -> None:
        wait = self._first_wait_s
        while True:
            try:
                async with self._engine.watch() as statuses:
                    async for status in statuses:
                        wait = self._first_wait_s
                        await self._take(status)
            except EngineError as error:
                self._last = None
                told = away(error.as_event())
                self._client.end_progress(told.text)
                self._client.warn(told.text)
                self._client.show(told)
            except Exception:
                log.exception("the engine's status can't be followed")
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    async def _take(self, status: EngineStatus) -> None:
        self._last = status
        told = status_of(status, self._engine.tally)
        self._client.show(told)
        if status.state == "loading":
            await self._client.show_progress(
                f"sspec-assist: {status.model}", progress_text(status.load)
            )
            return
        self._client.end_progress(told.text)
        if status.state == "failed":
            self._client.warn(told.text)
        if status.notice:
            self._client.inform(status.notice)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            if self._last is not None:
                self._client.show(status_of(self._last, self._engine.tally))
