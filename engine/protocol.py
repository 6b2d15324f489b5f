"""The seam: what a client may ask of the engine and what it hears back.

Every type that crosses a process or a thread lives here, as a frozen msgspec struct, so that the
same definition serves the in-process engine, the socket and the tests. This module imports neither
torch nor anything of `app`, `lsp` or `tui`; clients import nothing else of the engine.

Invariant: a stream is `Started`, then any number of `Paused`/`Resumed`/`TextDelta`/`RoundDone`,
then exactly one `Finished` or `Failed`.

Errors a user can cause form one tree; each has a stable `code`, an exit code and a remedy:

    EngineError
    ├── RequestError     the request itself can't be served (exit 2)
    ├── ModelError       the model's files can't be used (exit 3)
    └── MemoryLimitError the model or the context does not fit (exit 4)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Literal, Protocol

from msgspec import Struct

Route = Literal["plain", "layer_skip", "copy"]
RouteChoice = Literal["auto", "plain", "layer_skip", "copy"]
Priority = Literal["chat", "fill"]
TokenKind = Literal["accepted", "recovered", "bonus", "plain"]
Mode = Literal["speculating", "plain"]
FinishReason = Literal["stop", "stop_string", "length", "context", "cancelled"]
Role = Literal["system", "user", "assistant"]


class Turn(Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Role
    content: str


class Snippet(Struct, frozen=True, kw_only=True):
    """Text from another file that the model should see."""

    path: str
    text: str


class ChatPrompt(Struct, frozen=True, kw_only=True, tag="chat"):
    """A conversation whose next assistant message is wanted."""

    turns: tuple[Turn, ...]
    snippets: tuple[Snippet, ...] = ()


class FillPrompt(Struct, frozen=True, kw_only=True, tag="fill"):
    """A hole in a file: the text before it and after it."""

    prefix: str
    suffix: str
    path: str | None = None
    language: str | None = None
    snippets: tuple[Snippet, ...] = ()


class SamplingParams(Struct, frozen=True, kw_only=True):
    """How tokens are drawn from the target's law; `temperature == 0` is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps every token."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens seen in prompt or output, multiplies negative ones."""
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """Fixes the draw for a fixed route and k; a dynamic k keeps the law but not the draw."""


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """One answer that is wanted."""

    id: str
    prompt: ChatPrompt | FillPrompt
    sampling: SamplingParams = SamplingParams()
    priority: Priority = "chat"
    route: RouteChoice = "auto"
    k: int | None = None
    """Pins the number of drafted tokens; `None` lets the controller choose."""


class Started(Struct, frozen=True, kw_only=True, tag="started"):
    """The prompt was admitted; `cached_tokens` of it were already in the KV cache."""

    prompt_tokens: int
    cached_tokens: int


class Paused(Struct, frozen=True, kw_only=True, tag="paused"):
    """A request of higher priority runs between two of this one's rounds."""

    by: str


class Resumed(Struct, frozen=True, kw_only=True, tag="resumed"):
    """The pause is over."""

    paused_ms: float


class TextDelta(Struct, frozen=True, kw_only=True, tag="text"):
    """Text that is final. `kinds` tells where each token that completed it came from."""

    text: str
    kinds: tuple[TokenKind, ...]


class RoundDone(Struct, frozen=True, kw_only=True, tag="round"):
    """One draft-and-verify round. α = accepted ÷ tested; it emits accepted + 1 tokens."""

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


Event = Started | Paused | Resumed | TextDelta | RoundDone | Finished | Failed


class EngineStatus(Struct, frozen=True, kw_only=True):
    """What the engine is doing now."""

    model: str
    device: str
    quant: str
    exact: bool
    """Greedy text is bit-identical to plain decoding on this device, not only equal in law."""
    context_limit: int
    running: tuple[str, ...]
    queued: tuple[str, ...]
    weight_bytes: int
    cache_bytes: int
    plain_tokens_per_s: float | None


class Engine(Protocol):
    """What every engine can do: the local one, the remote one and the scripted one of the tests."""

    def generate(
        self, request: GenerateRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Stream the events of one answer; leaving the context cancels it within one round."""
        ...

    def status(self) -> EngineStatus:
        """Describe the engine without counting as use of it."""
        ...

    def close(self) -> None:
        """Stop all work and free the model. Calling it twice is harmless."""
        ...


class EngineError(Exception):
    """Something a user can put right: what happened, with the value, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.code = code
        self.message = message
        self.hint = hint

    def as_event(self) -> Failed:
        """The same error as the last event of a stream."""
        return Failed(code=self.code, message=self.message, hint=self.hint)


class RequestError(EngineError):
    """The request can't be served as it stands."""

    exit_code = 2


class ModelError(EngineError):
    """The model's files are missing, damaged or of a kind this engine can't run."""

    exit_code = 3


class MemoryLimitError(EngineError):
    """The weights, the cache or both do not fit."""

    exit_code = 4
