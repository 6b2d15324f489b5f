"""Which windows are alive: one locked file for each, beside the store.

Owns the lock that a window holds as long as it lives and that the operating system takes back when
it dies, however it dies. It must not know SQL or what is stored. A process id alone would not do:
ids are used again, and one process may hold two windows.

Invariant: `is_alive(name)` is true only while the process that made the `WindowLock` of that name
still runs and has not released it. A name is never used twice.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


_SUFFIX = ".window"
_POLL_SECONDS = 0.01


class WindowLock:
    """This window's proof of life. Raises `OSError` where the folder can't be written to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name = uuid.uuid4().hex
        self._file = folder / (self.name + _SUFFIX)
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if not _try_lock(self._descriptor):
            os.close(self._descriptor)
            raise OSError(f"the file system of {folder} has no locks")

    def release(self) -> None:
        """Let others see this window as gone. Calling it twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            with suppress(OSError):
                self._file.unlink()


def is_alive(folder: Path, name: str) -> bool:
    """Whether the window of that name still runs; what a dead one left behind is removed."""
    file = folder / (name + _SUFFIX)
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Not ours to judge: an answer is never taken from a window that may live.
    try:
        if not _try_lock(descriptor):
            return True
        with suppress(OSError):
            file.unlink()
        return False
    finally:
        os.close(descriptor)


def clear_dead(folder: Path) -> None:
    """Remove the files of windows that died without an answer in progress.

    To be called where no window is being opened: one that has made its file and not locked it yet
    would pass for dead.
    """
    for file in folder.glob("*" + _SUFFIX):
        is_alive(folder, file.name.removesuffix(_SUFFIX))


@contextmanager
def alone(file: Path, timeout_s: float) -> Iterator[None]:
    """Hold `file` locked against every other process. Raises `TimeoutError` after `timeout_s`."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + timeout_s
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{file} is held by another process")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
