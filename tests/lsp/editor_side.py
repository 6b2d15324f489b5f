"""The editor's side of a session, for tests: a naive text model, a line to a server in this process
and one to a server in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsp.complete import Suggestion, Wanted
from lsp.hello import hello_from
from lsp.positions import Encoding
from lsp.server import EditorServer, Host, Parts
from lsp.tally import TalliedEngine
from tests.fakes import ScriptedEngine, answer_script

ROOT = Path(__file__).parents[2]
URI = "file:///project/a.py"
PATIENCE_S = 30.0

_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


class NaiveText:
    """A document as an editor keeps it, counted in bytes of the session's encoding."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.text = text
        self._codec, self._width = _CODECS[encoding]

    def apply(self, changes: list[dict[str, Any]]) -> None:
        for change in changes:
            if "range" not in change:
                self.text = change["text"]
                continue
            start, end = (self.offset(change["range"][side]) for side in ("start", "end"))
            self.text = self.text[:start] + change["text"] + self.text[end:]

    def offset(self, place: dict[str, int]) -> int:
        lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", self.text)
        if place["line"] >= len(lines):
            return len(self.text)
        line = lines[place["line"]].rstrip("\r\n")
        units = line.encode(self._codec)[: place["character"] * self._width]
        return sum(len(one) for one in lines[: place["line"]]) + len(units.decode(self._codec))


class Fixed:
    """A completer that suggests what a function says, at once or when it is let go."""

    def __init__(self, suggest: Callable[[Wanted], list[Suggestion] | None]) -> None:
        self.suggest = suggest
        self.wanted: list[Wanted] = []
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def complete(self, wanted: Wanted) -> list[Suggestion] | None:
        self.wanted.append(wanted)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.suggest(wanted)


def at_cursor(wanted: Wanted, text: str = "text") -> Suggestion:
    """A suggestion that inserts at the cursor."""
    place = wanted.snapshot.offset
    return Suggestion(start=place, end=place, text=text, source="model", id="7")


def parts_of(completer: Any, **more: Any) -> Callable[[Host], Parts]:
    """A `build` for a completer, with an engine that is ready."""
    engine = more.pop("engine", None) or ScriptedEngine(answer_script("a b"))
    return lambda host: Parts(engine=TalliedEngine(engine), completer=completer, **more)


class Talk:
    """A line to a server on this event loop: every message takes effect when it is sent."""

    def __init__(self, build: Callable[[Host], Parts], **params: Any) -> None:
        self.server = EditorServer(build, hello_from({"capabilities": {}, **params}))
        self.heard: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {}
        """Method → result that the client replies to the server's own requests."""
        self._news = asyncio.Event()
        self._ids = 0
        self.server.protocol.set_writer(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        message = json.loads(data.partition(b"\r\n\r\n")[2])
        self.heard.append(message)
        self._news.set()
        if "method" in message and "id" in message and message["method"] in self.answers:
            result = self.answers[message["method"]]
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            asyncio.get_running_loop().call_soon(self.raw, reply)

    def close(self) -> None:
        """Part of a writer."""

    def raw(self, message: dict[str, Any]) -> None:
        protocol = self.server.protocol
        body = json.dumps(message)
        protocol.handle_message(json.loads(body, object_hook=protocol.structure_message))

    def notify(self, method: str, params: Any = None) -> None:
        self.raw({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: Any = None) -> int:
        self._ids += 1
        self.raw({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        return self._ids

    async def reply(self, request: int) -> dict[str, Any]:
        return await self.hear(lambda one: one.get("id") == request and "method" not in one)

    async def result(self, method: str, params: Any = None) -> Any:
        reply = await self.reply(self.ask(method, params))
        assert "error" not in reply, reply
        return reply["result"]

    async def hear(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message for which `wanted` holds, as soon as there is one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._news.clear()
                for message in self.heard:
                    if wanted(message):
                        return message
                await self._news.wait()

    def of(self, method: str) -> list[Any]:
        return [one["params"] for one in self.heard if one.get("method") == method]

    def open(self, text: str, uri: str = URI, language: str = "python") -> None:
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, *changes: dict[str, Any], uri: str = URI, version: int = 2) -> None:
        which = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": which, "contentChanges": changes})


def wish(line: int, character: int, uri: str = URI, **more: Any) -> dict[str, Any]:
    """The parameters of an inline completion request."""
    place = {"line": line, "character": character}
    return {"textDocument": {"uri": uri}, "position": place, **more}


def insertion(line: int, character: int, text: str) -> dict[str, Any]:
    """A change that inserts at one place."""
    place = {"line": line, "character": character}
    return {"range": {"start": place, "end": place}, "rangeLength": 0, "text": text}


class Process:
    """A server in a process of its own, talked to as an editor does."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.lsp.served", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        self.heard: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=one, daemon=True) for one in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def send(self, message: dict[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_bytes(self, body: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        message = self.heard.get(timeout=PATIENCE_S)
        assert message is not None, f"the server is gone: {self.errors}"
        return message

    def reply(self, request: int | str) -> dict[str, Any]:
        """The reply to a request; what comes before it is passed over."""
        while True:
            message = self.hear()
            if message.get("id") == request and "method" not in message:
                return message

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            assert line.startswith(b"Content-Length: "), line
            length = int(line.split(b":")[1])
            while stream.readline().strip():
                pass
            self.heard.put(json.loads(stream.read(length)))
        self.heard.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.decode())
