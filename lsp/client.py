"""The client's end of the line: everything that is said to it unasked.

It owns the methods' names and shapes. A client that can't take something is not told it, a reply
that does not come is not waited for without end, and each sentence is told once. It knows nothing
of engines or of documents.

Invariant: nothing here raises because of what a client answers, and nothing opens a message box.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from lsp.hello import Hello
from lsp.messages import SECTION
from lsp.status import FIGURES, METHOD, Status

PATIENCE_S = 10.0
FIGURES_S = 3.0

_WARNING, _INFO, _LOG = 2, 3, 4
_REGISTER = "client/registerCapability"
_CREATE = "window/workDoneProgress/create"

log = logging.getLogger(__name__)


class Line(Protocol):
    """The part of a JSON-RPC protocol that is needed to talk."""

    def notify(self, method: str, params: Any = None) -> None: ...

    def send_request_async(self, method: str, params: Any = None) -> Awaitable[Any]: ...


class Client:
    """What the server says to one client."""

    def __init__(
        self, line: Line, hello: Hello, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.hello = hello
        self._line = line
        self._clock = clock
        self._told: set[str] = set()
        self._status: Status | None = None
        self._status_at = 0.0
        self._progress: str | None = None
        self._progress_text = ""
        self._shows_progress = hello.progress

    def warn(self, sentence: str) -> None:
        """Write a sentence into the client's log, once per session."""
        self._tell(_WARNING, sentence)

    def inform(self, sentence: str) -> None:
        """The same, of something that is as it should be."""
        self._tell(_INFO, sentence)

    def log(self, line: str) -> None:
        """Write a line of detail into the client's log; most clients show it only on demand."""
        self._line.notify("window/logMessage", {"type": _LOG, "message": line})

    def show(self, status: Status) -> None:
        """Tell the status if it is another than the one told last; one that differs only in its
        figures is left out if that one was told `FIGURES_S` ago or less."""
        if not self.hello.status or status == self._status:
            return
        now, last = self._clock(), self._status
        if last is not None and now - self._status_at <= FIGURES_S:
            figures = {name: getattr(last, name) for name in FIGURES}
            if replace(status, **figures) == last:
                return
        self._line.notify(METHOD, msgspec.to_builtins(status))
        self._status, self._status_at = status, now

    async def configuration(self) -> Any:
        """The client's settings of our section; None if it has none or does not say."""
        if not self.hello.pulls:
            return None
        items = {"items": [{"section": SECTION}]}
        answer = await self._ask("workspace/configuration", items)
        return answer[0] if isinstance(answer, list) and answer else None

    async def ask_for_changes(self) -> None:
        """Have the client tell when settings change."""
        if not self.hello.registers:
            return
        one = {
            "id": f"{SECTION}.configuration",
            "method": "workspace/didChangeConfiguration",
            "registerOptions": {"section": SECTION},
        }
        await self._ask(_REGISTER, {"registrations": [one]})

    async def show_progress(self, title: str, text: str) -> None:
        """Begin a progress display, or bring it up to date. A client that refuses one, or does not
        answer, is not asked again: each wait would hold up the status as well."""
        if not self._shows_progress or text == self._progress_text:
            return
        self._progress_text = text
        if self._progress is None:
            token = uuid.uuid4().hex
            if not await self._create(token):
                self._shows_progress = False
                return
            self._progress = token
            value = {"kind": "begin", "title": title, "message": text, "cancellable": False}
        else:
            value = {"kind": "report", "message": text}
        self._line.notify("$/progress", {"token": self._progress, "value": value})

    def end_progress(self, text: str) -> None:
        """End the display if there is one."""
        token, self._progress, self._progress_text = self._progress, None, ""
        if token is not None:
            value = {"kind": "end", "message": text}
            self._line.notify("$/progress", {"token": token, "value": value})

    async def _create(self, token: str) -> bool:
        try:
            await asyncio.wait_for(
                self._line.send_request_async(_CREATE, {"token": token}), PATIENCE_S
            )
        except Exception as error:  # any refusal means the same: this client shows none
            log.info("%s was refused: %s", _CREATE, error)
            return False
        return True

    async def _ask(self, method: str, params: Any) -> Any:
        try:
            return await asyncio.wait_for(self._line.send_request_async(method, params), PATIENCE_S)
        except Exception as error:  # what a client can't or won't answer, it has no wish about
            log.info("%s was not answered: %s", method, error)
            return None

    def _tell(self, kind: int, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._line.notify("window/logMessage", {"type": kind, "message": sentence})


class LogLines(logging.Handler):
    """Passes what a logger of the event loop's thread has to say on to the client's log."""

    def __init__(self, client: Client, logger: logging.Logger) -> None:
        super().__init__(logging.INFO)
        self._client = client
        self._logger = logger
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        if record.levelno == logging.INFO:  # what is worse is on stderr
            self._client.log(record.getMessage())

    def close(self) -> None:
        """Leave the logger as it was."""
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
        super().close()
