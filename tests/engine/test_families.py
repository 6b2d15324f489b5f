"""Every family in the table computes what transformers computes; everything else is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import AutoConfig

from engine.checkpoint import FolderCheckpoint
from engine.families import _ACTIVATIONS, FAMILIES, architecture_of
from engine.protocol import ModelError

from .tiny_checkpoints import SIZES, assert_same_logits, converted, random_model, save_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0 + n / 8 for n in range(8)],
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 128,
}
PHI3_LONG = {"rope_parameters": LONGROPE, "original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "rope_theta": 100_000.0, "factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
WINDOWED = {"use_sliding_window": True, "sliding_window": 16}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"tie_word_embeddings": True}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-wide-heads": ("llama", {"head_dim": 32}),
    "llama-as-deepseek-coder": ("llama", {"rope_parameters": LINEAR, "num_key_value_heads": 4}),
    "llama-3.1": ("llama", {"rope_parameters": LLAMA3}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
    "llama-dynamic": ("llama", {"rope_parameters": DYNAMIC}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral-window": ("mistral", {"sliding_window": 16}),
    "qwen2": ("qwen2", {}),
    "qwen2-window": ("qwen2", {**WINDOWED, "max_window_layers": 0}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-window": ("qwen3", {**WINDOWED, "max_window_layers": 0, "head_dim": 16}),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.3,
            "logits_scaling": 8.0,
        },
    ),
    "starcoder2": ("starcoder2", {"sliding_window": 16}),
    "starcoder2-no-bias": ("starcoder2", {"use_bias": False}),
    "gemma": ("gemma", {"head_dim": 32}),
    "gemma-legacy-gelu": ("gemma", {"hidden_act": "gelu", "head_dim": 16}),
    "phi3": ("phi3", {"sliding_window": 16}),
    "phi3-longrope": ("phi3", PHI3_LONG),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices this small only lose by being shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", CASES)
def test_split_forward_is_that_of_transformers(case: str, tmp_path: Path) -> None:
    family, traits = CASES[case]
    theirs = random_model(family, **traits)
    checkpoint = FolderCheckpoint(save_folder(theirs, tmp_path / "m"))
    assert_same_logits(converted(checkpoint, tmp_path / "converted"), theirs)


def test_every_family_has_a_case() -> None:
    assert {family for family, _ in CASES.values()} == set(FAMILIES)


def test_a_context_ends_where_only_some_layers_have_a_window(tmp_path: Path) -> None:
    theirs = random_model("qwen2", **{**WINDOWED, "sliding_window": 96, "max_window_layers": 1})
    ours = converted(FolderCheckpoint(save_folder(theirs, tmp_path / "m")), tmp_path / "c")
    assert ours.architecture.window is None
    assert ours.architecture.context_tokens == 96
    assert_same_logits(ours, theirs, tokens=96)


def test_longrope_ends_the_context_where_its_second_rule_begins(tmp_path: Path) -> None:
    theirs = random_model("phi3", **PHI3_LONG)
    ours = converted(FolderCheckpoint(save_folder(theirs, tmp_path / "m")), tmp_path / "c")
    assert ours.architecture.context_tokens == 128
    assert_same_logits(ours, theirs, tokens=128)


def test_the_old_spelling_of_rope_scaling_is_read(tmp_path: Path) -> None:
    theirs = random_model("llama", rope_parameters=LINEAR)
    folder = save_folder(theirs, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 100_000.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    (folder / "config.json").write_text(json.dumps(config))
    assert_same_logits(converted(FolderCheckpoint(folder), tmp_path / "c"), theirs)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_a_config_leaves_out_is_what_transformers_assumes(family: str) -> None:
    stated = {
        "hidden_size": 1024,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "vocab_size": 60_000,
    }
    assumed = AutoConfig.for_model(family, **stated)
    arch = architecture_of({"model_type": family, **stated})
    eps = getattr(assumed, "rms_norm_eps", None) or assumed.norm_epsilon
    window = getattr(assumed, "sliding_window", None)
    assert arch.kv_heads == assumed.num_key_value_heads
    assert arch.head_dim == (getattr(assumed, "head_dim", None) or 32)
    assert arch.context_tokens == assumed.max_position_embeddings
    assert arch.activation == _ACTIVATIONS[assumed.hidden_act]
    assert arch.tied_head == assumed.tie_word_embeddings
    assert arch.norm_eps == eps
    assert arch.window == window


LLAMA = {"model_type": "llama", **SIZES}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"model_type": "gemma2"}, "unknown_architecture", "gemma2"),
    "nameless": ({"model_type": None}, "unknown_architecture", "does not name"),
    "experts": ({"num_local_experts": 8}, "unknown_architecture", "num_local_experts = 8"),
    "capped": ({"final_logit_softcapping": 30.0}, "unknown_architecture", "capped logits"),
    "activation": ({"hidden_act": "relu2"}, "unknown_architecture", "'relu2'"),
    "no size": ({"hidden_size": None}, "bad_config", "hidden_size"),
    "negative": ({"num_hidden_layers": -1}, "bad_config", "num_hidden_layers is -1"),
    "heads": ({"num_key_value_heads": 3}, "bad_config", "4 query heads, 3 key heads"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_modelled_is_refused_by_name(case: str) -> None:
    change, code, said = REFUSED[case]
    with pytest.raises(ModelError) as caught:
        architecture_of({**LLAMA, **change})
    assert caught.value.code == code
    assert said in caught.value.message
    if code == "unknown_architecture":
        assert "qwen2" in caught.value.hint


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        {"rope_type": "proportional", "rope_theta": 1e4, "factor": 2.0},
        {"rope_type": "linear", "rope_theta": 1e4},
    ],
    ids=["partial", "unknown rule", "rule without its factor"],
)
def test_a_position_encoding_that_is_not_modelled_is_refused(
    rope: dict[str, Any], tmp_path: Path
) -> None:
    folder = save_folder(random_model("llama"), tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_parameters": rope}))
    with pytest.raises(ModelError) as caught:
        converted(FolderCheckpoint(folder), tmp_path / "c")
    assert caught.value.code == "unsupported_rope"
