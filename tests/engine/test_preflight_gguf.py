"""A GGUF is judged by its header alone, and no damage to it ends in anything but a `ModelError`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.families import FAMILIES
from engine.preflight import NO_CHAT_TEMPLATE, inspect
from engine.preflight_gguf import _BLOCKS, FAMILY_BY_ARCHITECTURE

from . import model_folders as made
from .model_folders import Spoil, bytes_of

if TYPE_CHECKING:
    from pathlib import Path


def gguf(name: str = "m.gguf", cut: int = 0, **options: object) -> Spoil:
    def build(tmp: Path) -> Path:
        path = made.sound_gguf(tmp / name, **options)  # type: ignore[arg-type]
        os.truncate(path, path.stat().st_size - cut)
        return path

    return build


FAULTS: dict[str, tuple[Spoil, str, str]] = {
    # name: (what is built, code, text the message must contain)
    "gguf magic": (bytes_of("m.gguf", b"PK\x03\x04" + bytes(60)), "gguf_magic", "PK"),
    "gguf too short": (bytes_of("m.gguf", b"GGUF\x03\x00"), "gguf_truncated", "6 bytes"),
    "gguf cut in its weights": (gguf(cut=64), "gguf_truncated", "bytes"),
    "gguf cut in its header": (gguf(cut=1300), "gguf_truncated", "header"),
    "gguf version": (gguf(version=1), "gguf_version", "version 1"),
    "gguf of other byte order": (gguf(version=0x03000000), "gguf_version", "50331648"),
    "gguf split": (gguf(values=made.with_values(split__count=3)), "gguf_split", "3 parts"),
    "gguf split by name": (gguf("m-00002-of-00004.gguf"), "gguf_split", "4 parts"),
    "gguf architecture": (
        gguf(values=made.with_values(general__architecture="rwkv7")),
        "gguf_architecture",
        "'rwkv7'",
    ),
    "gguf with experts": (
        gguf(values=made.with_values(qwen2__expert_count=8)),
        "gguf_architecture",
        "8 experts",
    ),
    "gguf projector": (
        gguf(values=made.with_values(general__architecture="clip")),
        "gguf_not_a_model",
        "mmproj",
    ),
    "gguf vocabulary": (gguf(shapes={}), "gguf_not_a_model", "vocabulary"),
    "gguf adapter": (
        gguf(values=made.with_values(general__type="adapter")),
        "gguf_not_a_model",
        "LoRA",
    ),
    "gguf of strange tensors": (gguf(tensor_type=99), "gguf_tensor_type", "type 99"),
    "gguf lacks a size": (
        gguf(values=made.with_values(qwen2__block_count=None)),
        "bad_config",
        "qwen2.block_count",
    ),
    "gguf without tokenizer": (
        gguf(values=made.with_values(tokenizer__ggml__tokens=None)),
        "tokenizer_missing",
        "m.gguf",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_its_own_sentence(name: str, tmp_path: Path) -> None:
    build, code, part = FAULTS[name]
    refused = made.refusal(build(tmp_path))
    assert refused is not None
    assert (refused.code, refused.exit_code) == (code, 3)
    assert part in refused.message
    assert len(refused.hint) > 10


def test_a_damaged_gguf_value_is_named(tmp_path: Path) -> None:
    path = made.sound_gguf(tmp_path / "m.gguf")
    content = bytearray(path.read_bytes())
    key = b"general.type"
    content[content.index(key) + len(key)] = 77
    path.write_bytes(content)
    refused = made.refusal(path)
    assert refused is not None
    assert refused.code == "gguf_damaged"
    assert "type 77" in refused.message


def test_a_sound_gguf_is_described_and_found_in_its_folder(tmp_path: Path) -> None:
    path = made.sound_gguf(tmp_path / "m" / "model.gguf")
    seen = inspect(path)
    assert (seen.kind, seen.family, seen.has_chat_template) == ("gguf", "qwen2", True)
    assert seen.sizes.parameters == 2 * made.VOCAB * made.HIDDEN
    assert (seen.sizes.vocab, seen.sizes.head_dim, seen.sizes.tied_head) == (32, 4, False)
    assert inspect(path.parent) == seen


def test_no_chat_template_is_a_warning_not_a_fault(tmp_path: Path) -> None:
    bare = made.sound_gguf(
        tmp_path / "bare.gguf", values=made.with_values(tokenizer__chat_template=None)
    )
    assert inspect(bare).warnings == (NO_CHAT_TEMPLATE,)


def test_gguf_architectures_are_families_and_block_sizes_are_those_of_the_format() -> None:
    from gguf.constants import GGML_QUANT_SIZES

    assert set(FAMILY_BY_ARCHITECTURE.values()) <= set(FAMILIES)
    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
    assert {kind: sizes[kind] for kind in _BLOCKS} == dict(_BLOCKS)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 1300), value=st.integers(0, 255), keep=st.integers(0, 3000))
def test_any_damage_ends_in_a_sentence(tmp_path: Path, at: int, value: int, keep: int) -> None:
    content = bytearray(made.sound_gguf(tmp_path / "m.gguf").read_bytes())
    content[at % len(content)] = value
    (tmp_path / "m.gguf").write_bytes(content[:keep] if keep < len(content) else content)
    seen = made.refusal(tmp_path / "m.gguf")
    assert seen is None or (seen.message and seen.hint)
