"""How fast the engine is and how fast one types, and what to wait for before it is asked.

Editors wait by themselves before they ask, so the wait here is none, unless the next key will come
before an answer could: then asking at once would only make the engine begin what it has to leave.
Owns these measurements for one session. The clock is the caller's.

Invariant: who asked explicitly never waits, and nobody waits longer than `MOST_S`.
"""

from __future__ import annotations

from collections import deque
from statistics import median

MOST_S = 0.2
BURST_S = 0.6
"""Keys that are farther apart belong to no burst."""
_FEWEST_KEYS = 3
_LEAST_PREFILL = 24
"""Tokens below which the time to read them says little of the speed."""
_WEIGHT = 0.3
"""Of the newest measurement."""


class Pace:
    """What was measured of late."""

    def __init__(self) -> None:
        self.first_text_s: float | None = None
        """From the request to the first text of an answer."""
        self.prefill_tokens_per_s: float | None = None
        self.plain_tokens_per_s: float | None = None
        self._gaps: deque[float] = deque(maxlen=4)
        self._last_key: float | None = None

    def key(self, now: float) -> None:
        """A key was typed."""
        if self._last_key is not None:
            gap = now - self._last_key
            if gap > BURST_S:
                self._gaps.clear()
            else:
                self._gaps.append(gap)
        self._last_key = now

    def wait_s(self, now: float, *, setting_ms: int | None, explicit: bool) -> float:
        """How long to wait for another key before the engine is asked."""
        since = 0.0 if self._last_key is None else now - self._last_key
        if explicit:
            return 0.0
        if setting_ms is not None:
            return max(0.0, setting_ms / 1000 - since)
        if self.first_text_s is None or len(self._gaps) < _FEWEST_KEYS:
            return 0.0
        gap = median(self._gaps)
        if self.first_text_s <= gap:
            return 0.0
        return max(0.0, min(1.5 * gap, MOST_S) - since)

    def answered(self, first_text_s: float) -> None:
        """The first text of an answer came so long after it was asked for."""
        self.first_text_s = _blend(self.first_text_s, first_text_s)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """So many tokens of a prompt were read in that time."""
        if tokens >= _LEAST_PREFILL and seconds > 0:
            self.prefill_tokens_per_s = _blend(self.prefill_tokens_per_s, tokens / seconds)


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
