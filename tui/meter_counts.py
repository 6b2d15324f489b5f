"""The plain numbers that the meter's state is made of.

Owns what is summed, over one answer or a whole session, and what may be divided by what. It must
not know how numbers come about (`meter_state` folds them) or how they look (`gauges`).

Invariant: a rate whose denominator is 0 is None, never 0.
"""

from __future__ import annotations

from msgspec import Struct

from engine.protocol import Route


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over one answer or several, in tokens, rounds and milliseconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    rounds: int = 0
    plain_rounds: int = 0
    """Rounds that drafted nothing."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    prefill_ms: float = 0.0
    """Known only of answers that finished."""
    decode_ms: float = 0.0
    paused_ms: float = 0.0
    pauses: int = 0

    @property
    def tokens_per_s(self) -> float | None:
        """Decoded tokens per second; None before any time was measured."""
        return self.output_tokens / self.decode_ms * 1e3 if self.decode_ms > 0 else None

    @property
    def acceptance(self) -> float | None:
        """α = accepted ÷ tested; None when no draft was tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def tokens_per_round(self) -> float | None:
        """Mean of accepted + 1 over all rounds, those without a draft included."""
        return (self.accepted + self.rounds) / self.rounds if self.rounds else None

    def plus(self, other: Totals) -> Totals:
        """Both together."""
        names = self.__struct_fields__
        return Totals(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Position(Struct, frozen=True, kw_only=True):
    """The tokens that stood at one place of their draft."""

    tested: int = 0
    accepted: int = 0


class Decision(Struct, frozen=True, kw_only=True):
    """What the arbiter chose, for the rounds `first` to `last` (counted from 1) of the answer."""

    route: Route
    k: int
    reason: str
    first: int
    last: int


class Pause(Struct, frozen=True, kw_only=True):
    """The latest pause of an answer; `ms` is None while it lasts."""

    by: str
    after_rounds: int
    """Rounds that were done when it began."""
    ms: float | None = None
