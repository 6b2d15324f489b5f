"""Files on disk, read one tensor at a time: folders, shards, GGUF files, their digests."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine.checkpoint import FolderCheckpoint, digest_of, open_checkpoint, weight_files
from engine.checkpoint_gguf import _ARCHITECTURES, GgufCheckpoint
from engine.gguf_file import read_gguf
from engine.preflight_gguf import FAMILY_BY_ARCHITECTURE
from engine.protocol import ChatPrompt, ModelError, Turn
from engine.tensor_file import ALIGNMENT, TensorWriter, read_all, read_header, read_tensor
from engine.text import TextCodec

from .tiny_checkpoints import (
    assert_same_logits,
    converted,
    llama_cpp_rows,
    random_model,
    save_folder,
    save_gguf,
    write_vocabulary,
)
from .tiny_tokenizers import byte_level

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}
GGUF_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"tie_word_embeddings": True}),
    "llama-biases": ("llama", {"attention_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "granite": ("granite", {**GRANITE, "attention_multiplier": 0.3}),
    "starcoder2": ("starcoder2", {}),
    "gemma": ("gemma", {"head_dim": 32}),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small only lose by being shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", GGUF_CASES)
def test_a_gguf_computes_what_the_model_it_was_made_from_computes(
    case: str, tmp_path: Path
) -> None:
    family, traits = GGUF_CASES[case]
    theirs = random_model(family, **traits)
    checkpoint = open_checkpoint(save_gguf(theirs, tmp_path / "m.gguf"))
    assert_same_logits(converted(checkpoint, tmp_path / "converted"), theirs)


def test_every_gguf_architecture_has_a_case_and_passes_preflight() -> None:
    assert {family for family, _ in GGUF_CASES.values()} == set(_ARCHITECTURES)
    assert set(FAMILY_BY_ARCHITECTURE) == set(_ARCHITECTURES)


def test_llama_3_frequencies_come_from_the_tensor_a_gguf_keeps_them_in(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    theirs = random_model("llama", rope_parameters=rope)
    plain = 1.0 / 10_000.0 ** (torch.arange(0, 16, 2) / 16)
    factors = plain / theirs.model.rotary_emb.inv_freq
    assert float(factors.max()) == pytest.approx(8.0)
    file = save_gguf(theirs, tmp_path / "m.gguf", more={"rope_freqs.weight": factors})
    assert_same_logits(converted(open_checkpoint(file), tmp_path / "c"), theirs)


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        (
            {"rope_type": "linear", "factor": 4.0},
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 64.0,
            },
        ),
    ],
    ids=["linear", "yarn"],
)
def test_a_gguf_with_scaled_positions(
    rope: dict[str, Any], said: dict[str, Any], tmp_path: Path
) -> None:
    theirs = random_model("llama", rope_parameters={**rope, "rope_theta": 10_000.0})
    file = save_gguf(theirs, tmp_path / "m.gguf", more=said)
    assert_same_logits(converted(open_checkpoint(file), tmp_path / "c"), theirs)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1", "F16", "BF16"])
def test_blocks_are_dequantized_as_the_gguf_package_does(kind: str, tmp_path: Path) -> None:
    about = gguf.GGMLQuantizationType[kind]
    theirs = random_model("qwen2")
    file = save_gguf(theirs, tmp_path / "m.gguf", about)
    stored = next(t for t in gguf.GGUFReader(file).tensors if t.name == "blk.1.ffn_up.weight")
    expected = torch.from_numpy(gguf.quants.dequantize(stored.data, about))
    found = GgufCheckpoint(file).tensor("model.layers.1.mlp.up_proj.weight")
    plain = {"F16": torch.float16}
    assert found.dtype == plain.get(kind, torch.bfloat16)
    assert torch.equal(found, expected.to(found.dtype))
    assert torch.allclose(found.float(), theirs.model.layers[1].mlp.up_proj.weight, atol=0.1)


def test_a_matrix_of_several_chunks_of_rows(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    values = np.random.default_rng(0).standard_normal((3000, 4096), dtype=np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("x.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_gguf(tmp_path / "m.gguf").read("x.weight")
    assert found.shape == (3000, 4096)
    assert float((found.float() - torch.from_numpy(values)).abs().max()) < 0.04


def test_rows_of_pairs_are_put_back_into_halves() -> None:
    from engine.checkpoint_gguf import _halves

    rows = torch.arange(48.0).view(24, 2)
    assert not torch.equal(llama_cpp_rows(rows, 3), rows)
    assert torch.equal(_halves(llama_cpp_rows(rows, 3), 3), rows)


def test_the_tokenizer_of_a_gguf_is_rebuilt_for_good(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save_gguf(random_model("qwen2"), tmp_path / "m.gguf"))
    folder = tmp_path / "out"
    folder.mkdir()
    checkpoint.write_tokenizer(folder)
    text = TextCodec.from_folder(folder)
    ends = {text._tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>")}
    assert set(json.loads((folder / "generation_config.json").read_text())["eos_token_id"]) == ends
    assert text.chat_stop_ids >= ends
    assert text.can_chat
    ids = text.chat_ids(ChatPrompt(turns=(Turn(role="user", content="a dé"),)))
    assert text.decode(ids) == "a dé"
    assert text._tokenizer.token_to_id("Ġd") in ids


@pytest.mark.parametrize(("rule", "digits"), [("smollm", 3), ("deepseek-coder", 3), ("qwen2", 3)])
def test_a_vocabulary_is_split_by_the_rule_its_file_names(
    rule: str, digits: int, tmp_path: Path
) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    write_vocabulary(writer, rule)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    from engine.gguf_tokenizer import write_gguf_tokenizer

    write_gguf_tokenizer(tmp_path / "m.gguf", read_gguf(tmp_path / "m.gguf").metadata, tmp_path)
    pieces = TextCodec.from_folder(tmp_path)._tokenizer.pre_tokenizer.pre_tokenize_str("x 123")
    assert [piece for piece, _ in pieces][-digits:] == ["1", "2", "3"]


def test_a_rule_for_splitting_that_is_not_known_is_refused(tmp_path: Path) -> None:
    file = save_gguf(random_model("qwen2"), tmp_path / "m.gguf")
    data = file.read_bytes()
    assert data.count(b"\5\0\0\0\0\0\0\0qwen2") == 2  # the architecture, then the rule
    spoilt = b"\5\0\0\0\0\0\0\0other".join(data.rsplit(b"\5\0\0\0\0\0\0\0qwen2", 1))
    file.write_bytes(spoilt)
    with pytest.raises(ModelError, match="'other'"):
        open_checkpoint(file).write_tokenizer(tmp_path)


@pytest.mark.parametrize("shards", [False, True])
def test_a_folder_gives_every_tensor_as_it_was_saved(shards: bool, tmp_path: Path) -> None:
    model = random_model("qwen2")
    folder = save_folder(model, tmp_path / "m", **({"max_shard_size": "60KB"} if shards else {}))
    assert (len(weight_files(folder)) > 2) == shards
    checkpoint = FolderCheckpoint(folder)
    saved = model.state_dict()
    assert checkpoint.names() == set(saved)
    assert all(torch.equal(checkpoint.tensor(name), saved[name]) for name in saved)


def test_a_folder_keeps_its_tokenizer_and_tells_what_ends_an_answer(tmp_path: Path) -> None:
    folder = save_folder(random_model("llama"), tmp_path / "m")
    (folder / "generation_config.json").unlink()
    (folder / "chat_template.jinja").write_text("x")
    out = tmp_path / "out"
    out.mkdir()
    FolderCheckpoint(folder).write_tokenizer(out)
    assert (out / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert (out / "chat_template.jinja").read_text() == "x"
    assert json.loads((out / "generation_config.json").read_text()) == {"eos_token_id": 2}


def test_a_vocabulary_without_tokenizer_json_is_converted(tmp_path: Path) -> None:
    folder = save_folder(random_model("qwen2"), tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    byte_level().model.save(str(folder))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    out = tmp_path / "out"
    out.mkdir()
    FolderCheckpoint(folder).write_tokenizer(out)
    text = TextCodec.from_folder(out)
    assert text.decode(text.encode_plain("def load(path):")) == "def load(path):"


def _touch(file: Path) -> None:
    about = file.stat()
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns + 1))


def _rename(file: Path) -> None:
    file.rename(file.with_name("other.gguf"))


def _grow(file: Path) -> None:
    about = file.stat()
    file.write_bytes(file.read_bytes() + b"\0")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def _overwrite(file: Path) -> None:
    about = file.stat()
    with file.open("r+b") as data:
        data.write(b"\1")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize("change", [_touch, _rename, _grow, _overwrite])
def test_a_changed_file_has_another_digest(change: Any, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(bytes(3 << 20))
    before = digest_of(file)
    assert digest_of(tmp_path) == before, "a folder with one GGUF is that GGUF"
    change(file)
    assert digest_of(tmp_path) != before


def test_a_digest_reads_samples_of_a_large_file_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(bytes(40 << 20))
    before, about = digest_of(file), file.stat()
    with file.open("r+b") as data:
        data.seek(-1, os.SEEK_END)
        data.write(b"\1")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert digest_of(file) != before


def test_a_folder_of_other_settings_has_another_digest(tmp_path: Path) -> None:
    folder = save_folder(random_model("llama"), tmp_path / "m")
    before = digest_of(folder)
    (folder / "chat_template.jinja").write_text("x")
    assert digest_of(folder) != before


BROKEN = {
    "no GGUF": b"not a model at all, only text",
    "cut head": b"GGUF" + struct.pack("<IQQ", 3, 5, 5) + b"\4",
    "version": b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_gguf_is_said_to_be_one(case: str, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(BROKEN[case])
    with pytest.raises(ModelError) as caught:
        open_checkpoint(file)
    assert caught.value.code == "damaged_weights"


@pytest.mark.parametrize("alignment", [0, -1, "wide"])
def test_an_alignment_that_can_not_be_is_the_usual_one(
    alignment: int | str, tmp_path: Path
) -> None:
    """As preflight reads it."""
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "qwen2")
    if isinstance(alignment, str):
        writer.add_string("general.alignment", alignment)
    else:
        writer.add_int32("general.alignment", alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_gguf(tmp_path / "m.gguf").data_start % 32 == 0


def test_a_gguf_that_ends_inside_a_tensor_is_said_to_be_damaged(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    file = save_gguf(random_model("qwen2"), tmp_path / "m.gguf", kind)
    file.write_bytes(file.read_bytes()[:-50])
    checkpoint = GgufCheckpoint(file)
    last = max(read_gguf(file).tensors.items(), key=lambda item: item[1].offset)[0]
    name = next(name for name, stored in checkpoint._stored.items() if stored == last)
    with pytest.raises(ModelError, match="ends inside a tensor"):
        checkpoint.tensor(name)


def test_a_gguf_of_another_architecture_is_refused_with_those_that_are_run(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError) as caught:
        open_checkpoint(tmp_path / "m.gguf")
    assert caught.value.code == "unknown_architecture"
    assert "'mamba'" in caught.value.message
    assert "qwen2" in caught.value.hint


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        FolderCheckpoint(tmp_path).names()
    assert caught.value.code == "no_weights"


DTYPES = [torch.float32, torch.bfloat16, torch.uint8, torch.int8, torch.int64, torch.float16]
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@settings(max_examples=40, deadline=None)
@given(layout=st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES), min_size=1, max_size=6))
def test_what_is_written_tensor_by_tensor_is_what_safetensors_reads(
    layout: list[tuple[torch.dtype, tuple[int, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("f") / "x.safetensors"
    tensors = {
        f"t{n}": (torch.rand(shape) * 100).to(dtype) for n, (dtype, shape) in enumerate(layout)
    }
    with TensorWriter(file, header_room=4096) as writer:
        for name, tensor in tensors.items():
            writer.add(name, tensor)
    theirs, ours = load_file(file), read_all(file, lambda *_: None)
    for name, tensor in tensors.items():
        assert torch.equal(theirs[name], tensor)
        assert torch.equal(ours[name], tensor)
        assert ours[name].dtype == tensor.dtype
        assert ours[name].data_ptr() % ALIGNMENT == 0


def test_reading_reports_all_bytes_and_reads_what_safetensors_writes(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    tensors = {"a": torch.rand(7, 3), "b": torch.rand(5).bfloat16()}
    save_file(tensors, file)
    seen: list[tuple[int, int]] = []
    found = read_all(file, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert math.prod(read_header(file)["a"].shape) == 21


@pytest.mark.parametrize("offsets", [[0, 1 << 50], [-84, 0], [84, 0]])
def test_tensors_outside_the_file_are_said_to_be_damage(offsets: list[int], tmp_path: Path) -> None:
    """Before memory for them is asked for."""
    file = tmp_path / "x.safetensors"
    header = json.dumps({"a": {"dtype": "F32", "shape": [7, 3], "data_offsets": offsets}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(84))
    with pytest.raises(ModelError) as caught:
        read_all(file, lambda *_: None)
    assert caught.value.code == "damaged_weights"


def test_a_kernel_without_huge_pages_reads_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(7, 3)}, file)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12_345)  # an advice that this kernel doesn't know
    assert read_all(file, lambda *_: None)["a"].sum() == 21


@pytest.mark.parametrize("keep", [4, 40, -4])
def test_a_cut_safetensors_file_is_said_to_be_damaged(keep: int, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.rand(7, 3)}, file)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError) as caught:
        read_tensor(file, read_header(file)["a"])
    assert caught.value.code == "damaged_weights"
