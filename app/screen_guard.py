"""Keeps the screen the chat's own: whatever else writes to fd 1 or 2 goes into a log file.

Native code (and a child that inherits the descriptors) writes past Python's `sys.stdout`. So the
chat gets private copies of the terminal, under the names that Textual's driver looks at, and the
numbers 1 and 2 point at the log for as long as the context lasts.

Where the log can't be written, what would go there is dropped.

Invariant: on leaving, however it is left, 1 and 2 are what they were.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOG_LIMIT = 1 << 20
"""A log larger than this is begun anew; its predecessor is kept once."""


@contextmanager
def private_screen(log: Path) -> Iterator[None]:
    """Give the screen to Textual alone. Raises `RequestError` where there is no terminal."""
    terminal = _terminal()
    with ExitStack() as undo:
        saved = [(number, os.dup(number)) for number in (1, 2)]
        for number, copy in saved:
            undo.callback(_restore, number, copy)
        screen = undo.enter_context(_text_file(os.dup(terminal)))
        names = cast("Any", sys)
        undo.callback(setattr, sys, "__stdout__", sys.__stdout__)
        undo.callback(setattr, sys, "__stderr__", sys.__stderr__)
        sink = _open_log(log)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, _ in saved:
            os.dup2(sink, number)
        os.close(sink)
        names.__stdout__ = names.__stderr__ = screen
        yield


def no_terminal() -> RequestError:
    """The error of a chat that is wanted where there is no terminal."""
    return RequestError(
        "no_terminal",
        "the chat needs a terminal, and standard input or output is none",
        "For a pipe or a script use: sspec-assist ask",
    )


def _terminal() -> int:
    """The descriptor to draw on; stderr like Textual, stdout where stderr was sent elsewhere."""
    if not os.isatty(0) or not (os.isatty(1) or os.isatty(2)):
        raise no_terminal()
    return 2 if os.isatty(2) else 1


def _text_file(descriptor: int) -> IO[str]:
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="")


def _open_log(log: Path) -> int:
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.replace(log.with_name(log.name + ".1"))
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:  # the history, beside the log, tells the user that nothing can be kept there
        return os.open(os.devnull, os.O_WRONLY)


def _restore(number: int, copy: int) -> None:
    (sys.stdout if number == 1 else sys.stderr).flush()
    os.dup2(copy, number)
    os.close(copy)
