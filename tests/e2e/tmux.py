"""A real terminal for the end-to-end tests: a program in tmux, its keys and its screen."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class Terminal:
    """One window of one tmux server, which belongs to it alone."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def keys(self, *names: str) -> None:
        """Press keys by tmux's names for them."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        """Type a text as it is."""
        self._tmux("send-keys", "-l", text)

    def screen(self) -> str:
        """What is to be seen, without the spaces at the ends of the lines."""
        lines = self._tmux("capture-pane", "-p").splitlines()
        return "\n".join(line.rstrip() for line in lines)

    def wait_for(self, text: str, seconds: float) -> str:
        """The screen as soon as `text` is on it."""
        deadline = time.monotonic() + seconds
        while text not in (shown := self.screen()):
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{shown}"
            time.sleep(0.1)
        return shown

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout


@contextmanager
def terminal(
    command: str, folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (100, 30)
) -> Iterator[Terminal]:
    """A terminal in which a shell runs `command` in `folder` and then says how it ended."""
    socket = f"sspec-assist-{uuid.uuid4().hex}"
    width, height = size
    subprocess.run(
        [
            *("tmux", "-L", socket, "-f", os.devnull, "new-session", "-d"),
            *("-x", str(width), "-y", str(height), "-c", str(folder)),
            f'{command}; echo "ended with $?"; cat',
        ],
        env=dict(environment),
        check=True,
    )
    try:
        yield Terminal(socket)
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True)
