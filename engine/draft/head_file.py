"""A trained exit head: what it is in memory, and the file that keeps it.

One safetensors file belongs to the weights of one model, named by their digest:

    jump.weight (D, 2D), jump.bias (D,)   the state before layer `jump` from that after layer
                                          `first` and the previous token's state before `jump`
    net.up (W, 2D), net.down (D, W)       optional: + down · silu(up · x)
    neurons.<layer> (n,) int32            optional, for each layer from `jump` on, and for the only
                                          one before: the neurons of its feed-forward block that
                                          drafts keep, all others pruned
    ids (m,) int32                        optional: token ids, the likeliest in drafts first
    metadata                              `HeadAbout`, every value as a string, and the format

The user's own file is taken before one that ships with the package. It knows nothing of how a head
is trained or run. Invariant: a head that loads fits the model it was asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional as F

from engine.config import Quant
from engine.draft.head_tensors import misfit, neurons_of, parted
from engine.families import Architecture
from engine.linear import Linear
from engine.nf4_tiles import BLOCK
from engine.protocol import EngineError, ModelError
from engine.quant import pack, unpack
from engine.tensor_file import TensorWriter, read_all, read_metadata

if TYPE_CHECKING:
    from engine.model import Model
    from engine.native.bindings import Native

FORMAT = "1"
SHIPPED = Path(__file__).parent.parent / "heads"
_NAME_DIGITS = 12
_HEADER_BYTES = 8192
_AGAIN = "Make it again: sspec-assist train-head."


class HeadAbout(Struct, frozen=True, kw_only=True):
    """What stands in the file beside the tensors."""

    model_digest: str
    """`weights_digest` of the model it was trained on."""
    first: int
    """Layers a draft runs before the jump."""
    jump: int
    """The layer the jump leads to; a draft runs it and all after it."""
    vocab: int
    """Drafts score so many of the first token ids, or of the file's own list of them: a multiple of
    32, or all of them."""
    agreement: tuple[float, ...]
    """Held-out share of drafted tokens that greedy decoding keeps when it kept those before, by
    position."""
    made_with: dict[str, int | float | str]
    """How it was trained, for a person."""
    stop_below: float | None = None
    """Drafting stops when the draft's own probability of all its tokens so far is below this."""

    @property
    def identity(self) -> str:
        """Tells this head from others for the same weights."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:_NAME_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A jump over the layers `about.first` … `about.jump` − 1."""

    about: HeadAbout
    direct: Linear  # (D, 2D)
    up: Linear | None  # (W, 2D)
    down: Linear | None  # (D, W)
    neurons: Mapping[int, Tensor] | None = None
    """Layer -> (n,) int64; None: drafts run their layers whole."""
    tail: Model | None = None
    """The model pruned to these neurons and ids, once there is a model."""
    front: Model | None = None
    """The same for the layers before the jump, None where they are whole."""
    ids: Tensor | None = None
    """(m,) int64; drafts score the first `about.vocab` of them. None: of all ids in their order."""

    def __call__(
        self,
        here: Tensor,  # (T, D), states after the first layers
        before: Tensor,  # (T, D), states before layer `jump` of the tokens before these
    ) -> Tensor:  # (T, D)
        """The states before layer `jump`."""
        x = torch.cat((here, before), dim=-1)
        landed = self.direct(x)
        if self.up is None or self.down is None:
            return landed
        return landed + self.down(F.silu(self.up(x)))


def head_of(
    about: HeadAbout,
    tensors: Mapping[str, Tensor],  # names as in the file, one device
    quant: Quant = "int8",
    native: Native | None = None,
) -> Head:
    """The head that these tensors stand for. Drafts need no particular rounding, so the matrices
    are packed small, by the C kernels' own kind with `native`: a bf16 jump takes as long as a
    layer."""
    at = tensors["jump.weight"].device.type
    whole = "net.down" not in tensors or tensors["net.down"].shape[1] % BLOCK == 0
    kind: Quant = "nf4" if native is not None and whole else quant

    def packed(name: str, bias: Tensor | None = None) -> Linear:
        return unpack(pack(tensors[name], kind, at), bias, native)

    deep = "net.up" in tensors
    neurons = neurons_of(tensors)
    return Head(
        about=about,
        direct=packed("jump.weight", tensors["jump.bias"]),
        up=packed("net.up") if deep else None,
        down=packed("net.down") if deep else None,
        neurons=neurons or None,
        ids=tensors["ids"].long() if "ids" in tensors else None,
    )


