"""How long a key takes to show while the real engine loads, reads a prompt and decodes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.model, pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from app.entry import main; main()"]
KEYS = "QZJXVW"
"""Letters that nothing on the screen is likely to hold."""
PRESSES = 100
BETWEEN_S = 0.03
ECHO_P99_S = 0.1
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Window:
    """A program in a terminal of its own, byte by byte."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read(self, seconds: float) -> bytes:
        """What is drawn next, without the terminal's commands; empty if nothing is in that time."""
        readable, _, _ = select.select([self._descriptor], [], [], seconds)
        return CONTROL.sub(b"", os.read(self._descriptor, 1 << 16)) if readable else b""

    def drain(self, seconds: float) -> None:
        """Let pass what is drawn in that time."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self.read(left)

    def wait_for(self, text: str, seconds: float) -> None:
        end, drawn = time.perf_counter() + seconds, b""
        while text.encode() not in drawn:
            assert time.perf_counter() < end, f"{text!r} did not come"
            drawn += self.read(0.1)

    def echo(self, key: str) -> float:
        """Seconds from a key to its letter on the screen."""
        began, drawn = time.perf_counter(), b""
        self.write(key)
        while key.encode() not in drawn:
            assert time.perf_counter() - began < 10, f"{key!r} did not come"
            drawn += self.read(0.2)
        return time.perf_counter() - began

    def p99(self, presses: int = PRESSES) -> float:
        """What all but one key in a hundred take at most."""
        times = []
        for press in range(presses):
            times.append(self.echo(KEYS[press % len(KEYS)]))
            self.drain(BETWEEN_S)
        return sorted(times)[int(presses * 0.99) - 1]


@contextmanager
def window(environment: dict[str, str], folder: Path) -> Iterator[Window]:
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(COMMAND[0], COMMAND, environment)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    try:
        yield Window(descriptor)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    own = {f"SSPEC_ASSIST_{name}": str(tmp_path / name) for name in ("RUNTIME", "DATA", "CONFIG")}
    inherited = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment = inherited | own | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    yield environment
    subprocess.run([*COMMAND, "engine", "stop"], env=environment, check=False, timeout=60)


def test_keys_show_at_once_whatever_the_engine_does(
    environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "long.py").write_text("value = [1, 2, 3]  # a line of a long file\n" * 250)
    took = {}
    with window(environment, folder) as chat:
        chat.wait_for("sk something", 30)
        took["load"] = chat.p99()
        chat.write("\x03")
        chat.wait_for("ready", 300)
        chat.write("Explain @long.py please. ")
        chat.drain(2)
        chat.write("\r")
        chat.wait_for("long.py", 10)
        chat.drain(0.5)
        took["prefill"] = chat.p99()
        chat.wait_for("tok/s", 300)
        took["decode"] = chat.p99()
    assert all(seconds <= ECHO_P99_S for seconds in took.values()), took
