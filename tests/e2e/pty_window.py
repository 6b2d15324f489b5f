"""A program in a terminal of its own, read byte by byte: for tests that look at the clock."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Window:
    """A terminal and the process in it."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._all = b""

    def write(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    def read(self, seconds: float) -> bytes:
        """What is drawn next, without the terminal's commands; empty if nothing is in that time."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        drawn = CONTROL.sub(b"", os.read(self._descriptor, 1 << 16)) if readable else b""
        self._all += drawn
        return drawn

    def drain(self, seconds: float) -> None:
        """Let pass what is drawn in that time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def comes(self, text: str, seconds: float) -> bool:
        """Whether a text is drawn in that time."""
        end, drawn = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0:
            drawn += self.read(left)
            if text.encode() in drawn:
                return True
        return False

    def came(self, text: str, seconds: float) -> bool:
        """Whether a text has been drawn since the start, or is in that time."""
        return text.encode() in self._all or self.comes(text, seconds)

    def echo(self, key: str) -> float:
        """Seconds from a key to its letter on the screen."""
        began = time.perf_counter()
        self.write(key)
        assert self.comes(key, 10), f"{key!r} did not come"
        return time.perf_counter() - began

    def kill(self) -> None:
        """End the process at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@contextmanager
def window(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[Window]:
    """Run `command` in `folder` in a terminal of 100 × 30; it is killed when the block is left."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    opened = Window(pid, descriptor)
    try:
        yield opened
    finally:
        opened.kill()
        os.waitpid(pid, 0)
        os.close(descriptor)
