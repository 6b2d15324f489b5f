"""How much memory a model will take, computed from its sizes alone, before anything is loaded.

Owns the arithmetic of weights, KV cache, workspace and margin, the refusal when they do not fit,
and the sizes of a few models one may want to plan without having their files. It knows no torch
and reads no file; `available_host_bytes` is the only question it asks the machine.

Invariant: a plan's `longest_context` fits, and 64 tokens more does not (unless the model itself
ends there). All amounts are bytes, GiB is 2**30.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from engine.config import MAX_DRAFT_TOKENS, Quant
from engine.host_memory import free_bytes
from engine.protocol import MemoryLimitError

if TYPE_CHECKING:
    from collections.abc import Mapping

Kernels = Literal["cpu_packed", "cpu_dequant", "cuda"]
"""What runs the weights: `cpu_packed` needs AVX512-BF16, `cpu_dequant` is every other CPU."""

GIB = 1 << 30
MIB = 1 << 20
PREFILL_TOKENS = 512
DEFAULT_CONTEXT_TOKENS = 16_384
"""Taken when no context is asked for, unless the model's own limit is lower."""
DEFAULT_ROWS = 4
"""Conversations kept at the same time, the editor's row among them, where memory allows."""
LEAST_CONTEXT_TOKENS = 1024
"""A context that was not asked for is not shortened further than this."""
CONTEXT_STEP = 64
"""KV is allocated, and its attention padded, in multiples of this many tokens."""

_ABSMAX_BLOCK = 64
_BF16, _FP32 = 2, 4
_LAW_COPIES = 3  # logits, the law after the sampling chain, the draft's law


class ModelSizes(Struct, frozen=True, kw_only=True):
    """What planning needs to know of a model; letters as in the engine's glossary."""

    layers: int  # N
    hidden: int  # D
    heads: int  # H
    kv_heads: int  # G
    head_dim: int  # E
    feed_forward: int
    vocab: int  # V
    context_tokens: int
    """Longest sequence the positions were trained for."""
    parameters: int
    """Of all tensors; a tied LM head counts once."""
    tied_head: bool

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token of one conversation, bf16, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * _BF16


class MemoryPlan(Struct, frozen=True, kw_only=True):
    """Bytes by purpose, and whether they fit into what is available."""

    quant: Quant
    kernels: Kernels
    context_tokens: int
    rows: int
    weights: int
    kv: int
    workspace: int
    margin: int
    available: int
    longest_context: int
    """Most tokens per conversation that fit, at most the model's own limit; 0 if none do."""

    @property
    def total(self) -> int:
        """Everything that must be free."""
        return self.weights + self.kv + self.workspace + self.margin

    @property
    def fits(self) -> bool:
        """Whether the asked context fits."""
        return self.total <= self.available

    def require_fits(self, name: str = "the model") -> None:
        """Raise `MemoryLimitError` with the numbers and the nearest remedy unless the plan fits."""
        if not self.fits:
            raise _refusal(self, name)


PRESETS: Mapping[str, ModelSizes] = {
    "smollm2-135m": ModelSizes(
        layers=30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        feed_forward=1536,
        vocab=49_152,
        context_tokens=8192,
        parameters=134_515_008,
        tied_head=True,
    ),
    "qwen2.5-coder-0.5b": ModelSizes(
        layers=24,
        hidden=896,
        heads=14,
        kv_heads=2,
        head_dim=64,
        feed_forward=4864,
        vocab=151_936,
        context_tokens=32_768,
        parameters=630_167_424,
        tied_head=False,
    ),
    "qwen2.5-coder-1.5b": ModelSizes(
        layers=28,
        hidden=1536,
        heads=12,
        kv_heads=2,
        head_dim=128,
        feed_forward=8960,
        vocab=151_936,
        context_tokens=32_768,
        parameters=1_777_088_000,
        tied_head=False,
    ),
    "qwen2.5-coder-7b": ModelSizes(
        layers=28,
        hidden=3584,
        heads=28,
        kv_heads=4,
        head_dim=128,
        feed_forward=18_944,
        vocab=152_064,
        context_tokens=32_768,
        parameters=7_615_616_512,
        tied_head=False,
    ),
}
"""Models that can be planned without their files, by catalogue name."""


def preset_of(name: str) -> ModelSizes | None:
    """The preset behind a catalogue name or a hub id (`Qwen/Qwen2.5-Coder-7B-Instruct`), if any."""
    short = name.rstrip("/").rsplit("/", 1)[-1].lower()
    return PRESETS.get(short.removesuffix("-gguf").removesuffix("-instruct"))


