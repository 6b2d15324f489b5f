"""Which files this process opens, seen from outside our code: Python's own audit events.

An audit hook can't be taken out again, so there is one for all tests, which listens only while a
`watching` block runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_heard: list[list[Path]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _heard and isinstance(arguments[0], str | bytes | os.PathLike):
        for heard in _heard:
            heard.append(Path(os.fsdecode(arguments[0])))


sys.addaudithook(_hook)


@contextmanager
def watching() -> Iterator[list[Path]]:
    """Collect the path of every file that is opened in the block, in any thread."""
    heard: list[Path] = []
    _heard.append(heard)
    try:
        yield heard
    finally:
        _heard.remove(heard)
