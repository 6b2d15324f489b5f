"""The time a calibration may take, and who hears where it stands.

Every stage ends at a share of the time; what it had to skip is noted for the report. Knows no stage
by name. Invariant: the clock starts when the model is loaded and never stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Tell = Callable[[str, float, str], None]
"""Called with the stage, the share of the time that is spent, and a note."""
Clock = Callable[[], float]
"""Seconds."""


class Pace:
    """One run's clock."""

    def __init__(self, minutes: float, tell: Tell, clock: Clock = time.monotonic) -> None:
        self.seconds = 60.0 * minutes
        self.left_out: list[str] = []
        """What there was no time for, as lines."""
        self._tell, self._clock = tell, clock
        self._began = clock()

    @property
    def taken(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    @property
    def spent(self) -> float:
        """Share of the time; above 1 where more was taken."""
        return self.taken / self.seconds

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share of the time is spent; negative after that."""
        return share * self.seconds - self.taken

    def until(self, share: float) -> Callable[[], bool]:
        """Whether there is time left of this share."""
        return lambda: self.spent < share

    def tell(self, stage: str, note: str = "") -> None:
        """Say what is done now."""
        self._tell(stage, self.spent, note)
