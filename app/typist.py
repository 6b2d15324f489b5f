"""A person at a keyboard, made up from a seed: what is typed next, and after which pause.

Pure and deterministic. It types a text at human speed, with thinking at the start of lines and a
slip now and then that is taken back, and decides whether a suggestion is what it was about to type.
Knows no editor and no server.

Invariant: whatever was accepted or mistyped on the way, what is typed in the end is the text.
"""

from __future__ import annotations

import random
import re
from typing import Literal

from msgspec import Struct

KEY_S = 0.14
THINK_S = 0.7
READ_S = 0.45
"""How long it takes to see that a suggestion is right."""
SLIPS = 0.02
TAKES = 0.8
"""Part of the right suggestions that are accepted."""
LEAST = 2
"""A suggestion of fewer characters is faster typed than read."""
_NEAR = {"a": "s", "e": "r", "i": "o", "n": "m", "o": "p", "r": "t", "s": "d", "t": "r"}


class Stroke(Struct, frozen=True, kw_only=True):
    """One thing that is done to the document."""

    kind: Literal["type", "delete", "accept", "accept word"]
    text: str = ""


class Typist:
    """Types one text."""

    def __init__(self, name: str, text: str) -> None:
        self._random = random.Random(name)
        self._rest = text
        self._slip = ""
        self._fresh_line = True

    @property
    def done(self) -> bool:
        """Whether all of it is typed."""
        return not self._rest and not self._slip

    def pause_s(self) -> float:
        """How long it is until the next stroke."""
        pause = self._random.uniform(0.6, 1.6) * KEY_S
        if self._slip:
            return 2 * KEY_S
        thinks = self._fresh_line or self._rest.startswith(("\n", "\r\n"))
        return pause + self._random.uniform(0.5, 1.5) * THINK_S if thinks else pause

    def next(self, suggestion: str = "") -> Stroke:
        """The next stroke, `suggestion` being what is offered for the cursor by then.

        To accept it takes `READ_S` more.
        """
        if self._slip:
            self._slip = ""
            return Stroke(kind="delete")
        taken = self._taken(suggestion)
        if taken:
            self._rest = self._rest[len(taken) :]
            self._fresh_line = False
            return Stroke(kind="accept" if taken == suggestion else "accept word", text=taken)
        key = self._key()
        if key in _NEAR and self._random.random() < SLIPS:
            self._slip = _NEAR[key]
            return Stroke(kind="type", text=self._slip)
        self._rest = self._rest[len(key) :]
        self._fresh_line = key.isspace() and len(key) > 1
        return Stroke(kind="type", text=key)

    def _key(self) -> str:
        """A character; indentation comes at once, and with the line end before it."""
        match = re.match(r"\r?\n[ \t]*|[ \t]{2,}", self._rest)
        return match.group() if match else self._rest[:1]

    def _taken(self, suggestion: str) -> str:
        """What of a suggestion is accepted: all of it, or its first word, or nothing."""
        if len(suggestion.strip()) < LEAST or self._random.random() > TAKES:
            return ""
        if self._rest.startswith(suggestion):
            return suggestion
        word = re.match(r"[ \t]*\w+", suggestion)
        if word and len(word.group()) > 2 * LEAST and self._rest.startswith(word.group()):
            behind = self._rest[len(word.group()) :]
            return "" if re.match(r"\w", behind) else word.group()
        return ""
