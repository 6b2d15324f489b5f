"""What terminals send that Textual 8.2.8 takes for something else, put right.

Owns the names of the keys that break a line, the code of alt+enter, bytes that are no UTF-8, and
the mouse reports without a position that VS Code sends and that would be typed into the text. Knows
no widget.

Invariant: nothing a person could type is taken away.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections import deque
from enum import Enum
from functools import partial
from typing import cast

from textual._ansi_sequences import ANSI_SEQUENCES_KEYS

NEWLINE_KEYS = frozenset(
    ("shift+enter", "ctrl+j", "alt+enter", "ctrl+enter", "shift+\r", "alt+\r", "ctrl+\r")
)
"""The last three are what Textual makes of xterm's own codes for the same keys."""
JOINERS = frozenset("\u200c\u200d")
"""Not printable by themselves, but Persian words and many emoji are spelt with them."""

_REPORT = re.compile(r"\^?\[<(?=[^mM]*NaN)(?:NaN|-?\d+)(?:;(?:NaN|-?\d+)){2}[mM]\Z")
_REPORT_LENGTH = 40
_REPORT_S = 0.25
"""One report comes in one read; nobody types a dozen characters in that time."""


class _Chord(Enum):
    ALT_ENTER = "alt+enter"


def teach_alt_enter() -> None:
    """Make Textual tell alt+enter from enter where the terminal sends escape and return.

    It loses the alt of control bytes; without this, alt+enter would send the message.
    """
    table = cast("dict[str, object]", ANSI_SEQUENCES_KEYS)
    table["\x1b\r"] = (_Chord.ALT_ENTER,)


def accept_any_bytes() -> None:
    """Make Textual read a byte that is no UTF-8 (of a pasted Latin-1 text, say) as U+FFFD.

    Its reading thread dies of one otherwise, and the application with it.
    """
    if sys.platform == "win32":
        return  # the console gives characters there
    from textual.drivers import linux_driver

    forgiving = partial(codecs.getincrementaldecoder("utf-8"), errors="replace")
    vars(linux_driver)["getincrementaldecoder"] = lambda _: forgiving


class MouseReports:
    """Finds mouse reports with NaN in them among the characters typed."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, float]] = deque(maxlen=_REPORT_LENGTH)

    def ended(self, character: str, at_s: float) -> str:
        """The report that `character`, which came at that time, is the last of; empty if none."""
        self._recent.append((character, at_s))
        if character not in ("m", "M"):
            return ""
        typed = "".join(one for one, time in self._recent if at_s - time < _REPORT_S)
        report = _REPORT.search(typed)
        if report is None:
            return ""
        self._recent.clear()
        return report.group()
