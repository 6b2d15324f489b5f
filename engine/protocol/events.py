"""What a client hears back while one answer is made."""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.words import FinishReason, Mode, Route, TokenKind


class Queued(Struct, frozen=True, kw_only=True, tag="queued"):
    """Others go first; sent when the number of them changes."""

    ahead: int


class Started(Struct, frozen=True, kw_only=True, tag="started"):
    """The prompt was admitted; `cached_tokens` of it were already in the KV cache."""

    prompt_tokens: int
    cached_tokens: int
    evicted_tokens: int = 0
    """Tokens of this conversation that the cache had held and that were pushed out since."""
    notice: str = ""
    """What was done differently from what was asked (a shorter context, say); empty if nothing."""


class Paused(Struct, frozen=True, kw_only=True, tag="paused"):
    """A request of higher priority runs between two of this one's rounds."""

    by: str
    """The other request's `client`."""


class Resumed(Struct, frozen=True, kw_only=True, tag="resumed"):
    """The pause is over."""

    paused_ms: float


class TextDelta(Struct, frozen=True, kw_only=True, tag="text"):
    """Text that is final. `kinds` tells where each token that completed it came from."""

    text: str
    kinds: tuple[TokenKind, ...]
    spans: tuple[int, ...]
    """Characters of `text` that each of those tokens completed, 0 for one whose text is held back
    until a later one. Text beyond their sum was held back and belongs to the token told last."""


class RoundDone(Struct, frozen=True, kw_only=True, tag="round"):
    """One draft-and-verify round. α = accepted ÷ tested; it emits accepted + 1 tokens, the last of
    them a stop token where the answer ends so. Drafts from there on are not in these counts."""

    route: Route
    k: int
    drafted: int
    tested: int
    accepted: int
    draft_ms: float
    verify_ms: float
    round_ms: float
    """Wall time of the whole round; what draft and verify leave over is the loop's own cost."""
    context_tokens: int
    mode: Mode
    reason: str
    """Why this route; in mode `plain`, why nothing was drafted."""


class Usage(Struct, frozen=True, kw_only=True):
    """What one answer took, in tokens and milliseconds."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prefill_ms: float
    decode_ms: float
    rounds: int
    drafted: int
    tested: int
    accepted: int
    plain_tokens_per_s: float | None
    """Measured speed of plain decoding at these context lengths on this machine; None before any
    plain pass was timed."""


class Finished(Struct, frozen=True, kw_only=True, tag="finished"):
    """The answer ended well. `text` is the whole of it."""

    reason: FinishReason
    text: str
    usage: Usage


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """The answer could not be given or completed."""

    code: str
    message: str
    hint: str
    exit_code: int = 1
    """What a command that ends with this failure exits with."""


Event = Queued | Started | Paused | Resumed | TextDelta | RoundDone | Finished | Failed
