"""From a path to a model in memory: look for its conversion, make it if there is none, read it.

A start with a conversion at hand imports neither transformers nor bitsandbytes and reads the
checkpoint's files only as far as telling them apart takes. Preflight and its questions cost time
and are asked before a conversion only; whether the memory suffices is asked always.

Invariant: the same files and settings give the same folder, and it is converted once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import torch

from engine.checkpoint import checkpoint_path, digest_of, open_checkpoint
from engine.convert import Progress, convert, origin_of
from engine.converted import is_complete, read_architecture, read_weights, weights_digest
from engine.draft.head_file import Head, heads_for, load_head
from engine.draft.low_precision import NO_TWIN, Twin
from engine.families import Architecture, architecture_of
from engine.fastpath import FastModel, runs_fast
from engine.host_memory import physical_cores
from engine.memory_plan import (
    DEFAULT_CONTEXT_TOKENS,
    Kernels,
    MemoryPlan,
    ModelSizes,
    available_host_bytes,
    gib,
    plan_within,
    weight_bytes,
)
from engine.model import Model
from engine.native.build import Built, native_kernels
from engine.out_of_memory import told
from engine.protocol import ModelError, RequestError
from engine.quant import cpu_library
from engine.text import TextCodec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

    from engine.config import LoadSettings, Quant

logger = logging.getLogger(__name__)

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
    head: Head | None = None
    """Trained for these weights, if there is one."""
    twin: Twin = NO_TWIN
    """The same weights in NF4, to draft with."""
    content: str = ""
    """Digest of the source's content alone: of every copy of it, on whatever machine."""
    eager: str = ""
    """Why the C kernels don't run this model; empty if they do."""

    @property
    def weights_digest(self) -> str:
        """What stands for the weights: heads and profiles belong to it."""
        return weights_digest(self.content or self.digest, self.quant)


def load(
    path: Path,
    settings: LoadSettings,
    cache_folder: Path,
    progress: Progress,
    *,
    heads: Path | None = None,
    kernels: Path | None = None,
) -> Loaded:
    """Load the model in a Hugging Face folder or a `.gguf` file, and the exit head for it from the
    folder `heads` or the package. A head that can't be used is left out; `notice` says why.
    `kernels` is where compiled C kernels are kept; without it torch's operators run the model.

    Stages told to `progress`: those of `convert` if it is needed, "compiling kernels" if they are
    not kept yet, then "reading" (bytes). Raises
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
    made = convert_files(path, settings, folder, progress) if converted_now else None
    arch = read_architecture(folder)
    made = made or plan_memory(arch, settings)
    with told(f"while {gib(made.weights)} of weights were read", _HINT):
        fitting = msgspec.structs.replace(settings, context_tokens=made.context_tokens)
        model, eager = read_model(arch, folder, fitting, kernels, progress)
    content = digest_of(path, anywhere=True)
    with told("while the exit head was read", _HINT):
        head, refused = _head(model, weights_digest(content, settings.quant), heads)
    return Loaded(
        model=model,
        architecture=arch,
        text=TextCodec.from_folder(folder),
        digest=digest,
        content=content,
        quant=settings.quant,
        device=settings.device,
        context_tokens=made.context_tokens,
        converted_now=converted_now,
        folder=folder,
        rows=made.rows,
        notice=" ".join(filter(None, (_notice(arch, settings, made), refused))),
        head=head,
        eager=eager,
    )


def read_model(
    arch: Architecture,
    folder: Path,
    settings: LoadSettings,
    kernels: Path | None,
    progress: Progress,
    shared: Mapping[str, Tensor] | None = None,
) -> tuple[Model, str]:
    """The model of a complete conversion, and why it runs without the C kernels if it does.

    `settings` say the context and the device; tensors in `shared` belong to another model too."""
    built = _kernels(settings, kernels, progress)
    tensors = read_weights(folder, partial(progress, "reading"), shared=shared)
    context_tokens = settings.context_tokens or arch.context_tokens
    if settings.device != "cpu":
        # Sizes among the parts are read on the host; everything else is multiplied over there.
        tensors = {
            name: tensor if tensor.dtype == torch.int64 else tensor.to(settings.device)
            for name, tensor in tensors.items()
        }
    if built.native is not None and runs_fast(arch, tensors):
        return FastModel(arch, tensors, context_tokens=context_tokens, native=built.native), ""
    why = built.reason or "the kernels don't cover a model of this kind"
    return Model(arch, tensors, context_tokens=context_tokens), why


def _kernels(settings: LoadSettings, folder: Path | None, progress: Progress) -> Built:
    if not settings.native or folder is None:
        return Built(native=None, reason="the kernels are switched off")
    if settings.device != "cpu" or settings.quant != "nf4":
        return Built(native=None, reason="the kernels are for NF4 weights on a CPU")
    built = native_kernels(folder, lambda: progress("compiling kernels", 0, 0))
    if built.reason:
        logger.info("no C kernels: %s", built.reason)
    return built


def _head(model: Model, digest: str, folder: Path | None) -> tuple[Head | None, str]:
    """The first head for these weights that can be read, and what is wrong with those before."""
    wrong = ""
    for file in heads_for(digest, folder):
        try:
            return load_head(file, digest, model), wrong
        except ModelError as error:
            logger.warning("%s", error)
            wrong = f"{error}"
    return None, wrong


def _digest(path: Path) -> str:
    try:
        return digest_of(path)
    except ModelError:
        from engine.preflight import inspect

        inspect(path)  # has the sentence for what is wrong with the files
        raise


def convert_files(
    path: Path, settings: LoadSettings, folder: Path, progress: Progress
) -> MemoryPlan:
    """Preflight, memory, then the conversion; the first fault found ends it before any work."""
    from engine.preflight import inspect
    from engine.rotary import with_rotary

    inspect(path)
    checkpoint = open_checkpoint(path)
    arch = with_rotary(architecture_of(checkpoint.config), checkpoint.config)
    made = plan_memory(arch, settings)
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


def plan_memory(arch: Architecture, settings: LoadSettings, name: str = "the model") -> MemoryPlan:
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
        available_bytes=available() - (_twin_bytes(arch) if settings.twin == "always" else 0),
        kernels=kernels,
    )
    made.require_fits(name)
    return made


def _twin_bytes(arch: Architecture) -> int:
    return weight_bytes(_sizes(arch), "nf4") - arch.vocab * arch.hidden * 2


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
