"""A GGUF file as a checkpoint: its names, its config and its layouts turned into transformers'.

llama.cpp reorders rows and shifts norms for its own kernels; `_ARCHITECTURES` says where, and
`tensor` undoes it. The file's parts are read by `gguf_file.py`, its tokenizer is rebuilt by
`gguf_tokenizer.py`.

Invariant: what leaves here is what the checkpoint held before its conversion to GGUF, up to the
rounding of its block format.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from engine.checkpoint import digest_of
from engine.gguf_file import read_gguf
from engine.gguf_tokenizer import end_ids, write_gguf_tokenizer
from engine.protocol import ModelError
from engine.rotary import FREQUENCY_FACTORS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor


class _Layout(Struct, frozen=True, kw_only=True):
    """What llama.cpp changes in the tensors of one architecture."""

    pairs: bool = False
    """Rows of q and k are reordered so that the numbers of a rotary pair are neighbours."""
    norm_plus_one: bool = False
    """Norm weights are stored with the 1 that the family adds at run time."""
    layer_names: Mapping[str, str] = {}


_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"} | {
    "output": "lm_head"
}

_ARCHITECTURES: Mapping[str, _Layout] = {
    "llama": _Layout(pairs=True),
    "qwen2": _Layout(),
    "qwen3": _Layout(),
    "granite": _Layout(pairs=True),
    "starcoder2": _Layout(layer_names={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}),
    "gemma": _Layout(norm_plus_one=True),
}
"""By `general.architecture`, which for these equals transformers' `model_type`."""

_FREQUENCIES = "rope_freqs.weight"

_CONFIG_KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "norm_epsilon",
    "attention.sliding_window": "sliding_window",
    "expert_count": "num_experts",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
}


class GgufCheckpoint:
    """One `.gguf` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = read_gguf(path)
        name = str(self._file.metadata.get("general.architecture"))
        if name not in _ARCHITECTURES:
            raise ModelError(
                "unknown_architecture",
                f"'{path}' is a GGUF of the architecture {name!r}",
                f"Supported are: {', '.join(sorted(_ARCHITECTURES))}.",
            )
        self._architecture, self._layout = name, _ARCHITECTURES[name]

    @cached_property
    def digest(self) -> str:
        """See `Checkpoint.digest`."""
        return digest_of(self.path)

    @cached_property
    def config(self) -> dict[str, Any]:
        """See `Checkpoint.config`; sizes come from the metadata, the vocabulary from the table."""
        metadata, prefix = self._file.metadata, f"{self._architecture}."
        embedding = self._file.tensors.get("token_embd.weight")
        config: dict[str, Any] = {
            target: metadata[prefix + key]
            for key, target in _CONFIG_KEYS.items()
            if prefix + key in metadata
        }
        config |= {
            "model_type": self._architecture,
            "vocab_size": embedding.shape[0] if embedding else None,
            "tie_word_embeddings": "output.weight" not in self._file.tensors,
            "rope_parameters": self._rope_parameters(),
            "eos_token_id": end_ids(metadata),
        }
        config.setdefault("sliding_window", None)
        if _FREQUENCIES in self._file.tensors:
            config[FREQUENCY_FACTORS] = self._file.read(_FREQUENCIES).float().tolist()
        return config

    @cached_property
    def _stored(self) -> dict[str, str]:
        """transformers' name → the file's name, of every tensor but the frequency factors."""
        inner = {**_LAYER_NAMES, **self._layout.layer_names}
        return {
            _transformers_name(name, inner): name
            for name in self._file.tensors
            if name != _FREQUENCIES
        }

    def names(self) -> frozenset[str]:
        """See `Checkpoint.names`. A tensor of an unknown name keeps it."""
        return frozenset(self._stored)

    def tensor(self, name: str) -> Tensor:
        """See `Checkpoint.tensor`."""
        value = self._file.read(self._stored[name])
        if self._layout.norm_plus_one and name.endswith("norm.weight"):
            return value - 1
        if self._layout.pairs and ".q_proj." in name:
            return _halves(value, int(self.config["num_attention_heads"]))
        if self._layout.pairs and ".k_proj." in name:
            heads = self.config.get("num_key_value_heads") or self.config["num_attention_heads"]
            return _halves(value, int(heads))
        return value

    def write_tokenizer(self, folder: Path) -> None:
        """See `Checkpoint.write_tokenizer`."""
        write_gguf_tokenizer(self.path, self._file.metadata, folder)

    def _rope_parameters(self) -> dict[str, Any]:
        def key(name: str, default: Any = None) -> Any:
            return self._file.metadata.get(f"{self._architecture}.rope.{name}", default)

        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": key("freq_base", 10_000.0)}
        width, head = key("dimension_count"), self._head_dim()
        if width is not None and head is not None and width != head:
            rope["partial_rotary_factor"] = width / head
        kind = key("scaling.type", "linear" if key("scale_linear", 1.0) != 1.0 else "none")
        if kind == "linear":
            factor = key("scaling.factor", key("scale_linear", 1.0))
            return rope | {"rope_type": "linear", "factor": float(factor)}
        if kind == "yarn":
            return rope | _yarn(key)
        return rope if kind in ("none", "") else rope | {"rope_type": kind}

    def _head_dim(self) -> int | None:
        def key(name: str) -> Any:
            return self._file.metadata.get(f"{self._architecture}.{name}")

        width, hidden, heads = (
            key("attention.key_length"),
            key("embedding_length"),
            key("attention.head_count"),
        )
        if width is None and isinstance(hidden, int) and isinstance(heads, int) and heads:
            return hidden // heads
        return int(width) if width is not None else None


def _yarn(key: Callable[[str], Any]) -> dict[str, Any]:
    stated = {
        "factor": key("scaling.factor"),
        "original_max_position_embeddings": key("scaling.original_context_length"),
        "attention_factor": key("scaling.attn_factor"),
        "beta_fast": key("scaling.yarn_beta_fast"),
        "beta_slow": key("scaling.yarn_beta_slow"),
    }
    return {"rope_type": "yarn", **{k: v for k, v in stated.items() if v is not None}}


def _transformers_name(name: str, inner: Mapping[str, str]) -> str:
    base, _, kind = name.rpartition(".")
    if base in _OUTER_NAMES:
        return f"{_OUTER_NAMES[base]}.{kind}"
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
    if match and match[2] in inner:
        return f"model.layers.{match[1]}.{inner[match[2]]}.{kind}"
    return name


def _halves(
    value: Tensor,  # (heads · E, in) or (heads · E,)
    heads: int,
) -> Tensor:
    """Undo llama.cpp's row order: from neighbours (0, 1), (2, 3), … to halves (0, E/2), …"""
    split = value.view(heads, value.shape[0] // heads // 2, 2, *value.shape[1:])
    return split.transpose(1, 2).reshape(value.shape)
