"""Every way in which a model's files can be wrong has its own code, sentence and remedy.

Each case starts from a sound folder or GGUF and spoils one thing, so a check that fires too early
or not at all shows as a wrong code.
"""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.preflight import NO_CHAT_TEMPLATE, inspect

from . import model_folders as made
from .model_folders import Spoil, bytes_of, holding, only, renamed, without

if TYPE_CHECKING:
    from pathlib import Path


def folder(**config: object) -> Spoil:
    return lambda tmp: made.sound_folder(tmp / "m", **config)


def without_tensor(name: str) -> Spoil:
    def build(tmp: Path) -> Path:
        path = made.sound_folder(tmp / "m")
        shapes = {key: size for key, size in made.tensor_shapes().items() if name not in key}
        made.write_shard(path / "model.safetensors", shapes)
        return path

    return build


def resized(change: int) -> Spoil:
    """A sound folder whose weight file has `change` bytes more or fewer."""

    def build(tmp: Path) -> Path:
        path = made.sound_folder(tmp / "m")
        with (path / "model.safetensors").open("r+b") as file:
            file.truncate((path / "model.safetensors").stat().st_size + change)
        return path

    return build


def missing_shard(tmp: Path, *, partial: str | None = None) -> Path:
    path = made.sharded_folder(tmp / "m")
    (path / "model-00002-of-00002.safetensors").unlink()
    if partial:
        (path / partial).parent.mkdir(parents=True, exist_ok=True)
        (path / partial).write_bytes(b"x")
    return path


def two_ggufs(tmp: Path) -> Path:
    made.sound_gguf(tmp / "m" / "one.gguf")
    return made.sound_gguf(tmp / "m" / "two.gguf").parent


