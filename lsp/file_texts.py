"""Texts of files on disk, read once for each of their states and kept cut into windows.

Owns how a file is opened: only plain files of sensible size, never through a link, never waiting;
what is binary or in no known encoding has no windows. Which files may be read is decided before.
Synchronous and not safe for several threads at once.

Invariant: what is kept has a bound, the least used goes first.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from lsp.similarity import identifiers
from lsp.windows import Window, windows

MAX_BYTES = 1_000_000
MAX_KEPT = 16 << 20
"""Characters of all texts that are kept."""
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_FLAGS |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Not to wait for whoever writes to a pipe, and to go nowhere else than was looked at."""
_LOOKED_AT = 8192
"""Bytes in which a NUL tells that a file is no text."""


class Part(Struct, frozen=True, kw_only=True):
    """A window and the identifiers in it."""

    window: Window
    words: frozenset[str]


class Texts:
    """Windows of files, by path and by what tells one state of a text from the next."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._kept: OrderedDict[str, tuple[object, int, tuple[Part, ...]]] = OrderedDict()
        self._size = 0
        self._max_kept = max_kept

    def of_file(self, path: Path, state: object) -> tuple[Part, ...]:
        """The windows of a file; it is read if `state` is not that of the last time."""
        return self._parts(str(path), state, lambda: read_text(path))

    def of_text(self, uri: str, state: object, text: str) -> tuple[Part, ...]:
        """The windows of a text that is at hand."""
        return self._parts(uri, state, lambda: text if len(text) <= MAX_BYTES else "")

    def forget(self, key: str) -> None:
        """Drop what is kept of one file or text."""
        _, size, _ = self._kept.pop(key, (None, 0, ()))
        self._size -= size

    def _parts(self, key: str, state: object, read: Callable[[], str]) -> tuple[Part, ...]:
        known = self._kept.get(key)
        if known is not None and known[0] == state:
            self._kept.move_to_end(key)
            return known[2]
        self.forget(key)
        text = read()
        parts = tuple(
            Part(window=window, words=identifiers(window.body)) for window in windows(text)
        )
        size = len(text) + len(key)
        self._kept[key] = (state, size, parts)
        self._size += size
        while self._size > self._max_kept and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))
        return parts


def read_text(path: Path) -> str:
    """A file's text, or nothing if it is not a plain text file of sensible size."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return ""
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return ""
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        return ""
    finally:
        os.close(handle)
    if len(content) > MAX_BYTES or b"\0" in content[:_LOOKED_AT]:
        return ""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""
