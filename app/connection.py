"""One HTTP exchange with the daemon: connect, ask, and tell a refusal from a daemon that is gone.

It owns headers, patience, and the one retry after the daemon was started; httpx comes in only when
something is asked. What is asked, and what it means, is `client`'s business.

Invariant: every way to fail is an `EngineError`; `GoneError` means that there is no daemon, or that
it was lost before or while it answered.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from app import instance, wire
from app.stream import error_of
from engine.protocol import PROTOCOL_VERSION, EngineError, Failed, RequestError

if TYPE_CHECKING:
    import httpx

Told = TypeVar("Told")

CONNECT_S = 5.0
ANSWER_S = 30.0
"""Patience with a request that is answered at once unless the daemon hangs."""

_FAILURES = msgspec.json.Decoder(Failed)
_WANTED = msgspec.json.Decoder(wire.Wanted)


class GoneError(EngineError):
    """There is no daemon, or no longer."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "engine_lost",
            f"the engine's process was lost ({why})",
            "The next request starts it again; `sspec-assist engine logs` may tell why.",
        )


class Call(Struct, frozen=True, kw_only=True):
    """One thing to ask."""

    method: str = "POST"
    path: str
    body: Struct | None = None
    start: bool = True
    """Start the daemon if there is none."""
    patience_s: float | None = ANSWER_S
    """Longest silence that is not taken for a death; None waits for ever."""


class Connection:
    """How one client reaches the daemon of a place. Holds nothing open between calls."""

    def __init__(
        self, place: instance.Place, client: str, start: Callable[[], Awaitable[None]]
    ) -> None:
        self.place = place
        self.serves: wire.Wanted | None = None
        """What the daemon that answered last was asked to serve."""
        self._client = client
        self._start = start

    @asynccontextmanager
    async def ask(self, call: Call) -> AsyncIterator[httpx.Response]:
        """A good answer, whose body is yet to be read. Raises `EngineError`."""
        import httpx

        async with AsyncExitStack() as stack:
            try:
                response = await self._head(stack, call)
                self._look_at(call, response)
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread())
                yield response
            except httpx.TimeoutException as error:
                raise GoneError(f"it gave no sign of life for {call.patience_s} s") from error
            except httpx.ConnectError as error:
                raise GoneError("it is not running") from error
            except httpx.HTTPError as error:
                raise GoneError("the connection broke off") from error

    async def read(self, call: Call) -> bytes:
        """The whole body of the answer. Raises `EngineError`."""
        async with self.ask(call) as response:
            return await response.aread()

    async def _head(self, stack: AsyncExitStack, call: Call) -> httpx.Response:
        """The head of the answer; where no daemon gives one, it is started, once."""
        import httpx

        try:
            return await self._sent(stack, call)
        except (httpx.NetworkError, httpx.RemoteProtocolError, GoneError):
            if not call.start:
                raise
        await self._start()
        return await self._sent(stack, call)

    async def _sent(self, stack: AsyncExitStack, call: Call) -> httpx.Response:
        http = await stack.enter_async_context(self._http(call.patience_s))
        content = b"" if call.body is None else _encoded(call.body)
        request = http.build_request(call.method, call.path, content=content)
        response = await http.send(request, stream=True)
        stack.push_async_callback(response.aclose)
        return response

    def _http(self, patience_s: float | None) -> httpx.AsyncClient:
        import httpx

        instance.prepare(self.place, create=False)
        headers = {
            wire.VERSION_HEADER: str(PROTOCOL_VERSION),
            wire.CLIENT_HEADER: self._client,
            "accept-encoding": "identity",
        }
        base, uds = "http://engine", None
        if self.place.socket is not None:
            uds = str(self.place.socket)
        else:
            # Behind a port that a dead daemon has left, somebody else may listen by now.
            record = instance.read_record(self.place) if instance.is_held(self.place) else None
            if record is None:
                raise GoneError("it is not running")
            base = f"http://127.0.0.1:{record.port}"
            headers["authorization"] = f"Bearer {record.token}"
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=uds, verify=False, trust_env=False),
            base_url=base,
            headers=headers,
            timeout=httpx.Timeout(patience_s, connect=CONNECT_S),
            trust_env=False,
        )

    def _look_at(self, call: Call, response: httpx.Response) -> None:
        """Raises `RequestError` for a daemon of another version, unless it is to end anyway."""
        if call.path == "/v1/shutdown":
            return
        theirs = response.headers.get(wire.VERSION_HEADER)
        refusal = wire.version_refusal(theirs, whose="running engine")
        if refusal is not None:
            raise refusal
        with suppress(msgspec.MsgspecError):
            self.serves = _WANTED.decode(response.headers.get(wire.SERVES_HEADER, ""))


async def stream_of(
    response: httpx.Response, decoder: msgspec.json.Decoder[Told]
) -> AsyncGenerator[Told]:
    """What a stream tells, one by one. Raises `EngineError` for what is no part of the protocol."""
    frames = wire.Frames()
    chunks: Any = response.aiter_raw()
    async with aclosing(chunks):
        async for chunk in chunks:
            for data in frames.feed(chunk):
                yield decoded(data, decoder)


def decoded(data: bytes, decoder: msgspec.json.Decoder[Told]) -> Told:
    """`data` as what it should be. Raises `EngineError` if it isn't."""
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise EngineError(
            "bad_answer",
            f"the engine's process said something that can't be read: {error}",
            "Run `sspec-assist engine stop`, then try again.",
        ) from error


def _encoded(body: Struct) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise RequestError(
            "not_utf8", "the request holds bytes that are no text", "Leave them out."
        ) from error


def _refusal(status: int, body: bytes) -> EngineError:
    try:
        return error_of(_FAILURES.decode(body))
    except msgspec.MsgspecError:
        return EngineError(
            "bad_answer",
            f"the engine's process answered with status {status}",
            "Run `sspec-assist engine stop`, then try again.",
        )
