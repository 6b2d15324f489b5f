"""The process that a file names, if it is still the one that wrote it.

A process id alone is given again, so files keep the second of its start too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

CLOCK_STEP_S = 5.0
"""A start is counted from the boot, and the boot's time follows every correction of the clock."""


def started_at(pid: int) -> float:
    """Second of the start of a running process. Raises `psutil.Error` if there is none."""
    import psutil

    seconds: float = psutil.Process(pid).create_time()
    return seconds


def process_of(pid: int, started: float) -> psutil.Process | None:
    """The running process `pid`, unless it started at another time than `started`."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) <= CLOCK_STEP_S
    except psutil.Error:
        return None
    return process if same else None
