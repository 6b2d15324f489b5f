"""The first words of a session, said before the server itself is imported.

What carries messages later (pygls, with a class for each of the protocol's thousand types) takes
longer to import than an editor should wait for its reply to `initialize`; so that exchange is read
and written here, byte by byte, with nothing but `hello`. It knows no other message.

Invariant: it reads not a byte beyond `initialize`, so that the server can go on from there.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from lsp.hello import Hello, hello_from, reply_to

NOT_INITIALIZED = -32002
PARSE_ERROR = -32700


def greet(stdin: BinaryIO, stdout: BinaryIO, version: str) -> Hello | None:
    """Answer `initialize` and tell what the client said of itself; None if it left before.

    Requests that come too early are refused, notifications dropped, as the protocol has it.
    """
    while (body := _read_body(stdin)) is not None:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            _refuse(stdout, None, PARSE_ERROR, "the message is no JSON")
            continue
        if not isinstance(message, dict):
            continue
        method, request = message.get("method"), message.get("id")
        if method == "exit":
            return None
        if method is None or request is None:
            continue
        if method == "initialize":
            hello = hello_from(message.get("params"))
            _write(stdout, {"id": request, "result": reply_to(hello, version)})
            return hello
        _refuse(stdout, request, NOT_INITIALIZED, "the session has not been initialized")
    return None


def _read_body(stdin: BinaryIO) -> bytes | None:
    """The next message; None at the end of the input."""
    length = 0
    while line := stdin.readline():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
        elif not line.strip() and length:
            body = stdin.read(length)
            return body if len(body) == length else None
    return None


def _refuse(stdout: BinaryIO, request: Any, code: int, text: str) -> None:
    _write(stdout, {"id": request, "error": {"code": code, "message": text}})


def _write(stdout: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    stdout.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    stdout.flush()
