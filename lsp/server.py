"""The language server: a session's messages, each handed to who deals with it.

It begins where `greeting` ends, which has answered `initialize`. What completes, watches files and
learns is built by the caller, through `build`, once the client is ready; wishes that come before
wait for it. It owns the life of the session and nothing of what is completed.

Invariant: messages take effect in the order in which they came; when the client is gone, by `exit`,
the end of its input or the death of its process, `run` returns.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

import cattrs
from msgspec import Struct
from pygls.exceptions import FeatureRequestError
from pygls.io_ import StdinAsyncReader, run_async
from pygls.server import JsonRPCServer

from engine.protocol import EngineError
from lsp.answers import Answers, Completes
from lsp.client import Client, LogLines
from lsp.documents import Documents
from lsp.hello import ACCEPTED, Hello
from lsp.messages import DidChangeConfiguration, ExecuteCommand, InlineCompletion
from lsp.parent import is_alive
from lsp.reporter import Reporter
from lsp.settings import EditorSettings, read_settings
from lsp.shape_skip import language_on
from lsp.status import away
from lsp.sync import Listener, Sync
from lsp.tally import TalliedEngine
from lsp.wire import Output, Wire

PARENT_CHECK_S = 2.0
SETTINGS_S = 1.0
"""Longest wait for the client's settings before the first things are built."""
CLOSE_S = 0.5
"""Longest time that what was built is given to put its things away."""
REQUEST_LOG = "lsp.complete"
"""The logger that has a line for each request."""

log = logging.getLogger(__name__)


class Host(Struct, frozen=True, kw_only=True):
    """What the session offers to what is built for it."""

    documents: Documents
    settings: Callable[[], EditorSettings]
    warn: Callable[[str], None]
    """Write a sentence into the client's log, once."""


class Parts(Struct, frozen=True, kw_only=True):
    """What is built for a session."""

    engine: TalliedEngine
    completer: Completes
    listeners: tuple[Listener, ...] = ()
    accepted: Callable[[str], None] = lambda _id: None
    """Called with a suggestion's id after it was accepted as a whole."""
    close: Callable[[], Awaitable[None]] | None = None


