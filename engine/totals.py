"""What one answer has taken so far, summed over its steps. Plain numbers only."""

from __future__ import annotations

from dataclasses import dataclass

from engine.decode import Round
from engine.protocol import Usage
from engine.row import Row

OWN_PLAIN_ROUNDS = 8
"""From so many on, an answer's own plain rounds tell the plain speed."""


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over the steps of one answer."""

    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    plain_ms: float = 0.0
    """What the same tokens would have taken one by one, at the speed in the cost table."""
    plain_rounds: int = 0
    plain_rounds_ms: float = 0.0
    """This answer's own plain rounds: the better measure, once there are some."""
    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    def count(self, done: Round, unit_ms: float) -> None:
        """Add a round; `unit_ms` is what a plain one takes by the cost table."""
        self.rounds += 1
        self.drafted += done.drafted
        self.tested += done.tested
        self.accepted += done.accepted
        self.plain_ms += done.emitted * unit_ms
        if not done.drafted:
            self.plain_rounds += 1
            self.plain_rounds_ms += done.total_ms

    def usage(self, row: Row, cached_tokens: int) -> Usage:
        """The sums as the seam tells them."""
        produced = len(row.output)
        return Usage(
            prompt_tokens=row.prompt_tokens,
            cached_tokens=cached_tokens,
            output_tokens=produced,
            prefill_ms=self.prefill_ms,
            decode_ms=self.decode_ms,
            rounds=self.rounds,
            drafted=self.drafted,
            tested=self.tested,
            accepted=self.accepted,
            plain_tokens_per_s=self._plain_tokens_per_s(produced),
        )

    def _plain_tokens_per_s(self, produced: int) -> float | None:
        """Speed of plain decoding in this answer's own minute, if it decoded enough plainly; else
        by the table, which an earlier minute may have filled."""
        if self.plain_rounds >= OWN_PLAIN_ROUNDS:
            return 1e3 * self.plain_rounds / self.plain_rounds_ms
        return 1e3 * produced / self.plain_ms if self.plain_ms else None
