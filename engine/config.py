"""Settings of the engine: frozen structs with range checks, plain values only, no torch.

Each struct refuses a value out of range by naming it, so that whoever builds one (the command line,
the TOML reader, a test) gets the same sentence.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.protocol import RequestError, RouteChoice, SamplingParams

Quant = Literal["nf4", "int8", "none"]
Device = Literal["auto", "cpu", "cuda"]
DraftPolicy = Literal["cost", "window"]
Wish = Literal["never", "auto", "always"]

MAX_DRAFT_TOKENS = 32
"""Upper end of k anywhere; the widest verify pass has one row more."""


class LoadSettings(Struct, frozen=True, kw_only=True):
    """How a model is brought into memory."""

    quant: Quant = "nf4"
    device: Device = "auto"
    context_tokens: int | None = None
    """KV slots of one conversation; None takes the model's own limit, at most 16,384."""
    threads: int | None = None
    """CPU threads of torch; None takes the physical cores."""
    rows: int = 2
    """Conversations whose KV is kept at the same time, at least; more where memory allows."""
    native: bool = True
    """Whether C kernels may be compiled and used."""
    twin: Wish = "never"
    """Whether the NF4 twin that low_precision drafts with is loaded as well; `auto`: if it fits."""

    def __post_init__(self) -> None:
        _within("context", self.context_tokens, 64, 1 << 20)
        _within("threads", self.threads, 1, 1024)
        _within("rows", self.rows, 1, 64)


class DraftSettings(Struct, frozen=True, kw_only=True):
    """How tokens are drafted when the request leaves it open."""

    route: RouteChoice = "auto"
    exit_layer: int | None = None
    """Layers that the layer_skip draft runs; None takes three quarters of them."""
    policy: DraftPolicy = "cost"
    max_k: int = MAX_DRAFT_TOKENS
    """Most tokens drafted in a round; what pays is chosen below it."""

    def __post_init__(self) -> None:
        _within("exit_layer", self.exit_layer, 1, 1024)
        _within("max_k", self.max_k, 1, MAX_DRAFT_TOKENS)


def check_sampling(params: SamplingParams) -> SamplingParams:
    """Return `params` unchanged, or raise `RequestError` naming the first value out of range."""
    _within("temperature", params.temperature, 0.0, 10.0)
    _within("top_p", params.top_p, 0.0, 1.0, low_open=True)
    _within("top_k", params.top_k, 0, 1 << 20)
    _within("min_p", params.min_p, 0.0, 1.0)
    _within("repetition_penalty", params.repetition_penalty, 0.0, 10.0, low_open=True)
    _within("max_tokens", params.max_tokens, 1, 1 << 20)
    _within("seed", params.seed, -(1 << 63), (1 << 64) - 1)
    return params


def _within(
    name: str, value: float | None, low: float, high: float, *, low_open: bool = False
) -> None:
    if value is None or (low < value <= high if low_open else low <= value <= high):
        return
    bound = "above" if low_open else "from"
    raise RequestError(
        "bad_setting",
        f"{name} is {value}, outside its range",
        f"Choose a value {bound} {low} up to {high}.",
    )