class EditorServer(JsonRPCServer):
    """The server of one client."""

    protocol: Wire

    def __init__(self, build: Callable[[Host], Parts], hello: Hello) -> None:
        super().__init__(Wire, cattrs.Converter)
        self._build = build
        self._hello = hello
        self._client = Client(self.protocol, hello)
        self._settings = EditorSettings()
        self._pushed: Any = None
        self._documents = Documents()
        self._documents.encoding = hello.encoding
        self._sync = Sync(self._documents)
        self._sync.change_folders(hello.folders)
        self._answers = Answers(self._documents, self._sync)
        self._begun = False
        self._parts: Parts | None = None
        self._built = asyncio.Event()
        self._reporter: Reporter | None = None
        self._requests: LogLines | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = threading.Event()
        self._gone = asyncio.Event()
        self._register()

    async def run(self, stdin: BinaryIO, stdout: BinaryIO) -> int:
        """Serve until the client is gone; the exit code is 0 if it said `shutdown` before.

        The thread that reads `stdin` may still wait for input when this returns.
        """
        self.protocol.set_writer(Output(stdout, self._client_lost))  # type: ignore[arg-type]
        readers = ThreadPoolExecutor(1, thread_name_prefix="stdin")
        reader = StdinAsyncReader(stdin, readers)
        reading = asyncio.ensure_future(
            run_async(self._stopping, reader, self.protocol, error_handler=self.report_server_error)
        )
        reading.add_done_callback(lambda _: self._client_lost())
        if self._hello.process_id is not None:
            self._start(self._watch_parent(self._hello.process_id))
        await self._gone.wait()
        await self._close()
        await self._cancel_rest()
        readers.shutdown(wait=False)
        return 0 if self.protocol.over else 1

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log what went wrong; the base class of most servers would open a message box."""
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
            self.protocol.refuse(None, -32700, "the message is no JSON")
        elif source is not FeatureRequestError:  # those were replied to and logged
            log.error("%s %s", error, getattr(error, "data", ""))

    def _register(self) -> None:
        sync = self._sync
        self.protocol.unreadable = sync.unreadable
        self.protocol.handlers = {
            "initialized": self._initialized,
            "shutdown": self._shutdown,
            "exit": self._exit,
            "textDocument/didOpen": sync.opened,
            "textDocument/didChange": sync.changed,
            "textDocument/didClose": sync.closed,
            "notebookDocument/didOpen": sync.notebook_opened,
            "notebookDocument/didChange": sync.notebook_changed,
            "notebookDocument/didClose": sync.notebook_closed,
            "workspace/didChangeWorkspaceFolders": sync.folders_changed,
            "workspace/didChangeConfiguration": self._configuration_changed,
            "workspace/executeCommand": self._execute,
            "textDocument/inlineCompletion": self._inline_completion,
        }

    def _initialized(self, params: Any) -> None:
        if not self._begun:
            self._begun = True
            self._start(self._begin())

    async def _begin(self) -> None:
        # Completions may turn out to be switched off, and then nothing is to be started.
        await asyncio.wait({self._start(self._pull_settings())}, timeout=SETTINGS_S)
        host = Host(
            documents=self._documents,
            settings=lambda: self._settings,
            warn=self._client.warn,
        )
        try:
            parts = self._build(host)
        except EngineError as error:
            self._client.warn(str(error))
            self._client.show(away(error.as_event()))
            return
        finally:
            self._built.set()
        self._parts = parts
        for listener in parts.listeners:
            self._sync.add(listener)
        self._requests = LogLines(self._client, logging.getLogger(REQUEST_LOG))
        self._reporter = Reporter(self._client, parts.engine, lambda: self._settings.enabled)
        self._start(self._reporter.run())
        await self._client.ask_for_changes()

    async def _inline_completion(self, params: InlineCompletion) -> list[dict[str, Any]] | None:
        # pygls starts a handler before it reads the next message, so this is the document that the
        # client's position belongs to.
        wanted = self._answers.wanted(params)
        if wanted is None:
            return []
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await self._built.wait()
        allowed = language_on(wanted.snapshot, self._settings, wanted.explicit)
        if self._parts is None or not self._settings.enabled or not allowed:
            return []
        return await self._answers.answer(self._parts.completer, wanted, self._client)

    def _execute(self, params: ExecuteCommand) -> None:
        arguments = params.arguments or ()
        if params.command == ACCEPTED and arguments and self._parts is not None:
            self._parts.accepted(str(arguments[0]))

    def _configuration_changed(self, params: DidChangeConfiguration) -> None:
        if isinstance(params.settings, dict):
            self._pushed = params.settings
        self._start(self._pull_settings())

    async def _pull_settings(self) -> None:
        self._take_settings(await self._client.configuration())

    def _take_settings(self, pulled: Any) -> None:
        reading = read_settings(self._hello.options, self._pushed, pulled)
        self._settings = reading.settings
        for complaint in reading.complaints:
            self._client.warn(complaint)
        if self._reporter is not None:
            self._reporter.settings_changed()

    async def _shutdown(self, params: Any) -> None:
        self.protocol.over = True
        await self._close()

    def _exit(self, params: Any) -> None:
        self._stopping.set()

    async def _watch_parent(self, process_id: int) -> None:
        while True:
            await asyncio.sleep(PARENT_CHECK_S)
            if not is_alive(process_id):
                self._client_lost()
                return

    def _client_lost(self) -> None:
        self._stopping.set()
        self._gone.set()

    async def _close(self) -> None:
        """Cancel what runs and put away what was built; what takes longer is left."""
        for task in tuple(self._tasks):
            task.cancel()
        parts, self._parts = self._parts, None
        if self._requests is not None:
            self._requests.close()
        if parts is None or parts.close is None:
            return
        try:
            await asyncio.wait_for(parts.close(), CLOSE_S)
        except TimeoutError:
            log.warning("what was built took too long to close")
        except Exception:
            log.exception("what was built could not be closed")

    async def _cancel_rest(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=CLOSE_S / 2)

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the server failed", exc_info=task.exception())
