"""From a path to a model in memory: look for its conversion, make it if there is none, read it.

A start with a conversion at hand imports neither transformers nor bitsandbytes and reads the
checkpoint's files only as far as telling them apart takes. Preflight and its questions cost time
and are asked before a conversion only; whether the memory suffices is asked always.

Invariant: the same files and settings give the same folder, and it is converted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import torch

from engine.checkpoint import checkpoint_path, digest_of, open_checkpoint
from engine.convert import Progress, convert, origin_of
from engine.converted import is_complete, read_architecture, read_weights
from engine.families import Architecture, architecture_of
from engine.host_memory import physical_cores
from engine.memory_plan import (
    DEFAULT_CONTEXT_TOKENS,
    Kernels,
    MemoryPlan,
    ModelSizes,
    available_host_bytes,
    gib,
    plan_within,
)
from engine.model import Model
from engine.out_of_memory import told
from engine.protocol import ModelError, RequestError
from engine.quant import cpu_library
from engine.text import TextCodec

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config import LoadSettings, Quant

_HINT = "Close other programs, start with a smaller --context, or take a smaller model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to run, and what is known about it."""

    model: Model
    architecture: Architecture
    text: TextCodec
    digest: str
    quant: Quant
    device: str
    context_tokens: int
    converted_now: bool
    folder: Path
    """Of the conversion; profiles and the like may be kept there too."""
    rows: int = 2
    """Conversations that can be kept at the same time."""
    notice: str = ""
    """What was done differently from what was asked, in a sentence; empty if nothing was."""


def load(path: Path, settings: LoadSettings, cache_folder: Path, progress: Progress) -> Loaded:
    """Load the model in a Hugging Face folder or a `.gguf` file.

    Stages told to `progress`: those of `convert` if it is needed, then "reading" (bytes). Raises
    `ModelError` for files that can't be used, `MemoryLimitError` if the model or the context asked
    for does not fit, `RequestError` for a context longer than the model's. A context that was not
    asked for is as long as fits; `notice` says when that is less than usual.
    """
    settings = msgspec.structs.replace(settings, device=_device(settings))
    torch.set_num_threads(settings.threads or physical_cores())
    digest = _digest(path)
    origin = origin_of(checkpoint_path(path), digest, settings)
    folder = cache_folder / origin.folder_name
    converted_now = not is_complete(folder)
    made = _convert(path, settings, folder, progress) if converted_now else None
    arch = read_architecture(folder)
    made = made or _plan(arch, settings)
    with told(f"while {gib(made.weights)} of weights were read", _HINT):
        model = _model(arch, folder, settings.device, made.context_tokens, progress)
    return Loaded(
        model=model,
        architecture=arch,
        text=TextCodec.from_folder(folder),
        digest=digest,
        quant=settings.quant,
        device=settings.device,
        context_tokens=made.context_tokens,
        converted_now=converted_now,
        folder=folder,
        rows=made.rows,
        notice=_notice(arch, settings, made),
    )


def _model(
    arch: Architecture, folder: Path, device: str, context_tokens: int, progress: Progress
) -> Model:
    tensors = read_weights(folder, lambda done, total: progress("reading", done, total))
    if device != "cpu":
        # Sizes among the parts are read on the host; everything else is multiplied over there.
        tensors = {
            name: tensor if tensor.dtype == torch.int64 else tensor.to(device)
            for name, tensor in tensors.items()
        }
    return Model(arch, tensors, context_tokens=context_tokens)


def _digest(path: Path) -> str:
    try:
        return digest_of(path)
    except ModelError:
        from engine.preflight import inspect

        inspect(path)  # has the sentence for what is wrong with the files
        raise


def _convert(path: Path, settings: LoadSettings, folder: Path, progress: Progress) -> MemoryPlan:
    """Preflight, memory, then the conversion; the first fault found ends it before any work."""
    from engine.preflight import inspect
    from engine.rotary import with_rotary

    inspect(path)
    checkpoint = open_checkpoint(path)
    arch = with_rotary(architecture_of(checkpoint.config), checkpoint.config)
    made = _plan(arch, settings)
    with told("while the model was converted", _HINT):
        convert(checkpoint, arch, settings, folder, progress)
    return made


def _device(settings: LoadSettings) -> str:
    if settings.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "no_cuda",
            "the device cuda was asked for, and torch sees no CUDA device",
            "Use --device cpu, or install the driver and torch's CUDA build.",
        )
    return settings.device


def _plan(arch: Architecture, settings: LoadSettings) -> MemoryPlan:
    """Rows and context that fit. Raises `MemoryLimitError` where what was asked for does not, and
    `RequestError` for a context that the model does not have."""
    asked = settings.context_tokens
    if asked is not None and asked > arch.context_tokens:
        raise RequestError(
            "bad_setting",
            f"a context of {asked} tokens is longer than the {arch.context_tokens} this model "
            "was trained for",
            f"Choose at most {arch.context_tokens}.",
        )
    kernels: Kernels = "cpu_packed" if cpu_library() is not None else "cpu_dequant"
    available = available_host_bytes
    if settings.device == "cuda":
        kernels, available = "cuda", lambda: int(torch.cuda.mem_get_info()[0])
    made = plan_within(
        _sizes(arch),
        quant=settings.quant,
        context_tokens=asked,
        least_rows=settings.rows,
        available_bytes=available(),
        kernels=kernels,
    )
    made.require_fits()
    return made


def _notice(arch: Architecture, settings: LoadSettings, made: MemoryPlan) -> str:
    usual = min(arch.context_tokens, DEFAULT_CONTEXT_TOKENS)
    if settings.context_tokens is not None or made.context_tokens >= usual:
        return ""
    return (
        f"The context is {made.context_tokens:,} tokens instead of {usual:,}: "
        f"{gib(made.available)} of memory are available."
    )


def _sizes(arch: Architecture) -> ModelSizes:
    heads = arch.heads + 2 * arch.kv_heads
    attention = (heads + arch.heads) * arch.head_dim * arch.hidden
    inner = arch.feed_forward * (3 if arch.gated else 2) * arch.hidden
    tables = arch.vocab * arch.hidden * (1 if arch.tied_head else 2)
    return ModelSizes(
        layers=arch.layers,
        hidden=arch.hidden,
        heads=arch.heads,
        kv_heads=arch.kv_heads,
        head_dim=arch.head_dim,
        feed_forward=arch.feed_forward,
        vocab=arch.vocab,
        context_tokens=arch.context_tokens,
        parameters=arch.layers * (attention + inner) + tables,
        tied_head=arch.tied_head,
    )
