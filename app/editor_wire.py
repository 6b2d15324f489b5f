"""A language server at the other end of a pipe, for who plays the editor.

Owns the process, the framing and which reply belongs to which request. What is asked and what the
replies mean is the caller's business.

Invariant: every request's future is done in the end, with an error if the server went away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from engine.protocol import EngineError

CLOSE_S = 5.0


class EditorWire:
    """One server process."""

    def __init__(self, told: Callable[[str, Any], Any]) -> None:
        """`told` is called with each notification and request of the server, and returns what a
        request is answered with."""
        self._told = told
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._ids = 0

    async def start(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start the server."""
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
            limit=1 << 24,
        )
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """Send a request; its id, and the whole reply once it comes."""
        self._ids += 1
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._reading is None or self._reading.done():
            _fail(reply)
        else:
            self._waiting[self._ids] = reply
            self._send({"id": self._ids, "method": method, "params": params})
        return self._ids, reply

    async def close(self) -> None:
        """Shut the server down; one that does not go is ended."""
        process = self._process
        if process is None:
            return
        with suppress(EngineError, TimeoutError, OSError):
            await asyncio.wait_for(self.ask("shutdown", None)[1], CLOSE_S)
            self.notify("exit", None)
        try:
            await asyncio.wait_for(process.wait(), CLOSE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await asyncio.wait({self._reading})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        stream = self._process.stdout
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await stream.readuntil(b"\r\n\r\n")
                fields = (line.partition(b":") for line in head.split(b"\r\n"))
                length = next(int(v) for k, _, v in fields if k.lower() == b"content-length")
                self._take(json.loads(await stream.readexactly(length)))
        for future in self._waiting.values():
            _fail(future)

    def _take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None:
            future = self._waiting.pop(number, None) if isinstance(number, int) else None
            if future is not None and not future.done():
                future.set_result(message)
            return
        answer = self._told(method, message.get("params"))
        if number is not None:
            self._send({"id": number, "result": answer})


def _fail(reply: asyncio.Future[dict[str, Any]]) -> None:
    if not reply.done():
        gone = EngineError("server_gone", "the language server ended", "Its log may say why.")
        reply.set_exception(gone)
        reply.exception()  # nobody may wait for it
