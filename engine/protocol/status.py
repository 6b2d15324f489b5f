"""What an engine says of itself: its state, its load, what it holds."""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.events import Failed
from engine.protocol.words import EngineState


class LoadProgress(Struct, frozen=True, kw_only=True):
    """How far the model is on its way into memory."""

    stage: str
    done: int = 0
    """Bytes of this stage that are done, of `total`; both 0 where the stage can't tell."""
    total: int = 0


class Held(Struct, frozen=True, kw_only=True):
    """A conversation whose KV is kept."""

    conversation: str
    tokens: int


class EngineStatus(Struct, frozen=True, kw_only=True):
    """What the engine is doing now."""

    state: EngineState = "ready"
    load: LoadProgress | None = None
    """While `state` is `loading`."""
    failure: Failed | None = None
    """Why the model could not be loaded, while `state` is `failed`; while it is `ready`, why
    another one could not, for which this one came back."""
    model: str
    device: str = ""
    quant: str = ""
    exact: bool = False
    """Greedy text is bit-identical to plain decoding on this device, not only equal in law."""
    context_limit: int = 0
    fallback_tokens: int | None = None
    """Context length from which drafting is expected not to pay, by measured cost and acceptance;
    None where it pays as far as the context reaches or nothing is known yet."""
    running: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    """Ids of answers that were begun and wait for a request of higher priority."""
    queued: tuple[str, ...] = ()
    held: tuple[Held, ...] = ()
    evictions: int = 0
    """How often a conversation's KV was pushed out since the start."""
    weight_bytes: int = 0
    cache_bytes: int = 0
    memory_bytes: int = 0
    """Resident memory of the engine's process."""
    plain_tokens_per_s: float | None = None
    clients: int = 0
    """Clients that hold a connection to the engine open."""
    notice: str = ""
    """What was done differently from what was asked, in a sentence; empty if nothing was."""


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model that can be had."""

    name: str
    size_bytes: int
    licence: str
    here: bool
    """Its files are on this machine already."""
