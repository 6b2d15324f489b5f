"""The NF4 twin of a loaded model, for the route `low_precision`.

It is the checkpoint's own conversion to NF4, made once and kept like any other, read beside the
target with the embedding table shared. Under the wish `auto` it is left out where it does not fit;
whatever the reason, it is put down for whoever asks for the route.

Invariant: never more than a draft depends on it; a target without a twin is as good.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import torch

from engine.checkpoint import checkpoint_path
from engine.convert import Progress, origin_of
from engine.converted import is_complete, read_architecture
from engine.draft.low_precision import Twin
from engine.loading import Loaded, convert_files, plan_memory, read_model
from engine.out_of_memory import told
from engine.protocol import MemoryLimitError

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config import LoadSettings

logger = logging.getLogger(__name__)


def with_twin(
    loaded: Loaded,
    path: Path,
    settings: LoadSettings,
    cache_folder: Path,
    progress: Progress,
    kernels: Path | None = None,
) -> Loaded:
    """`loaded` with its twin as `settings.twin` wishes, or with the reason why it has none.

    The other arguments are those of `load`; the model's files at `path` are converted to NF4 if
    they were not yet. Raises `MemoryLimitError` only if the twin must be there.
    """
    if settings.twin == "never":
        return loaded
    if loaded.quant == "nf4":
        return replace(loaded, twin=_none("this model runs in NF4 already", "--quant int8"))
    if loaded.model.dtype != torch.bfloat16:
        return replace(loaded, twin=_none("this model computes in 32 bits", "--quant int8"))
    wanted = msgspec.structs.replace(
        settings,
        quant="nf4",
        device=loaded.device,
        context_tokens=loaded.context_tokens,
        rows=loaded.rows,
    )
    try:
        twin = _read(loaded, path, wanted, cache_folder, progress, kernels)
    except MemoryLimitError as error:
        if settings.twin == "always":
            raise
        logger.info("no NF4 twin: %s", error.message)
        return replace(loaded, twin=_none("its NF4 twin does not fit", "a smaller --context"))
    return replace(loaded, twin=twin)


def _read(
    loaded: Loaded,
    path: Path,
    settings: LoadSettings,
    cache_folder: Path,
    progress: Progress,
    kernels: Path | None,
) -> Twin:
    beside = msgspec.structs.replace(settings, twin="never")
    plan_memory(loaded.architecture, beside, "the NF4 twin beside its model")
    folder = cache_folder / origin_of(checkpoint_path(path), loaded.digest, settings).folder_name
    if not is_complete(folder):
        convert_files(path, settings, folder, progress)
    with told("while the NF4 twin was read", "Start with another --route."):
        shared = {"embed.weight": loaded.model.embedding}
        arch = read_architecture(folder)
        model, _ = read_model(arch, folder, settings, kernels, progress, shared)
    return Twin(model=model)


def _none(reason: str, instead: str) -> Twin:
    return Twin(
        model=None, reason=reason, remedy=f"Use --route auto, or start the model with {instead}."
    )
