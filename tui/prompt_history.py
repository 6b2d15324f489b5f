"""What was sent before, walked up and down from the input.

Owns the order and the place in it. Pure: texts in, texts out.

Invariant: what was being written when the walk began is there again at its end, placeholders and
all; a text that is sent twice in a row is kept once.
"""

from __future__ import annotations

from collections.abc import Iterable

from tui.pastes import Draft

MAX_ENTRIES = 1000


class PromptHistory:
    """Earlier messages, oldest first."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self.entries = list(entries)[-MAX_ENTRIES:]
        self._at = len(self.entries)
        self._unsent = Draft(text="")

    def add(self, text: str) -> None:
        """Take in what was just sent, and end the walk."""
        if not self.entries or self.entries[-1] != text:
            self.entries = [*self.entries, text][-MAX_ENTRIES:]
        self.leave()

    def leave(self) -> None:
        """End the walk: the next step up is to the newest entry again."""
        self._at = len(self.entries)

    def step(self, by: int, current: Draft) -> str | Draft | None:
        """The text one step older (-1) or newer (+1), or None where there is none."""
        if not 0 <= self._at + by <= len(self.entries):
            return None
        if self._at == len(self.entries):
            self._unsent = current
        self._at += by
        return self._unsent if self._at == len(self.entries) else self.entries[self._at]
