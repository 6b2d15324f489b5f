"""A model of a real one's size with random weights: what passes cost before anybody has the files.

Every layer has memory of its own, since what is timed is how fast weights come out of it; only the
numbers are the same in all, quantized once and copied. A draft's acceptance depends on real weights
and is not looked at. Invariant: memory is checked before anything is allocated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from msgspec import Struct
from torch import Tensor

from engine.cache import KVCache, Span
from engine.config import LoadSettings, Quant
from engine.families import Architecture
from engine.fastpath import FastModel, runs_fast
from engine.memory_plan import (
    PRESETS,
    Kernels,
    ModelSizes,
    available_host_bytes,
    plan,
    preset_of,
)
from engine.model import Model
from engine.native.build import native_kernels
from engine.protocol import RequestError
from engine.quant import cpu_library, pack

CONTEXTS = (128, 1024, 4096)
ROWS = (1, 2, 3, 4, 5, 6, 8)
TURNS = 5
BUDGET_S = 30.0
"""At each context length measuring stops between two turns after this long."""
PATHS = ((1, 2), (1, 6), (2, 6))
"""(first, last) layers that a draft runs."""
_STD = 0.02


class ShapeCosts(Struct, frozen=True, kw_only=True):
    """What passes cost at one context length."""

    context_tokens: int
    plain_ms: float
    """One row, all layers, head and argmax: the fastest of `TURNS`."""
    pass_ratio: dict[int, float]
    """Rows w → r(w)."""
    draft_ratio: dict[str, float]
    """`first+last` layers → c, the head included."""


class ShapeReport(Struct, frozen=True, kw_only=True):
    """What a size needs and how fast it is here."""

    name: str
    quant: Quant
    device: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    costs: list[ShapeCosts]


def sizes_of(name: str) -> ModelSizes:
    """The sizes behind a shape's name. Raises `RequestError` for one that is not known."""
    spelled = name.lower()
    found = preset_of(spelled) or preset_of(spelled.replace("qwen2.5-", "qwen2.5-coder-"))
    if found is None:
        raise RequestError(
            "no_such_shape", f"the sizes of {name} are not known", f"Known: {', '.join(PRESETS)}."
        )
    return found


def architecture_for(sizes: ModelSizes) -> Architecture:
    """The traits of Qwen2.5, which the sizes are of, without its rotary table's exact base."""
    half = sizes.head_dim // 2
    return Architecture(
        family="qwen2",
        layers=sizes.layers,
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        feed_forward=sizes.feed_forward,
        vocab=sizes.vocab,
        context_tokens=sizes.context_tokens,
        inv_freq=tuple(1e6 ** (-i / half) for i in range(half)),
    )


def measure_shape(
    name: str,
    sizes: ModelSizes,
    settings: LoadSettings,
    kernels: Path | None,
    progress: Callable[[str], None],
) -> ShapeReport:
    """Build random weights and time passes over them; `settings.device` is already decided, the
    compiled C kernels are kept in `kernels`. Raises `MemoryLimitError` if they don't fit."""
    quant, device = settings.quant, settings.device
    contexts = [context for context in CONTEXTS if context + max(ROWS) <= sizes.context_tokens]
    room = contexts[-1] + 64
    _require_room(name, sizes, quant, device, room)
    arch = architecture_for(sizes)
    tensors = random_tensors(arch, quant, device, progress)
    model = _model(arch, tensors, room, kernels if settings.native else None)
    cache = model.new_cache(1)
    costs = []
    for context in contexts:
        progress(f"timing passes at {context:,} tokens")
        costs.append(_costs_at(model, cache, context))
    return ShapeReport(
        name=name,
        quant=quant,
        device=device,
        parameters=sizes.parameters,
        weight_bytes=model.weight_bytes,
        kv_bytes_per_token=sizes.kv_bytes_per_token,
        costs=costs,
    )


def _model(
    arch: Architecture, tensors: dict[str, Tensor], context_tokens: int, kernels: Path | None
) -> Model:
    """The model as loading makes it of such tensors."""
    native = None if kernels is None else native_kernels(kernels).native
    if native is not None and runs_fast(arch, tensors):
        return FastModel(arch, tensors, context_tokens=context_tokens, native=native)
    return Model(arch, tensors, context_tokens=context_tokens)


