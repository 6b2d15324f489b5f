"""Text that the user hands over: files by path, and whatever comes through standard input.

Knows nothing of requests or prompts. Invariant: what comes out is UTF-8 text without NUL; anything
else is a sentence that names the file and the reason.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, TextIO

from engine.protocol import RequestError

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE_BYTES = 1 << 20
"""Above this no context of the supported models could hold the file anyway."""
_NOTICE_SECONDS = 1.0


def piped_text(stdin: TextIO | None, err: TextIO, argument: str | None) -> str | None:
    """What standard input holds, or None where nothing is waiting to be read.

    A terminal is read only when `argument` is `-`. Raises `RequestError` for anything but text.
    """
    if stdin is None or (stdin.isatty() and argument != "-"):
        return None
    # A pipe that nobody writes to or closes looks like a program that hangs: say what is going on.
    if not stdin.isatty() and not _is_ready(stdin):
        err.write("waiting for standard input to end (add </dev/null if there is none)\n")
        err.flush()
    return text_of(stdin.buffer.read(), "standard input")


def _is_ready(stdin: TextIO) -> bool:
    if sys.platform == "win32":
        return True  # select takes only sockets there
    try:
        return bool(select.select([stdin], [], [], _NOTICE_SECONDS)[0])
    except (io.UnsupportedOperation, ValueError):
        return True


def text_of(data: bytes, source: str) -> str:
    """`data` as UTF-8 text. Raises `RequestError`, naming `source`, for anything else."""
    if b"\0" in data:
        raise RequestError(
            "binary_file", f"{source} is a binary file", "Only text can be shown to the model."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(
            "not_utf8",
            f"{source} is not UTF-8 text (byte {error.start})",
            "Convert it, for example with iconv.",
        ) from error


def name_of(path: Path) -> str:
    """A path as text, which a name on disk need not be."""
    return os.fsencode(path).decode("utf-8", "replace")


def require_text(argument: str, what: str) -> None:
    """Raise `RequestError` for an argument of the command line that is not UTF-8 text."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            "not_utf8",
            f"{what} is not UTF-8 text (character {error.start + 1})",
            "Set the terminal to UTF-8, or give it through standard input.",
        ) from error


def read_text(path: Path) -> str:
    """The text of a file the user named. Raises `RequestError` if it can't be used, saying why."""
    try:
        if path.is_dir():
            raise RequestError("not_a_file", f"{path} is a folder", "Name a file in it.")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise RequestError(
                "file_too_large",
                f"{path} has {size:,} bytes, more than {MAX_FILE_BYTES:,}",
                "Give the part that matters, for example through a pipe.",
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise RequestError("no_file", f"{path} does not exist", "Check the path.") from error
    except OSError as error:
        raise RequestError(
            "unreadable_file", f"{path} can't be read: {error.strerror}", "Check its permissions."
        ) from error
    return text_of(data, str(path))
