"""One session from its first byte to its last: the greeting, then the server.

The only way in for the composition root. Invariant: importing this module imports nothing that
carries messages; that comes after the reply to `initialize`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from lsp.greeting import greet
from lsp.parent import is_alive

if TYPE_CHECKING:
    from lsp.server import Host, Parts


def serve(stdin: BinaryIO, stdout: BinaryIO, build: Callable[[Host], Parts], version: str) -> int:
    """Serve the client at the other end until it is gone, and return the exit code.

    `build` is called on the event loop once the client is ready. A thread may still wait for input
    when this returns, so the caller had better end the process itself.
    """
    hello = greet(stdin, stdout, version)
    if hello is None:
        return 1
    if hello.process_id is not None and not is_alive(hello.process_id):
        hello = replace(hello, process_id=None)
    # Thousands of classes are made by this import, and all of them stay: nothing to collect.
    gc.disable()
    from lsp.server import EditorServer

    gc.freeze()
    gc.enable()

    async def run() -> int:
        return await EditorServer(build, hello).run(stdin, stdout)

    # Not `asyncio.run`: it would wait for threads, and one may be busy starting the engine.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()
