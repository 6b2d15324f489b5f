"""The daemon over HTTP: paths, bodies and streams, in front of an `EngineHost`.

It owns what is refused before the engine hears of it (another protocol version, a missing token, a
body that is too large or no request), and that a client who leaves is noticed at once. It must not
know how models are loaded or who started the process.

Invariant: every answer carries the protocol's version, and every refusal is a `Failed` as JSON with
a remedy; a traceback reaches the log and nobody else.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from app import wire
from engine.protocol import (
    PROTOCOL_VERSION,
    EngineError,
    GenerateRequest,
    RequestError,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from app.engine_host import EngineHost

Body = TypeVar("Body")

logger = logging.getLogger(__name__)


def http_app(
    host: EngineHost,
    *,
    token: str,
    stop: Callable[[], object],
    check: Callable[[wire.Wanted], object],
) -> ASGIApp:
    """The application; `stop` ends the process, an empty `token` asks for none, and `check` raises
    `EngineError` for a model for which the one in memory should not be given up. It may block."""
    surface = _Surface(host, stop, check)
    routes = [
        Route("/v1/status", surface.status, methods=["GET"]),
        Route("/v1/watch", surface.watch, methods=["GET"]),
        Route("/v1/generate", surface.generate, methods=["POST"]),
        Route("/v1/measure", surface.measure, methods=["POST"]),
        Route("/v1/steer", surface.steer, methods=["POST"]),
        Route("/v1/model", surface.model, methods=["POST"]),
        Route("/v1/model/stop", surface.stop_loading, methods=["POST"]),
        Route("/v1/shutdown", surface.shutdown, methods=["POST"]),
    ]
    handlers: Any = {EngineError: _on_engine_error, HTTPException: _on_http_error, Exception: _on}
    return _Guard(Starlette(routes=routes, exception_handlers=handlers), host, token)


class _Surface:
    def __init__(
        self,
        host: EngineHost,
        stop: Callable[[], object],
        check: Callable[[wire.Wanted], object],
    ) -> None:
        self._host = host
        self._stop = stop
        self._check = check

    async def status(self, request: Request) -> Response:
        return _json(await self._host.status())

    async def watch(self, request: Request) -> EventStream:
        return EventStream(self._watched(_client_of(request)))

    async def generate(self, request: Request) -> EventStream:
        wanted = await _body(request, GenerateRequest)
        return EventStream(self._generated(_client_of(request), wanted), answer=True)

    async def measure(self, request: Request) -> Response:
        prompt = (await _body(request, wire.Measure)).prompt
        return _json(await self._host.measure(prompt))

    async def steer(self, request: Request) -> Response:
        steer = await _body(request, wire.Steer)
        await self._host.steer(steer.request_id, steer.steering)
        return _json({})

    async def model(self, request: Request) -> Response:
        wanted = await _body(request, wire.Wanted)
        if self._host.holds_model:
            await asyncio.to_thread(self._check, wanted)
        self._host.begin(wanted)
        return _json({})

    async def stop_loading(self, request: Request) -> Response:
        await self._host.stop_loading()
        return _json({})

    async def shutdown(self, request: Request) -> Response:
        # The answer must be on its way before the process ends.
        asyncio.get_running_loop().call_later(0.05, self._stop)
        return _json({})

    @asynccontextmanager
    async def _watched(self, client: str) -> AsyncIterator[AsyncIterator[object]]:
        with self._host.present(client):
            statuses = self._host.watch()
            try:
                yield statuses
            finally:
                await statuses.aclose()  # type: ignore[attr-defined]

    @asynccontextmanager
    async def _generated(
        self, client: str, wanted: GenerateRequest
    ) -> AsyncIterator[AsyncIterator[object]]:
        with self._host.present(client):
            async with self._host.generate(wanted) as events:
                yield events


class EventStream:
    """Sends what a context streams, until it ends or the client goes; then leaves the context.

    The stream of an `answer` ends in a `Failed` if an error ends it; any other just breaks off.
    """

    def __init__(
        self, source: AbstractAsyncContextManager[AsyncIterator[object]], *, answer: bool = False
    ) -> None:
        self._source = source
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pump = asyncio.create_task(self._pump(send))
        others = [asyncio.create_task(_still_here(send)), asyncio.create_task(_gone(receive))]
        try:
            await asyncio.wait([pump, others[1]], return_when=asyncio.FIRST_COMPLETED)
            whole = pump.done()
        finally:
            for task in (pump, *others):
                task.cancel()
            await asyncio.wait([pump, *others])
        if whole:
            pump.result()  # what went wrong ends the connection without its proper end
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        try:
            async with self._source as told:
                async for one in told:
                    await send(_part(wire.frame(one)))
        except EngineError as error:
            if not self._answer:
                raise
            await send(_part(wire.frame(error.as_event())))
        except Exception as error:
            if not self._answer:
                raise
            logger.exception("an answer failed")
            await send(_part(wire.frame(_internal(error).as_event())))


class _Guard:
    """Turns away who may not or can't speak with this daemon; names the version in every answer."""

    def __init__(self, app: ASGIApp, host: EngineHost, token: str) -> None:
        self._app = app
        self._host = host
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    (wire.VERSION_HEADER.encode(), str(PROTOCOL_VERSION).encode()),
                    (wire.SERVES_HEADER.encode(), wire.in_header(self._host.wanted)),
                ]
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, named)

    def _refusal(self, scope: Scope) -> Response | None:
        given = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if self._token:
            shown = given.get("authorization", "")
            if not hmac.compare_digest(shown.encode(), f"Bearer {self._token}".encode()):
                error = RequestError("no_token", "the token is missing or wrong", "Start it again.")
                return _failed(error, 401)
        if scope["path"] == "/v1/shutdown":
            return None  # whoever can't speak with this one must still be able to replace it
        error_ = wire.version_refusal(given.get(wire.VERSION_HEADER), whose="client")
        return None if error_ is None else _failed(error_, 426)


async def _body(request: Request, kind: type[Body]) -> Body:
    """The request's body as `kind`. Raises `EngineError`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > wire.MAX_BODY_BYTES:
            raise RequestError(
                "too_large",
                f"the request has more than {wire.MAX_BODY_BYTES:,} bytes",
                "Attach less.",
            )
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RequestError(
            "bad_request",
            f"the request can't be read: {error}",
            "Use the client that belongs to this version.",
        ) from error


def _client_of(request: Request) -> str:
    return request.headers.get(wire.CLIENT_HEADER, "")[:64] or uuid.uuid4().hex


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _still_here(send: Send) -> None:
    while True:
        await asyncio.sleep(wire.STILL_HERE_S)
        await send(_part(wire.STILL_HERE))


def _part(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _on_engine_error(_: Request, error: EngineError) -> Response:
    return _failed(error, 413 if error.code == "too_large" else 400)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    what = f"{request.method} {request.url.path[:80]} is nothing this engine knows"
    return _failed(RequestError("unknown_path", what, ""), error.status_code)


async def _on(_: Request, error: Exception) -> Response:
    return _failed(_internal(error), 500)


def _internal(error: Exception) -> EngineError:
    hint = "`sspec-assist engine logs` has more."
    return EngineError("internal", f"the engine failed: {error!r}", hint)


def _failed(error: EngineError, status: int) -> Response:
    return _json(error.as_event(), status)


def _json(told: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(told), status, media_type="application/json")