def plan(
    sizes: ModelSizes,
    *,
    quant: Quant,
    context_tokens: int,
    rows: int,
    available_bytes: int,
    kernels: Kernels = "cpu_packed",
) -> MemoryPlan:
    """Plan `rows` conversations of `context_tokens` each in `available_bytes`."""
    weights = weight_bytes(sizes, quant, kernels)
    margin = (512 if kernels != "cuda" else 1024) * MIB + weights // 50
    fixed = weights + margin + _fixed_workspace(sizes, quant, kernels)
    per_token = sizes.kv_bytes_per_token * rows + _mask_bytes(1)
    free_tokens = max(0, available_bytes - fixed) // per_token
    longest = free_tokens // CONTEXT_STEP * CONTEXT_STEP
    slots = -(-context_tokens // CONTEXT_STEP) * CONTEXT_STEP
    return MemoryPlan(
        quant=quant,
        kernels=kernels,
        context_tokens=context_tokens,
        rows=rows,
        weights=weights,
        kv=sizes.kv_bytes_per_token * slots * rows,
        workspace=_fixed_workspace(sizes, quant, kernels) + _mask_bytes(slots),
        margin=margin,
        available=available_bytes,
        longest_context=min(longest, sizes.context_tokens),
    )


def plan_within(
    sizes: ModelSizes,
    *,
    quant: Quant,
    context_tokens: int | None,
    least_rows: int,
    available_bytes: int,
    kernels: Kernels,
) -> MemoryPlan:
    """The plan that gives most: `DEFAULT_ROWS` rows or as many as fit, at least `least_rows`; a
    context of None is the default one, shortened to what fits beside the least rows."""
    asked = context_tokens or min(sizes.context_tokens, DEFAULT_CONTEXT_TOKENS)

    def made(rows: int, context: int) -> MemoryPlan:
        return plan(
            sizes,
            quant=quant,
            context_tokens=context,
            rows=rows,
            available_bytes=available_bytes,
            kernels=kernels,
        )

    most = max(least_rows, DEFAULT_ROWS)
    plans = [made(rows, asked) for rows in range(most, least_rows - 1, -1)]
    best = next((one for one in plans if one.fits), plans[-1])
    if best.fits or context_tokens is not None or best.longest_context < LEAST_CONTEXT_TOKENS:
        return best
    return made(least_rows, best.longest_context)


def weight_bytes(sizes: ModelSizes, quant: Quant, kernels: Kernels = "cpu_packed") -> int:
    """Bytes of all weights once loaded: body and LM head quantized, the embedding table in bf16.
    The head is held beside the table even where the checkpoint ties them.

    Norms and biases are counted with the body; they are under a thousandth of it.
    """
    table = sizes.vocab * sizes.hidden
    body = sizes.parameters - table * (1 if sizes.tied_head else 2)
    if quant == "none":
        return (body + 2 * table) * _BF16
    if quant == "int8":
        return body + table + _matrix_rows(sizes) * _BF16 + table * _BF16
    # The packed CPU kernel keeps its block scales in bf16, every other path in fp32.
    absmax = _BF16 if kernels == "cpu_packed" else _FP32
    return _nf4_bytes(body, absmax) + _nf4_bytes(table, absmax) + table * _BF16


def available_host_bytes() -> int:
    """Memory this process may still take."""
    return free_bytes()


def gib(amount: int) -> str:
    """`amount` bytes as text, in MiB below one GiB."""
    return f"{amount / GIB:.2f} GiB" if amount >= GIB else f"{amount / MIB:.0f} MiB"


def _nf4_bytes(parameters: int, absmax: int) -> int:
    return -(-parameters // 2) + -(-parameters // _ABSMAX_BLOCK) * absmax


def _matrix_rows(sizes: ModelSizes) -> int:
    """Output rows of all quantized matrices: one int8 scale each."""
    attention = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim + sizes.hidden
    return sizes.layers * (attention + 2 * sizes.feed_forward + sizes.hidden) + sizes.vocab


def _fixed_workspace(sizes: ModelSizes, quant: Quant, kernels: Kernels) -> int:
    """Logits and laws of the widest verify pass, a prefill chunk, and dequantized copies."""
    logits = (MAX_DRAFT_TOKENS + 1) * sizes.vocab * _FP32 * _LAW_COPIES
    attention = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    per_token = 4 * sizes.hidden + 3 * sizes.feed_forward + attention
    scratch = 0
    if quant == "nf4" and kernels != "cpu_packed":
        # Without the packed kernel each call (on CUDA: each wide call) makes a bf16 copy of one
        # matrix: the fused gate and up, or the head where that is larger.
        head = sizes.vocab if kernels == "cpu_dequant" else 0
        scratch = max(2 * sizes.feed_forward, head) * sizes.hidden * _BF16
    return logits + PREFILL_TOKENS * per_token * _BF16 + scratch


def _mask_bytes(context_tokens: int) -> int:
    """The additive attention mask of one prefill chunk."""
    return PREFILL_TOKENS * context_tokens * _FP32


def _refusal(made: MemoryPlan, name: str) -> MemoryLimitError:
    weights = f"{gib(made.weights)} in {'bf16' if made.quant == 'none' else made.quant}"
    message = (
        f"{name} needs {gib(made.total)} (weights {weights}, "
        f"KV {gib(made.kv)} for {made.rows} × {made.context_tokens:,} tokens, "
        f"workspace {gib(made.workspace)}, margin {gib(made.margin)}); "
        f"{gib(made.available)} are available"
    )
    remedies = []
    if made.longest_context >= CONTEXT_STEP:
        remedies.append(f"ask for a shorter context: --context {made.longest_context} fits")
    if made.quant != "nf4":
        remedies.append("keep the weights in four bits: --quant nf4")
    if not remedies:
        remedies.append("take a smaller model or free memory: no context fits beside these weights")
    hint = "; or ".join(remedies)
    return MemoryLimitError("memory_short", message, f"{hint[0].upper()}{hint[1:]}.")