def heads_for(
    digest: str, user_folder: Path | None, *, shipped: Path = SHIPPED
) -> tuple[Path, ...]:
    """The files of heads for the weights of this digest: the user's, then the package's."""
    folders = [shipped] if user_folder is None else [user_folder, shipped]
    files = (file_in(folder, digest) for folder in folders)
    return tuple(file for file in files if file.is_file())


def file_in(folder: Path, digest: str) -> Path:
    """Where a folder keeps the head for the weights of this digest."""
    return folder / f"{digest[:_NAME_DIGITS]}.safetensors"


def save_head(path: Path, about: HeadAbout, tensors: Mapping[str, Tensor]) -> None:
    """Write a head (tensors of any device, kept as bf16); the file appears whole or not at all.
    Raises `EngineError` where it can't be written."""
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(partial, about, tensors)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # what was begun takes room where there may be none
            partial.unlink(missing_ok=True)
        raise EngineError(
            "head_not_kept",
            f"the exit head can't be written to '{path}': {error.strerror or error}",
            "Make room there, or let SSPEC_ASSIST_CACHE name another folder, and start again.",
        ) from error


def _write(path: Path, about: HeadAbout, tensors: Mapping[str, Tensor]) -> None:
    told = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in msgspec.to_builtins(about).items()
    }
    metadata = told | {"format": FORMAT}
    with TensorWriter(path, header_room=_HEADER_BYTES, metadata=metadata) as writer:
        for name, tensor in tensors.items():
            dtype = torch.bfloat16 if tensor.is_floating_point() else tensor.dtype
            writer.add(name, tensor.detach().to("cpu", dtype))


def read_about(path: Path) -> HeadAbout:
    """What a file says of itself. Raises `ModelError`."""
    told = read_metadata(path)
    written = told.pop("format", None)
    if written != FORMAT:
        raise ModelError(
            "head_format",
            f"the exit head '{path}' has the format {written or 'unknown'}, this version reads "
            f"{FORMAT}",
            _AGAIN,
        )
    try:
        values = {
            name: value if name == "model_digest" else msgspec.json.decode(value)
            for name, value in told.items()
        }
        return msgspec.convert(values, HeadAbout)
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from error


def load_head(path: Path, digest: str, model: Model) -> Head:
    """Read and pack the head for the weights of this digest, and prune the model for it. Raises
    `ModelError` for a file that is damaged, of another format, of another model or of another
    shape."""
    about, tensors = read_head(path, digest, model.architecture)
    there = {name: tensor.to(model.device) for name, tensor in tensors.items()}
    head = head_of(about, there, native=model.native)
    return joined(head, model)


def joined(head: Head, model: Model) -> Head:
    """The head with the model that its drafts end in."""
    if head.neurons is None and head.ids is None:
        return head
    front, tail = parted(head.neurons or {}, head.about.jump)
    ids = None if head.ids is None else head.ids[: head.about.vocab]
    return replace(
        head,
        front=model.pruned(front) if front else None,
        tail=model.pruned(tail, ids) if tail or ids is not None else None,
    )


def read_head(path: Path, digest: str, arch: Architecture) -> tuple[HeadAbout, dict[str, Tensor]]:
    """The same as it stands in the file, on the CPU. Raises as `load_head` does."""
    try:
        about = read_about(path)
        if about.model_digest != digest:
            raise ModelError(
                "head_other_model",
                f"the exit head '{path}' belongs to the weights {about.model_digest[:12]}…, "
                f"these are {digest[:12]}…",
                _AGAIN,
            )
        tensors = read_all(path, lambda *_: None)
    except ModelError as error:
        raise error if error.code != "damaged_weights" else _damaged(path, error.message) from error
    wrong = misfit(about, tensors, arch)
    if wrong:
        raise ModelError("head_shape", f"the exit head '{path}' does not fit: {wrong}", _AGAIN)
    return about, tensors


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError("head_damaged", f"the exit head '{path}' can't be read: {what}", _AGAIN)
