"""What one answer took: a pure fold of its events, and the one line that tells it.

Counts are sums over the events that were really seen, so an answer that was interrupted is told as
truly as one that ended; times come from `Finished` when there is one and from the rounds otherwise.
Knows no engine, no terminal and no clock. Invariant: folding the same events gives the same line.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Event, Finished, FinishReason, RoundDone, Started, TextDelta

LAST_TOKEN = "the last token"
"""The engine's reason where one token is left to write: true, but it explains no other round."""


class Statistics(Struct, frozen=True, kw_only=True):
    """Sums over the events of one answer, in tokens and milliseconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    rounds: int = 0
    plain_rounds: int = 0
    """Rounds that drafted nothing."""
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    k_low: int | None = None
    """Least and most tokens drafted in a round that drafted; None before the first such round."""
    k_high: int | None = None
    context_tokens: int = 0
    decode_ms: float = 0.0
    plain_tokens_per_s: float | None = None
    plain_reason: str = ""
    """Why the latest round without a draft had none; the last token's only if no other had one."""
    finish: FinishReason | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Decoded tokens per second; None before any time was measured."""
        return self.output_tokens / self.decode_ms * 1e3 if self.decode_ms > 0 else None

    @property
    def times_plain(self) -> float | None:
        """Speed as a multiple of plain decoding; None where plain decoding was not measured."""
        if self.tokens_per_s is None or not self.plain_tokens_per_s:
            return None
        return self.tokens_per_s / self.plain_tokens_per_s

    @property
    def acceptance(self) -> float | None:
        """α = accepted ÷ tested; None when no draft was tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def tokens_per_round(self) -> float | None:
        """Mean of accepted + 1 over all rounds, those without a draft included."""
        return (self.accepted + self.rounds) / self.rounds if self.rounds else None


def observe(seen: Statistics, event: Event) -> Statistics:
    """`seen` with one more event in it."""
    match event:
        case Started():
            return replace(
                seen,
                prompt_tokens=event.prompt_tokens,
                cached_tokens=event.cached_tokens,
                context_tokens=event.prompt_tokens,
            )
        case TextDelta():
            return replace(seen, output_tokens=seen.output_tokens + len(event.kinds))
        case RoundDone():
            return _observe_round(seen, event)
        case Finished():
            return replace(
                seen,
                # The end marker is a token that was decoded and has no text.
                output_tokens=event.usage.output_tokens,
                decode_ms=event.usage.decode_ms,
                plain_tokens_per_s=event.usage.plain_tokens_per_s,
                finish=event.reason,
            )
        case _:
            return seen


def _observe_round(seen: Statistics, event: RoundDone) -> Statistics:
    lengths = [k for k in (seen.k_low, seen.k_high) if k is not None]
    if event.drafted:
        lengths.append(event.drafted)
    idle = not event.drafted
    tells = idle and not (seen.plain_reason and event.reason == LAST_TOKEN)
    return replace(
        seen,
        rounds=seen.rounds + 1,
        plain_rounds=seen.plain_rounds + idle,
        drafted=seen.drafted + event.drafted,
        tested=seen.tested + event.tested,
        accepted=seen.accepted + event.accepted,
        k_low=min(lengths, default=None),
        k_high=max(lengths, default=None),
        context_tokens=event.context_tokens,
        decode_ms=seen.decode_ms + event.round_ms,
        plain_reason=event.reason if tells else seen.plain_reason,
    )


def summary(seen: Statistics, context_limit: int) -> str:
    """The statistics as one line; what was not measured is said in a word, never guessed."""
    parts = [
        f"{seen.output_tokens} tokens",
        "speed not measured" if seen.tokens_per_s is None else f"{seen.tokens_per_s:.1f} tok/s",
        "× plain not measured" if seen.times_plain is None else f"{seen.times_plain:.2f} × plain",
        _drafting(seen),
        f"context {seen.context_tokens:,}/{context_limit:,}",
    ]
    if seen.plain_rounds and seen.plain_reason:
        parts.append(_why_plain(seen))
    ending = _ENDINGS.get(seen.finish) if seen.finish else "stopped before its end"
    return " · ".join(part for part in (*parts, ending) if part)


_ENDINGS: dict[FinishReason, str] = {
    "length": "cut at --max-tokens",
    "context": "cut because the context is full",
    "cancelled": "stopped before its end",
}


def _drafting(seen: Statistics) -> str:
    if seen.acceptance is None or seen.tokens_per_round is None:
        return "nothing drafted"
    k = f"{seen.k_low}" if seen.k_low == seen.k_high else f"{seen.k_low}–{seen.k_high}"
    return (
        f"α {seen.acceptance:.2f} ({seen.accepted}/{seen.tested} tested) · "
        f"{seen.tokens_per_round:.2f} tokens per round · k {k}"
    )


def _why_plain(seen: Statistics) -> str:
    if seen.plain_rounds == seen.rounds:
        return f"speculation off: {seen.plain_reason}"
    return f"speculation off in {seen.plain_rounds} of {seen.rounds} rounds: {seen.plain_reason}"
