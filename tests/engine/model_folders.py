"""Folders and files that look like models, a few kilobytes each, written for the tests.

`sound_folder` and `sound_gguf` write ones that pass the preflight; a test then spoils exactly one
thing. The weights are zeros: nothing here is ever loaded, only described.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.preflight import inspect
from engine.protocol import ModelError

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, VOCAB = 2, 8, 2, 1, 4, 16, 32

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 987654321\n"

CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": FEED_FORWARD,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}

Shapes = Mapping[str, tuple[int, ...]]
Spoil = Callable[[Path], Path]
"""Takes an empty folder, builds something in it and gives its path."""


def tensor_shapes(*, head: bool = True) -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor of the model that `CONFIG` describes."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        shapes |= {
            f"{block}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{block}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{block}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{block}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{block}.mlp.gate_proj.weight": (FEED_FORWARD, HIDDEN),
            f"{block}.mlp.up_proj.weight": (FEED_FORWARD, HIDDEN),
            f"{block}.mlp.down_proj.weight": (HIDDEN, FEED_FORWARD),
            f"{block}.input_layernorm.weight": (HIDDEN,),
            f"{block}.post_attention_layernorm.weight": (HIDDEN,),
        }
    shapes["model.norm.weight"] = (HIDDEN,)
    if head:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    return shapes


def write_json(path: Path, value: object) -> None:
    """`value` as JSON."""
    path.write_text(json.dumps(value))


def write_shard(path: Path, shapes: Shapes) -> None:
    """A sound safetensors file of bf16 zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def sound_folder(path: Path, **config: Any) -> Path:
    """A checkpoint in one shard, with tokenizer and chat template; `config` overrides `CONFIG`."""
    path.mkdir(parents=True)
    write_json(path / "config.json", {**CONFIG, **config})
    write_shard(path / "model.safetensors", tensor_shapes())
    write_json(path / "tokenizer.json", {"version": "1.0"})
    write_json(path / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    return path


def sharded_folder(path: Path) -> Path:
    """The same checkpoint in two shards under an index."""
    sound_folder(path)
    (path / "model.safetensors").unlink()
    weight_map = {}
    shapes = tensor_shapes()
    for part in (1, 2):
        name = f"model-0000{part}-of-00002.safetensors"
        mine = {key: shapes[key] for at, key in enumerate(shapes) if at % 2 == part - 1}
        write_shard(path / name, mine)
        weight_map |= dict.fromkeys(mine, name)
    write_json(path / "model.safetensors.index.json", {"weight_map": weight_map})
    return path


def without(name: str) -> Spoil:
    def build(tmp: Path) -> Path:
        path = sound_folder(tmp / "m")
        (path / name).unlink()
        return path

    return build


def holding(name: str, content: bytes) -> Spoil:
    """A sound folder in which file `name` has `content` instead."""

    def build(tmp: Path) -> Path:
        path = sound_folder(tmp / "m")
        (path / name).write_bytes(content)
        return path

    return build


def only(*names: str, content: bytes = b"x") -> Spoil:
    """A folder of nothing but these files."""

    def build(tmp: Path) -> Path:
        (tmp / "m").mkdir()
        for name in names:
            (tmp / "m" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp / "m" / name).write_bytes(content)
        return tmp / "m"

    return build


def renamed(old: str, new: str) -> Spoil:
    def build(tmp: Path) -> Path:
        path = sound_folder(tmp / "m")
        (path / old).rename(path / new)
        return path

    return build


def bytes_of(name: str, content: bytes) -> Spoil:
    def build(tmp: Path) -> Path:
        (tmp / name).write_bytes(content)
        return tmp / name

    return build


GGUF_VALUES: Mapping[str, Any] = {
    "general.architecture": "qwen2",
    "general.type": "model",
    "qwen2.block_count": LAYERS,
    "qwen2.context_length": 512,
    "qwen2.embedding_length": HIDDEN,
    "qwen2.feed_forward_length": FEED_FORWARD,
    "qwen2.attention.head_count": HEADS,
    "qwen2.attention.head_count_kv": KV_HEADS,
    "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
    "tokenizer.ggml.tokens": ["<a>", "b", "ü"],
    "tokenizer.ggml.token_type": [1, 1, 3],
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages }}",
}

GGUF_SHAPES: Shapes = {"token_embd.weight": (HIDDEN, VOCAB), "output.weight": (HIDDEN, VOCAB)}


def sound_gguf(
    path: Path,
    *,
    values: Mapping[str, Any] = GGUF_VALUES,
    shapes: Shapes = GGUF_SHAPES,
    version: int = 3,
    tensor_type: int = 1,
) -> Path:
    """A GGUF with the given metadata and zero tensors in two bytes a value (type 1 is F16)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = b"GGUF" + struct.pack("<IQQ", version, len(shapes), len(values))
    head += b"".join(_text(key) + _typed(value) for key, value in values.items())
    at = 0
    for name, shape in shapes.items():
        head += _text(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", tensor_type, at)
        size = 2
        for dimension in shape:
            size *= dimension
        at += -(-size // 32) * 32
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(at))
    return path


def with_values(**changes: Any) -> dict[str, Any]:
    """`GGUF_VALUES` with `__` for `.` in the names; a value of None removes the entry."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return {key: value for key, value in {**GGUF_VALUES, **named}.items() if value is not None}


def refusal(path: Path) -> ModelError | None:
    """The error that `path` is refused with; anything but a `ModelError` passes through."""
    try:
        inspect(path)
    except ModelError as refused:
        return refused
    return None


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(value: Any) -> bytes:
    """A metadata value, its type in front: bool, u32, f32, string or an array of one of them."""
    if isinstance(value, list):
        code, size = struct.unpack("<I", _typed(value[0])[:4])[0], len(value)
        body = b"".join(_typed(item)[4:] for item in value)
        return struct.pack("<IIQ", 9, code, size) + body
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + _text(value)
