"""The root of the language server: puts session, daemon's engine and completer together.

Standard output is the protocol's alone from the first moment on: whatever else writes to it lands
on stderr, which editors keep in a log. The engine's client and everything that completes come in
once the editor has its reply to `initialize`. Invariant: no torch in this process, and it is gone
within a second after the editor is.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from lsp.session import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.settings import Settings
    from lsp.server import Host, Parts


def run_lsp(settings: Callable[[], Settings]) -> NoReturn:
    """Serve the editor at the other end of stdin and stdout, then end the process.

    `settings` is called once the editor is greeted: a mistake in them is told in the editor, which
    would otherwise only see a server that ends again and again.
    """
    output = own_output()
    logging.getLogger("pygls").setLevel(logging.ERROR)
    for handler in logging.getLogger().handlers:
        # The line of each request goes to the editor's own log, not through here as well.
        handler.setLevel(logging.getLogger().level)
    try:
        code = serve(sys.stdin.buffer, output, lambda host: build(host, settings()), version())
    except KeyboardInterrupt:
        code = 130
    except Exception:
        logging.getLogger(__name__).exception("the language server failed")
        code = 1
    end(code)


def version() -> str:
    """Of the installed package; `unknown` where it runs without being installed."""
    try:
        return importlib.metadata.version("sspec-assist")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def own_output() -> BinaryIO:
    """A stream to what was standard output; what is written to fd 1 from now on goes to fd 2."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return output


def end(code: int) -> NoReturn:
    """End the process now: a thread that waits for input or for the engine would hold it up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def build(host: Host, settings: Settings) -> Parts:
    """What works for one session."""
    from app.client import RemoteEngine
    from app.editor_stats import completions_file
    from app.paths import user_paths
    from lsp.complete import Completer
    from lsp.learning import Learning
    from lsp.server import Parts
    from lsp.tally import TalliedEngine
    from lsp.workspace import Workspace

    paths = user_paths()
    engine = TalliedEngine(RemoteEngine(settings, paths, client="editor"))
    learning = Learning(completions_file(paths), host.settings)
    workspace = Workspace(host.settings)
    completer = Completer(
        engine,
        documents=host.documents,
        settings=host.settings,
        snippets=workspace,
        learning=learning,
    )

    async def close() -> None:
        await completer.close()  # it may have something to be counted
        await asyncio.gather(learning.close(), workspace.close())

    return Parts(
        engine=engine,
        completer=completer,
        listeners=(completer, workspace, learning),
        accepted=learning.accepted,
        close=close,
    )