SHARD = "model.safetensors"
INDEX = "model.safetensors.index.json"
GARBAGE_HEADER = struct.pack("<Q", 16) + b"{ not json at al" + bytes(64)
HUGE_HEADER = b"<!DOCTYPE html><html>Access denied</html>"
BAD_OFFSETS = json.dumps({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
ENTRY_GARBAGE = json.dumps({"w": [1, 2]}).encode()


def shard(header: bytes, data: int = 0) -> bytes:
    return struct.pack("<Q", len(header)) + header + bytes(data)


FAULTS: dict[str, tuple[Spoil, str, str]] = {
    # name: (what is built, code, text the message must contain)
    "missing path": (lambda tmp: tmp / "nowhere", "model_missing", "nowhere"),
    "missing gguf": (lambda tmp: tmp / "no.gguf", "model_missing", "no.gguf"),
    "empty folder": (only(), "model_empty", "is empty"),
    "other file": (bytes_of("notes.txt", b"hello"), "model_not_recognised", "notes.txt"),
    "adapter": (
        only("adapter_config.json", content=b'{"base_model_name_or_path": "org/base-7b"}'),
        "adapter_without_base",
        "org/base-7b",
    ),
    "no config": (without("config.json"), "config_missing", "config.json"),
    "config one level down": (only("inner/config.json"), "config_missing", "config.json"),
    "broken config": (holding("config.json", b'{"model_type": '), "config_broken", "config.json"),
    "config is a list": (holding("config.json", b"[1]"), "config_broken", "list"),
    "config in utf-16": (holding("config.json", b"\xff\xfe{\x00"), "config_broken", "config.json"),
    "config lacks a size": (folder(hidden_size=None), "bad_config", "hidden_size"),
    "config has a wrong kind": (
        folder(model_type="mistral", sliding_window="wide"),
        "bad_config",
        "wide",
    ),
    "experts": (folder(num_local_experts=8), "unknown_architecture", "experts"),
    "config has a wrong size": (folder(num_hidden_layers="two"), "bad_config", "'two'"),
    "broken index": (holding(INDEX, b"{"), "config_broken", INDEX),
    "index without map": (holding(INDEX, b"{}"), "config_broken", "weight_map"),
    "missing shard": (missing_shard, "shard_missing", "model-00002-of-00002.safetensors"),
    "no index and a missing shard": (
        renamed(SHARD, "model-00001-of-00003.safetensors"),
        "shard_missing",
        "model-00002-of-00003.safetensors",
    ),
    "truncated shard": (resized(-10), "shard_truncated", "bytes"),
    "shard cut in its header": (
        holding(SHARD, shard(b"{}" + b" " * 90)[:40]),
        "shard_truncated",
        "40",
    ),
    "empty shard": (holding(SHARD, b""), "shard_truncated", "0 of"),
    "trailing bytes": (resized(10), "shard_garbage", "10 bytes follow"),
    "garbage header": (holding(SHARD, GARBAGE_HEADER), "shard_garbage", "not JSON"),
    "web page as shard": (holding(SHARD, HUGE_HEADER), "shard_garbage", SHARD),
    "garbage entry": (holding(SHARD, shard(ENTRY_GARBAGE)), "shard_garbage", "'w'"),
    "offsets against shape": (holding(SHARD, shard(BAD_OFFSETS, 8)), "shard_garbage", "[3]"),
    "pointer as shard": (holding(SHARD, made.POINTER), "lfs_pointer", "987,654,321"),
    "pointer as config": (holding("config.json", made.POINTER), "lfs_pointer", "config.json"),
    "pointer as tokenizer": (holding("tokenizer.json", made.POINTER), "lfs_pointer", "tokenizer"),
    "pointer as gguf": (bytes_of("m.gguf", made.POINTER), "lfs_pointer", "m.gguf"),
    "pickled weights": (
        renamed(SHARD, "pytorch_model.bin"),
        "weights_pickled",
        "pytorch_model.bin",
    ),
    "no weights": (without(SHARD), "weights_missing", SHARD),
    "a layer lacks": (without_tensor("layers.1."), "weights_incomplete", "model.layers.1"),
    "no head": (without_tensor("lm_head"), "weights_incomplete", "lm_head.weight"),
    "config of another model": (folder(vocab_size=64), "weights_mismatch", "64"),
    "unfinished download": (
        lambda tmp: missing_shard(tmp, partial="model-00002-of-00002.safetensors.part"),
        "download_incomplete",
        "model-00002-of-00002.safetensors.part",
    ),
    "unfinished hub download": (
        lambda tmp: missing_shard(tmp, partial=".cache/huggingface/download/ab.incomplete"),
        "download_incomplete",
        "ab.incomplete",
    ),
    "only an unfinished file": (only("x.incomplete"), "download_incomplete", "x.incomplete"),
    "unfinished gguf": (
        lambda tmp: bytes_of("m.gguf.part", b"GGUF")(tmp).with_suffix(""),
        "download_incomplete",
        "m.gguf.part",
    ),
    "the part itself": (bytes_of("m.gguf.part", b"GG"), "download_incomplete", "m.gguf.part"),
    "unknown architecture": (folder(model_type="mamba"), "unknown_architecture", "'mamba'"),
    "no model type": (folder(model_type=None), "unknown_architecture", "does not name"),
    "encoder-decoder": (
        folder(model_type="t5", is_encoder_decoder=True),
        "encoder_decoder",
        "'t5'",
    ),
    "vision": (
        folder(model_type="qwen2_vl", architectures=["Qwen2VLForConditionalGeneration"]),
        "vision_model",
        "Qwen2VL",
    ),
    "vision inside llama": (folder(vision_config={}), "vision_model", "'llama'"),
    "already quantized": (
        folder(quantization_config={"quant_method": "gptq", "bits": 4}),
        "already_quantized",
        "'gptq'",
    ),
    "no tokenizer": (without("tokenizer.json"), "tokenizer_missing", "tokenizer.json"),
    "two ggufs": (two_ggufs, "gguf_ambiguous", "one.gguf, two.gguf"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_own_sentence(name: str, tmp_path: Path) -> None:
    build, code, part = FAULTS[name]
    refused = made.refusal(build(tmp_path))
    assert refused is not None
    assert (refused.code, refused.exit_code) == (code, 3)
    assert part in refused.message
    assert len(refused.hint) > 10


@pytest.mark.parametrize("build", [made.sound_folder, made.sharded_folder])
def test_a_sound_folder_is_described(build: Spoil, tmp_path: Path) -> None:
    seen = inspect(build(tmp_path / "m"))
    expected = sum(math.prod(shape) for shape in made.tensor_shapes().values())
    assert (seen.kind, seen.family, seen.warnings) == ("folder", "llama", ())
    assert seen.sizes.parameters == expected
    assert (seen.sizes.layers, seen.sizes.head_dim, seen.sizes.vocab) == (2, 4, 32)
    assert not seen.sizes.tied_head
    assert seen.weight_bytes == sum((seen.path / name).stat().st_size for name in seen.weight_files)


def test_a_tied_head_counts_once_even_if_it_is_stored(tmp_path: Path) -> None:
    stored = inspect(made.sound_folder(tmp_path / "stored", tie_word_embeddings=True))
    left_out = made.sound_folder(tmp_path / "left_out", tie_word_embeddings=True)
    made.write_shard(left_out / SHARD, made.tensor_shapes(head=False))
    assert stored.sizes.tied_head
    assert stored.sizes == inspect(left_out).sizes


def test_the_index_may_be_missing_if_no_shard_is(tmp_path: Path) -> None:
    path = made.sharded_folder(tmp_path / "m")
    whole = inspect(path)
    (path / INDEX).unlink()
    assert inspect(path) == whole


def test_head_size_follows_the_family_when_the_config_is_silent(tmp_path: Path) -> None:
    assert inspect(made.sound_folder(tmp_path / "q", model_type="qwen3")).sizes.head_dim == 128
    assert inspect(made.sound_folder(tmp_path / "l", head_dim=None)).sizes.head_dim == 4


def test_no_chat_template_is_a_warning_not_a_fault(tmp_path: Path) -> None:
    path = made.sound_folder(tmp_path / "m")
    made.write_json(path / "tokenizer_config.json", {})
    assert inspect(path).warnings == (NO_CHAT_TEMPLATE,)
    (path / "chat_template.jinja").write_text("{{ messages }}")
    assert inspect(path).has_chat_template


def test_a_leftover_part_beside_a_whole_model_is_a_warning(tmp_path: Path) -> None:
    path = made.sound_folder(tmp_path / "m")
    (path / "old.incomplete").write_bytes(b"x")
    assert "old.incomplete" in inspect(path).warnings[0]


def test_the_hint_names_the_folder_one_level_down(tmp_path: Path) -> None:
    refused = made.refusal(only("inner/config.json")(tmp_path))
    assert refused is not None
    assert str(tmp_path / "m" / "inner") in refused.hint


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 1 << 12), value=st.integers(0, 255), keep=st.integers(0, 1 << 12))
def test_any_damage_to_a_shard_ends_in_a_sentence(
    tmp_path: Path, at: int, value: int, keep: int
) -> None:
    path = tmp_path / "fuzzed"
    if not path.exists():
        made.sound_folder(path)
    made.write_shard(path / SHARD, made.tensor_shapes())
    content = bytearray((path / SHARD).read_bytes())
    content[at % len(content)] = value
    (path / SHARD).write_bytes(content[:keep] if keep < len(content) else content)
    seen = made.refusal(path)
    assert seen is None or (seen.message and seen.hint)


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, engine.preflight, engine.memory_plan;"
        "print([m for m in ('torch', 'transformers', 'gguf', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
