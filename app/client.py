"""`RemoteEngine`: the daemon's engine as if it were here; starts the daemon if there is none.

It owns what a client may rely on when the daemon dies, is stopped, or was started with other
settings than these. How a request travels is `connection`'s business. It never imports torch.

Invariant: an answer's stream ends in `Finished` or `Failed` whatever happens to the daemon. Only
what needs a model starts a daemon, and watching does it once: one that was stopped stays so until
it is needed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from app import instance, wire
from app.connection import Call, Connection, GoneError, decoded, stream_of
from app.starting import Starter, wanted_by
from engine.protocol import (
    EngineError,
    EngineStatus,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    ModelError,
    PromptCost,
    Started,
)

if TYPE_CHECKING:
    from app.paths import Paths
    from app.settings import Settings
    from engine.protocol import ChatPrompt, FillPrompt, Steering

LOOK_AGAIN_S = 0.5
"""How often a watcher without a daemon looks whether there is one again."""

_EVENTS: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_STATUSES = msgspec.json.Decoder(EngineStatus)
_COSTS = msgspec.json.Decoder(PromptCost)
_COMPARED = {"model": ("model", "quant", "device", "context"), "decode": ("exit_layer", "policy")}
"""Settings that one engine can have only one way for all its clients."""


class RemoteEngine:
    """A `SharedEngine` in the daemon of this user. Bound to no event loop."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        client: str = "chat",
        starter: Starter | None = None,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self._starter = starter or Starter(paths)
        self._connection = Connection(
            self._starter.place, f"{client}-{uuid.uuid4().hex}", self._start
        )
        self._last = EngineStatus(state="asleep", model=settings.model.model)
        self._before: Settings | None = None
        """The settings before a change whose end is not known yet."""

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncIterator[AsyncIterator[Event]]:
        """Stream one answer; leaving the context closes the connection, which cancels it."""
        events = self._events(request)
        try:
            yield events
        finally:
            await events.aclose()

    async def status(self) -> EngineStatus:
        """What the engine says of itself; without a daemon, what was known last, asleep."""
        call = Call(method="GET", path="/v1/status", start=False)
        try:
            self._last = decoded(await self._connection.read(call), _STATUSES)
        except GoneError:
            self._last = _without_daemon(self._last)
        return self._with_notice(self._last)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[EngineStatus]]:
        """The status now and after each change; starts the daemon if there is none.

        Outlives the daemon. A crash is told as state `failed` with `engine_lost`, and the daemon is
        started once more; one that was stopped is told as `asleep`, and waited for. Raises
        `EngineError` where the daemon can't be started.
        """
        statuses = self._watched()
        try:
            yield statuses
        finally:
            await statuses.aclose()

    async def measure(self, prompt: ChatPrompt | FillPrompt) -> PromptCost:
        """Count a prompt's tokens. Raises `EngineError`."""
        # Patience without end: the model may have to be loaded first.
        call = Call(path="/v1/measure", body=wire.Measure(prompt=prompt), patience_s=None)
        return decoded(await self._connection.read(call), _COSTS)

    async def steer(self, request_id: str, steering: Steering) -> None:
        """Change how a running answer drafts; one that is over, or whose engine is, stays so."""
        body = wire.Steer(request_id=request_id, steering=steering)
        with suppress(GoneError):
            await self._connection.read(Call(path="/v1/steer", body=body, start=False))

    async def use_model(self, name: str) -> None:
        """Begin to load another model; raises `EngineError` for a name that can't be one."""
        mine = self._settings
        # From now on it is a wish of this client's own, and it is told if the engine has another.
        origins = mine.origins | {"model.model": "this client"}
        model = replace(mine.model, model=name)
        await self.use(replace(mine, model=model, origins=origins))

    async def use(self, settings: Settings) -> None:
        """Begin to load what `settings` say, in place of what the engine has, for every client.

        Does nothing where that is loaded or being loaded.
        """
        wanted = await asyncio.to_thread(wanted_by, settings, self._paths)
        # A daemon that has to be started for this is started with these settings.
        before, self._settings = self._settings, settings
        self._before = before
        try:
            await self._connection.read(Call(path="/v1/model", body=wanted))
        except ModelError:
            self._settings = before  # refused: what ran before is not what this client lacks
            raise

    async def stop_loading(self) -> None:
        """Give up a load that is under way."""
        with suppress(GoneError):
            await self._connection.read(Call(path="/v1/model/stop", start=False))

    async def shut_down(self) -> None:
        """Ask the daemon to end. Raises `GoneError` where none answers."""
        await self._connection.read(Call(path="/v1/shutdown", start=False))

    def close(self) -> None:
        """Nothing is held between calls."""

    def differing(self) -> tuple[str, ...]:
        """The keys (`table.key`) that were set here and that the running engine has otherwise."""
        serves, mine = self._connection.serves, self._settings
        if serves is None:
            return ()
        return tuple(
            f"{table}.{key}"
            for table, keys in _COMPARED.items()
            for key in keys
            if f"{table}.{key}" in mine.origins
            and not _same(getattr(getattr(serves, table), key), getattr(getattr(mine, table), key))
        )

    def difference(self) -> str:
        """The same in words, each with both values; empty if there is none."""
        return ", ".join(
            f"{key.partition('.')[2]} {_value(self._connection.serves, key)} "
            f"(asked for: {_value(self._settings, key)})"
            for key in self.differing()
        )

    async def _events(self, request: GenerateRequest) -> AsyncGenerator[Event]:
        call = Call(path="/v1/generate", body=request, patience_s=wire.SILENCE_S)
        try:
            async with (
                self._connection.ask(call) as response,
                aclosing(stream_of(response, _EVENTS)) as events,
            ):
                async for event in events:
                    yield self._noted(event)
                    if isinstance(event, Finished | Failed):
                        return
            raise GoneError("the connection ended before the answer did")
        except EngineError as error:
            yield error.as_event()

    async def _watched(self) -> AsyncGenerator[EngineStatus]:
        start = True
        while True:
            call = Call(method="GET", path="/v1/watch", start=start, patience_s=wire.SILENCE_S)
            start, seen = False, start
            try:
                async with (
                    self._connection.ask(call) as response,
                    aclosing(stream_of(response, _STATUSES)) as statuses,
                ):
                    async for status in statuses:
                        self._end_change(self._last, status)
                        self._last = status
                        # One crash is answered by one start; a model that loads earns another.
                        start, seen = start or status.state == "ready", True
                        yield self._with_notice(status)
                start = False  # its stream ended properly: it was stopped, and that is respected
                self._last = _without_daemon(self._last)
            except GoneError as error:
                self._last = _without_daemon(self._last, error.as_event())
            if seen:
                yield self._last
            if not start:
                await self._until_listening()

    def _end_change(self, last: EngineStatus, status: EngineStatus) -> None:
        """A change that failed is no wish of this client any more once the model before is back."""
        if status.state != "ready":
            return
        if status.failure is not None and self._before is not None:
            self._settings, self._connection.serves = self._before, None
        if status.failure is not None or last.state == "loading":
            self._before = None

    async def _until_listening(self) -> None:
        while True:
            if await asyncio.to_thread(instance.listening, self._connection.place):
                return
            await asyncio.sleep(LOOK_AGAIN_S)

    def _noted(self, event: Event) -> Event:
        notice = self._notice()
        if not isinstance(event, Started) or not notice:
            return event
        return replace(event, notice=f"{event.notice} {notice}".strip())

    def _with_notice(self, status: EngineStatus) -> EngineStatus:
        return replace(status, notice=f"{status.notice} {self._notice()}".strip())

    def _notice(self) -> str:
        difference = self.difference()
        remedy = "`/model` in the chat or `sspec-assist engine stop` changes that."
        return f"The running engine has {difference}; {remedy}" if difference else ""

    async def _start(self) -> None:
        wanted = await asyncio.to_thread(wanted_by, self._settings, self._paths)
        startup = wire.Startup(wanted=wanted, daemon=self._settings.daemon)
        await asyncio.to_thread(self._starter.start, startup)


def _same(has: object, wish: object) -> bool:
    """Whether two values of a setting mean the same; a path may be written in more than one way."""
    return has == wish or (isinstance(wish, str) and has == str(Path(wish).expanduser().absolute()))


def _value(held: object, key: str) -> object:
    table, _, name = key.partition(".")
    value: object = getattr(getattr(held, table), name)
    return "open" if value is None else value


def _without_daemon(last: EngineStatus, failure: Failed | None = None) -> EngineStatus:
    """The status of an engine whose process is gone, of which `last` was heard."""
    return EngineStatus(
        state="asleep" if failure is None else "failed",
        failure=failure,
        model=last.model,
        device=last.device,
        quant=last.quant,
        exact=last.exact,
        context_limit=last.context_limit,
    )
