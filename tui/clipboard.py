"""Text brought to the clipboard, and a sentence that says by which way it went.

Owns the ways and their order: the desktop's own command, then the terminal (OSC 52, first over
SSH, since there the desktop is elsewhere), then a file only the user can read. Knows nothing of
Textual; it may block for a second, so call it off the event loop.

Invariant: the sentence never claims more than is known: a command that ended well has the text, a
terminal was merely sent it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from engine.protocol import EngineError

NATIVE_SECONDS = 1.0
"""For all desktop commands together."""
MAX_OSC52_BYTES = 74_994
"""Of text; xterm and others drop sequences of more than 100,000 bytes, base64 adds a third."""
_OVER_SSH = ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")
_NO_OSC52_TERMS = ("", "dumb", "linux")
_NO_OSC52_PROGRAMS = ("Apple_Terminal",)


class _Tool(Struct, frozen=True, kw_only=True):
    """A command of the desktop that takes the text on its standard input."""

    command: tuple[str, ...]
    encoding: str = "utf-8"


def copy_text(
    text: str,
    write_osc52: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    *,
    platform: str = sys.platform,
) -> str:
    """Copy the text by the first way that works; returns the sentence to show.

    `write_osc52` gets one complete escape sequence to write to the terminal as it is; it is called
    on the caller's thread. Raises EngineError when not even a file could be written.
    """
    if not text:
        return "There is nothing to copy."

    def by_desktop() -> str | None:
        return _by_desktop(text, environ, platform)

    def by_terminal() -> str | None:
        return _by_terminal(text, write_osc52, environ)

    over_ssh = any(environ.get(name) for name in _OVER_SSH)
    ways = (by_terminal, by_desktop) if over_ssh else (by_desktop, by_terminal)
    for way in ways:
        if sentence := way():
            return sentence
    return _into_file(text, environ)


def osc52(data: bytes, *, in_tmux: bool) -> str:
    """The sequence that asks the terminal to take `data`; through tmux it must be wrapped."""
    sequence = f"\x1b]52;c;{base64.b64encode(data).decode('ascii')}\x07"
    if not in_tmux:
        return sequence
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _by_desktop(text: str, environ: Mapping[str, str], platform: str) -> str | None:
    deadline = time.monotonic() + NATIVE_SECONDS
    for tool in _tools(environ, platform):
        program = shutil.which(tool.command[0], path=environ.get("PATH"))
        left = deadline - time.monotonic()
        if program is None or left <= 0:
            continue
        if _took(tool, program, text, environ, left):
            return f"Copied {_amount(text)} with {tool.command[0]}."
    return None


def _tools(environ: Mapping[str, str], platform: str) -> Iterator[_Tool]:
    """The commands that fit the session, the surest first."""
    if platform == "darwin":
        yield _Tool(command=("pbcopy",))
    if environ.get("WAYLAND_DISPLAY"):
        yield _Tool(command=("wl-copy", "--type", "text/plain;charset=utf-8"))
    if environ.get("DISPLAY"):
        yield _Tool(command=("xclip", "-in", "-selection", "clipboard"))
        yield _Tool(command=("xsel", "--input", "--clipboard"))
    if environ.get("TERMUX_VERSION"):
        yield _Tool(command=("termux-clipboard-set",))
    in_wsl = environ.get("WSL_DISTRO_NAME") or environ.get("WSL_INTEROP")
    if platform == "win32" or in_wsl:
        yield _Tool(command=("clip.exe",), encoding="utf-16-le")


def _took(tool: _Tool, program: str, text: str, environ: Mapping[str, str], seconds: float) -> bool:
    """Whether the command ended well in time.

    Those that stay behind to serve the clipboard must hold no pipe of ours, or waiting never ends,
    and must not die with the terminal.
    """
    try:
        process = subprocess.Popen(
            [program, *tool.command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # pbcopy takes the bytes for whatever the locale says.
            env={**environ, "LC_CTYPE": "UTF-8"} if tool.command[0] == "pbcopy" else dict(environ),
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        process.communicate(text.encode(tool.encoding, "replace"), timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        return False
    return process.returncode == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    process.wait()


def _by_terminal(
    text: str, write_osc52: Callable[[str], None], environ: Mapping[str, str]
) -> str | None:
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_OSC52_BYTES or not _may_take_osc52(environ):
        return None
    in_tmux = bool(environ.get("TMUX"))
    try:
        write_osc52(osc52(data, in_tmux=in_tmux))
    except OSError:
        return None
    by_way_of = "through tmux (its allow-passthrough must be on) " if in_tmux else ""
    return (
        f"Sent {_amount(text)} {by_way_of}to the terminal's clipboard by OSC 52; "
        "whether it took them can't be told."
    )


def _may_take_osc52(environ: Mapping[str, str]) -> bool:
    if environ.get("WT_SESSION") or environ.get("TMUX"):
        return True
    is_deaf = environ.get("TERM_PROGRAM", "") in _NO_OSC52_PROGRAMS
    return not is_deaf and environ.get("TERM", "") not in _NO_OSC52_TERMS


def _into_file(text: str, environ: Mapping[str, str]) -> str:
    """The last way; the file's name is new each time, and only the user can read it."""
    folder = environ.get("XDG_RUNTIME_DIR", "")
    if not Path(folder).is_dir() or not folder:
        folder = tempfile.gettempdir()
    try:
        descriptor, path = tempfile.mkstemp(".txt", "sspec-assist-copy-", folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise EngineError(
            "clipboard_failed",
            f"no clipboard could be reached and {folder} can't be written: {error.strerror}",
            "Install wl-copy, xclip or xsel, or use a terminal that takes OSC 52.",
        ) from error
    return f"No clipboard could be reached; {_amount(text)} are in {path}, readable by you only."


def _amount(text: str) -> str:
    return f"{len(text):,} character{'s' if len(text) != 1 else ''}"
