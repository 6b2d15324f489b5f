"""A checkpoint becomes the tensors that `Model` takes: fused, quantized and written once.

    embed.weight, final_norm.weight [.bias], head.<part>
    layers.<i>.attn_norm.weight, .mlp_norm.weight [.bias], .q_norm.weight, .k_norm.weight
    layers.<i>.{qkv, o, up, down}.<part> [.bias]      (`up`: gate rows first where gated)

`<part>` is what `quant.pack` returns. A family's scales and offsets stay in `Architecture`, nothing
is folded into weights. It knows names and shapes, no file format.

Invariant: every tensor of the checkpoint is either used or known to be needless, and has the shape
its config promises; one matrix at a time is in memory.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from engine.converted import WEIGHTS, Origin, building, describe
from engine.protocol import ModelError
from engine.quant import cpu_library, pack
from engine.tensor_file import TensorWriter

if TYPE_CHECKING:
    from pathlib import Path

    from engine.checkpoint import Checkpoint
    from engine.config import LoadSettings
    from engine.families import Architecture

Progress = Callable[[str, int, int], None]
"""Called with (stage, done bytes, total bytes); what it raises ends the work."""

_FUSED = {
    "qkv": (
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        ("self_attn.qkv_proj",),
    ),
    "o": (("self_attn.o_proj",),),
    "up": (("mlp.gate_proj", "mlp.up_proj"), ("mlp.gate_up_proj",), ("mlp.c_fc",)),
    "down": (("mlp.down_proj",), ("mlp.c_proj",)),
}
"""Our matrix → the sets of checkpoint matrices it may be made of, stacked in this order."""

_NORMS = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
_QK_NORMS = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
_NEEDLESS = re.compile(r".*(rotary_emb\.inv_freq|masked_bias|attn\.bias)|lm_head\.weight")
"""Buffers of old transformers versions, and the copy of a tied head."""

_BYTES_PER_WEIGHT = {"nf4": 0.5 + 4 / 64, "int8": 1.0, "none": 2.0}
_TOKENIZER_BYTES = 32 << 20
_SLICE_VALUES = 8 << 20
_SLICE_ROWS = 64
"""Whole tiles and whole blocks of scales, whatever the width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One thing to write: checkpoint tensors, stacked, under a name of ours."""

    target: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Literal["dense", "matrix"] = "dense"

    @property
    def size(self) -> int:
        """Numbers in it."""
        return int(torch.Size(self.shape).numel())


def origin_of(path: Path, digest: str, settings: LoadSettings) -> Origin:
    """Identity of the conversion of `path`; `settings.device` is already decided."""
    packed = settings.device == "cpu" and cpu_library() is not None
    return Origin(
        source=str(path),
        digest=digest,
        quant=settings.quant,
        device=settings.device,
        layout="tiles" if packed and settings.quant == "nf4" else "rows",
    )


def convert(
    checkpoint: Checkpoint,
    arch: Architecture,
    settings: LoadSettings,
    target_folder: Path,
    progress: Progress,
) -> None:
    """Convert `checkpoint` into `target_folder`, all of it or nothing.

    Stages told to `progress`: "tokenizer", "weights" (bytes of the dense model in bf16), "saving".
    Raises `ModelError` for tensors that don't fit the config and for a full disk.
    """
    pieces = list(_pieces(arch, checkpoint.names(), settings))
    try:
        with building(target_folder) as folder:
            _require_space(pieces, settings, folder)
            progress("tokenizer", 0, 1)
            checkpoint.write_tokenizer(folder)
            progress("tokenizer", 1, 1)
            _write_weights(checkpoint, pieces, settings, folder / WEIGHTS, progress)
            progress("saving", 0, 1)
            describe(folder, arch, origin_of(checkpoint.path, checkpoint.digest, settings))
            progress("saving", 1, 1)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(pieces, settings, target_folder.parent) from error
        raise ModelError(
            "cache_unwritable",
            f"the converted model can't be written to '{target_folder.parent}': {error}",
            "Choose another cache folder or give yourself permission to write there.",
        ) from error


def _write_weights(
    checkpoint: Checkpoint,
    pieces: list[_Piece],
    settings: LoadSettings,
    file: Path,
    progress: Progress,
) -> None:
    dtype = torch.bfloat16
    done, total = 0, 2 * sum(piece.size for piece in pieces)
    with TensorWriter(file, header_room=1024 * (len(pieces) + 4)) as writer:
        for piece in pieces:
            progress("weights", done, total)
            value = _gather(checkpoint, piece)
            if piece.target == "embed.weight" and settings.quant == "none":
                dtype = torch.float32 if value.dtype == torch.float32 else torch.bfloat16
            if piece.kind == "dense":
                writer.add(piece.target, value.to(dtype))
            else:
                value = value.to(dtype) if settings.quant == "none" else value
                for part, tensor in _packed(value, settings).items():
                    writer.add(f"{piece.target}.{part}", tensor)
            del value
            done += 2 * piece.size
    progress("weights", total, total)


def _packed(value: Tensor, settings: LoadSettings) -> dict[str, Tensor]:
    """`pack` in slices of rows, joined: its intermediate results are ten times its argument."""
    rows = max(1, _SLICE_VALUES // value.shape[1] // _SLICE_ROWS) * _SLICE_ROWS
    if settings.quant == "none" or value.shape[0] <= rows:
        return pack(value, settings.quant, settings.device)
    slices = [
        pack(value[first : first + rows], settings.quant, settings.device)
        for first in range(0, value.shape[0], rows)
    ]
    joined = {}
    for part in slices[0]:
        found = [packed[part] for packed in slices]
        if part == "height":
            joined[part] = torch.stack(found).sum(dim=0)
        elif part == "shape":
            joined[part] = torch.tensor(value.shape, dtype=torch.int64)
        else:
            joined[part] = torch.cat(found, dim=int(part == "absmax" and "tiles" in slices[0]))
    return joined


def _gather(checkpoint: Checkpoint, piece: _Piece) -> Tensor:
    found = [checkpoint.tensor(name) for name in piece.sources]
    value = found[0] if len(found) == 1 else torch.cat(found)
    if value.shape != piece.shape:
        raise ModelError(
            "unexpected_tensors",
            f"{' + '.join(piece.sources)} has the shape {list(value.shape)} where the config asks "
            f"for {list(piece.shape)}",
            "Take config.json and the weights from the same revision of the model.",
        )
    return value


def _pieces(arch: Architecture, names: frozenset[str], settings: LoadSettings) -> Iterator[_Piece]:
    """Everything to write, the embeddings first; raises before anything is read."""
    made = [*_outer_pieces(arch, names, settings)]
    for index in range(arch.layers):
        made += _layer_pieces(arch, names, index)
    used = {name for piece in made for name in piece.sources}
    extra = sorted(name for name in names - used if not _NEEDLESS.fullmatch(name))
    missing = sorted(used - names)
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"has {extra[0]}"
        count = len(missing or extra)
        raise ModelError(
            "unexpected_tensors",
            f"the model {what} ({count} such tensors), which a {arch.family} model of "
            f"{arch.layers} layers {'needs' if missing else 'does not have'}",
            "Fetch the model again; a variant of the family can't be run.",
        )
    yield from made


def _outer_pieces(
    arch: Architecture, names: frozenset[str], settings: LoadSettings
) -> Iterator[_Piece]:
    table = (arch.vocab, arch.hidden)
    yield _Piece(target="embed.weight", sources=("model.embed_tokens.weight",), shape=table)
    yield from _norm(arch, "final_norm", "model.norm", names)
    if not arch.tied_head:
        yield _Piece(target="head", sources=("lm_head.weight",), shape=table, kind="matrix")
    elif settings.quant != "none":
        source = ("model.embed_tokens.weight",)
        yield _Piece(target="head", sources=source, shape=table, kind="matrix")


def _layer_pieces(arch: Architecture, names: frozenset[str], index: int) -> Iterator[_Piece]:
    here, there = f"layers.{index}", f"model.layers.{index}"
    for target, source in _NORMS.items():
        yield from _norm(arch, f"{here}.{target}", f"{there}.{source}", names)
    if arch.qk_norm:
        for target, source in _QK_NORMS.items():
            yield _Piece(
                target=f"{here}.{target}.weight",
                sources=(f"{there}.{source}.weight",),
                shape=(arch.head_dim,),
            )
    for target, shape in _shapes(arch).items():
        options = [tuple(f"{there}.{name}" for name in option) for option in _FUSED[target]]
        bases = next((o for o in options if f"{o[0]}.weight" in names), options[0])
        sources = tuple(f"{base}.weight" for base in bases)
        yield _Piece(target=f"{here}.{target}", sources=sources, shape=shape, kind="matrix")
        biases = tuple(f"{base}.bias" for base in bases)
        if not names.isdisjoint(biases):
            yield _Piece(target=f"{here}.{target}.bias", sources=biases, shape=shape[:1])


def _norm(arch: Architecture, target: str, source: str, names: frozenset[str]) -> Iterator[_Piece]:
    for kind in ("weight", "bias") if f"{source}.bias" in names else ("weight",):
        yield _Piece(target=f"{target}.{kind}", sources=(f"{source}.{kind}",), shape=(arch.hidden,))


def _shapes(arch: Architecture) -> dict[str, tuple[int, int]]:
    queries, keys = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    inner = arch.feed_forward * (2 if arch.gated else 1)
    return {
        "qkv": (queries + 2 * keys, arch.hidden),
        "o": (arch.hidden, queries),
        "up": (inner, arch.hidden),
        "down": (arch.hidden, arch.feed_forward),
    }


def _bytes_needed(pieces: list[_Piece], settings: LoadSettings) -> int:
    rates = {"dense": 2.0, "matrix": _BYTES_PER_WEIGHT[settings.quant]}
    return int(sum(piece.size * rates[piece.kind] for piece in pieces)) + _TOKENIZER_BYTES


def _require_space(pieces: list[_Piece], settings: LoadSettings, folder: Path) -> None:
    if shutil.disk_usage(folder).free < _bytes_needed(pieces, settings):
        raise _disk_full(pieces, settings, folder.parent)


def _disk_full(pieces: list[_Piece], settings: LoadSettings, folder: Path) -> ModelError:
    free = shutil.disk_usage(folder).free / 2**30
    needed = _bytes_needed(pieces, settings) / 2**30
    return ModelError(
        "disk_full",
        f"the converted model takes {needed:.2f} GiB, {free:.2f} GiB are free in '{folder}'",
        "Free space there, or choose another cache folder.",
    )
