"""JSON-RPC on top of pygls: what arrives is always answered, what can't be read as well.

pygls frames messages, runs handlers as tasks and cancels them. Its own reading of parameters is
replaced by `messages`, because it is strict and leaves a request that it can't read without a
reply; its own keeping of documents is not used, because it ends lines where the protocol does not.
The end of a session (shutdown, then exit) is kept here; its begin is `greeting`'s. It knows nothing
of completions.

Invariant: every request gets exactly one reply; nothing that a client sends opens a message box or
ends the process, save `exit`.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from lsprotocol.types import ResponseError
from msgspec import Struct
from pygls.exceptions import JsonRpcMethodNotFound
from pygls.protocol import JsonRPCProtocol

from lsp.messages import parsed

if TYPE_CHECKING:
    from pygls.server import JsonRPCServer

INVALID_REQUEST = -32600
INVALID_PARAMS = -32602

log = logging.getLogger(__name__)


class Incoming(Struct, frozen=True, kw_only=True):
    """A message of the client; a reply has no method, a notification no id."""

    id: int | str | None = None
    method: str = ""
    params: Any = None
    result: Any = None
    error: Any = None
    complaint: str = ""
    """Why `params` could not be read; empty if they were."""


class Wire(JsonRPCProtocol):
    """The protocol class of the server. `over` is set once the client has said `shutdown`."""

    def __init__(self, server: JsonRPCServer, converter: Any) -> None:
        super().__init__(server, converter)
        self.over = False
        self.unreadable: Callable[[str, Any], None] = lambda _method, _params: None
        """Called with a notification's method and parameters that could not be read."""
        self.handlers: Mapping[str, Callable[..., Any]] = {}
        """By method. A coroutine function runs as a task; what it returns is the reply."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Called for each JSON object, the innermost first; only a message is changed."""
        if "jsonrpc" not in data or not ("method" in data or "id" in data):
            return data
        method, params = str(data.get("method", "")), data.get("params")
        complaint = ""
        try:
            params = parsed(method, params)
        except msgspec.ValidationError as error:
            complaint = f"the parameters of {method} can't be read: {error}"
        return Incoming(
            id=data.get("id"),
            method=method,
            params=params,
            result=data.get("result"),
            error=data.get("error"),
            complaint=complaint,
        )

    def handle_message(self, message: Any) -> None:
        """Hand a message to its handler, or refuse it."""
        if not isinstance(message, Incoming):
            self.refuse(None, INVALID_REQUEST, "this is no JSON-RPC message")
            return
        if not isinstance(message.id, int | str | None):
            self.refuse(None, INVALID_REQUEST, "an id is a number or a text")
            return
        refusal = self._refusal(message)
        if refusal is not None:
            code, text = refusal
            if message.id is not None:
                self.refuse(message.id, code, text)
            elif message.complaint:
                log.warning("%s", text)
                self.unreadable(message.method, message.params)
            return
        context = contextvars.copy_context()
        if not message.method:
            context.run(self._take_reply, message)
        elif message.id is None:
            context.run(self._handle_notification, message.method, message.params)
        else:
            context.run(self._handle_request, message.id, message.method, message.params)

    def _get_handler(self, feature_name: str) -> Callable[..., Any]:
        handler = self.handlers.get(feature_name)
        if handler is None:
            raise JsonRpcMethodNotFound.of(feature_name)
        return handler

    def get_message_type(self, method: str) -> None:
        """No types of lsprotocol are used for what is sent: it is plain dicts."""

    def get_result_type(self, method: str) -> None:
        """Replies are taken as they come."""

    def _refusal(self, message: Incoming) -> tuple[int, str] | None:
        if not message.method or message.method == "exit":
            return None
        if self.over:
            return INVALID_REQUEST, "the session was shut down"
        if message.method == "initialize":
            return INVALID_REQUEST, "the session is initialized already"
        return (INVALID_PARAMS, message.complaint) if message.complaint else None

    def refuse(self, msg_id: int | str | None, code: int, text: str) -> None:
        log.warning("refused: %s", text)
        error = {"code": code, "message": text}
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": error})

    def _take_reply(self, message: Incoming) -> None:
        if message.id not in self._request_futures:
            return  # a reply to nothing, or to what is no longer waited for
        error = None
        if message.error is not None:
            told = message.error if isinstance(message.error, dict) else {}
            code = told.get("code")
            error = ResponseError(
                code=code if isinstance(code, int) else 0, message=str(told.get("message", ""))
            )
        self._handle_response(message.id, message.result, error)

    def _send_response(self, msg_id: Any, result: Any = None, error: Any = None) -> None:
        reply: dict[str, Any] = {"jsonrpc": self.VERSION, "id": msg_id}
        if error is None:
            reply["result"] = result
        else:
            reply["error"] = {"code": error.code, "message": error.message}
        self._send_data(reply)

    def _serialize_message(self, data: Any) -> Any:
        # Only pygls's own envelopes of requests and notifications get here; they are slotted.
        return {name: getattr(data, name) for name in data.__slots__ if name[0] != "_"}


class Output:
    """Where replies go. Once the client is gone it swallows them and says so once."""

    def __init__(self, stream: BinaryIO, lost: Callable[[], None]) -> None:
        self._stream = stream
        self._lost = lost
        self._open = True

    def write(self, data: bytes) -> None:
        """Write one whole message."""
        if not self._open:
            return
        try:
            self._stream.write(data)
            self._stream.flush()
        except (OSError, ValueError):
            self._open = False
            self._lost()

    def close(self) -> None:
        """Write nothing from now on."""
        self._open = False