def random_tensors(
    arch: Architecture, quant: Quant, device: str, progress: Callable[[str], None]
) -> dict[str, Tensor]:
    """Weights under the names that conversion gives them; each layer's in memory of its own."""
    random = torch.Generator().manual_seed(0)

    def table(height: int, width: int) -> Tensor:
        return torch.empty(height, width, dtype=torch.bfloat16).normal_(std=_STD, generator=random)

    def packed(height: int, width: int) -> dict[str, Tensor]:
        return pack(table(height, width), quant, device)

    fused = (arch.heads + 2 * arch.kv_heads) * arch.head_dim
    layer: dict[str, Tensor] = {
        "attn_norm.weight": torch.ones(arch.hidden, dtype=torch.bfloat16),
        "mlp_norm.weight": torch.ones(arch.hidden, dtype=torch.bfloat16),
        "qkv.bias": torch.zeros(fused, dtype=torch.bfloat16),
    }
    shapes = {
        "qkv": (fused, arch.hidden),
        "o": (arch.hidden, arch.heads * arch.head_dim),
        "up": (2 * arch.feed_forward, arch.hidden),
        "down": (arch.hidden, arch.feed_forward),
    }
    progress("quantizing a random layer")
    for matrix, (height, width) in shapes.items():
        layer |= {f"{matrix}.{part}": t for part, t in packed(height, width).items()}
    progress("quantizing a random head")
    tensors = {f"head.{part}": t for part, t in packed(arch.vocab, arch.hidden).items()}
    tensors["embed.weight"] = table(arch.vocab, arch.hidden)
    tensors["final_norm.weight"] = layer["attn_norm.weight"].clone()
    progress(f"laying out {arch.layers} layers")
    for i in range(arch.layers):
        tensors |= {f"layers.{i}.{name}": tensor.clone() for name, tensor in layer.items()}
    if device == "cpu":
        return tensors
    return {n: t if t.dtype == torch.int64 else t.to(device) for n, t in tensors.items()}


def _require_room(name: str, sizes: ModelSizes, quant: Quant, device: str, context: int) -> None:
    kernels: Kernels = "cpu_packed" if cpu_library() is not None else "cpu_dequant"
    available = available_host_bytes()
    if device == "cuda":
        kernels, available = "cuda", int(torch.cuda.mem_get_info()[0])
    plan(
        sizes,
        quant=quant,
        context_tokens=context,
        rows=1,
        available_bytes=available,
        kernels=kernels,
    ).require_fits(name)


@torch.inference_mode()
def _costs_at(model: Model, cache: KVCache, context: int) -> ShapeCosts:
    for block in (*cache.keys, *cache.values):
        block[0, :, :context].normal_()  # untouched pages would flatter attention
    cache.lengths[0] = context
    layers = model.architecture.layers
    arms: dict[str, Callable[[], None]] = {
        f"{rows}": partial(_pass, model, cache, context, rows, layers, 0) for rows in ROWS
    }
    for first, last in PATHS:
        arms[f"{first}+{last}"] = partial(_pass, model, cache, context, 1, first, last)
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    ends = time.perf_counter() + BUDGET_S
    for turn in range(TURNS + 1):
        if turn > 1 and time.perf_counter() > ends:
            break
        for arm, run in arms.items():
            began = time.perf_counter()
            run()
            if turn:  # the first turn warms up
                times[arm].append((time.perf_counter() - began) * 1e3)
    unit = min(times["1"])
    return ShapeCosts(
        context_tokens=context,
        plain_ms=unit,
        pass_ratio={rows: min(times[f"{rows}"]) / unit for rows in ROWS},
        draft_ratio={arm: min(seen) / unit for arm, seen in times.items() if "+" in arm},
    )


def _pass(model: Model, cache: KVCache, context: int, rows: int, first: int, last: int) -> None:
    """The first and the last layers, and the head."""
    span, layers = Span(row=0, start=context, count=rows), model.architecture.layers
    hidden = model.embed(torch.zeros(rows, dtype=torch.int64, device=model.device))
    hidden = model.run_layers(hidden, [span], cache, first=0, stop=first)
    if last:
        hidden = model.run_layers(hidden, [span], cache, first=layers - last, stop=layers)
    model.logits(hidden).argmax(dim=-1).tolist()
