"""Random checkpoints of every family, small enough for a test: transformers' own classes, saved as
a Hugging Face folder or as a GGUF the way llama.cpp's converter writes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine.config import LoadSettings
from engine.convert import convert
from engine.converted import read_architecture, read_weights
from engine.families import architecture_of
from engine.model import Model
from engine.rotary import with_rotary

from .tiny_tokenizers import CHAT_MARKERS, byte_level

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine.checkpoint import Checkpoint

VOCAB = 300
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
DENSE = LoadSettings(quant="none", device="cpu")


def random_model(family: str, **traits: Any) -> Any:
    """A model whose every weight matters: no zero biases, no unit norms, logits far apart."""
    config = AutoConfig.for_model(family, **{**SIZES, **traits})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=random)
            if weight.ndim == 2:
                weight.copy_(noise * 1.5 / weight.shape[1] ** 0.5)
            else:
                weight.copy_(noise * 0.3 + (0.0 if name.endswith("bias") else weight))
    return model


def save_folder(model: Any, folder: Path, **how: Any) -> Path:
    """The model as a Hugging Face folder with a tokenizer."""
    model.save_pretrained(folder, **how)
    byte_level(CHAT_MARKERS).save(str(folder / "tokenizer.json"))
    return folder


def converted(checkpoint: Checkpoint, folder: Path, settings: LoadSettings = DENSE) -> Model:
    """The checkpoint after conversion to disk and back."""
    arch = with_rotary(architecture_of(checkpoint.config), checkpoint.config)
    convert(checkpoint, arch, settings, folder, lambda *_: None)
    weights = read_weights(folder, lambda *_: None)
    return Model(read_architecture(folder), weights, context_tokens=arch.context_tokens)


def split_logits(model: Model, ids: Tensor) -> Tensor:  # (T,) -> (T, V)
    """A forward in two spans of layers and two of tokens, a wide one and a narrow one."""
    cache, cut, layers = model.new_cache(1), len(ids) - 10, model.architecture.layers
    found = []
    with torch.inference_mode():
        for part in (ids[:cut], ids[cut:]):
            spans = [cache.extend(0, len(part))]
            hidden = model.run_layers(model.embed(part), spans, cache, first=0, stop=1)
            hidden = model.run_layers(hidden, spans, cache, first=1, stop=layers)
            found.append(model.logits(hidden))
    return torch.cat(found)


def assert_same_logits(ours: Model, theirs: Any, tokens: int = 90) -> None:
    """The same logits as transformers' own forward, up to float32's order of summation."""
    ids = torch.randint(3, VOCAB, (tokens,), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = theirs(ids[None]).logits[0]
    difference = (split_logits(ours, ids) - expected).abs()
    spread = float(expected.std())
    print(f"max {difference.max():.2e}, mean {difference.mean():.2e}, logits' spread {spread:.2f}")
    assert spread > 0.02, "these logits could not tell one model from another"
    assert float(difference.max()) < 1e-3 * spread


def llama_cpp_rows(weight: Tensor, heads: int) -> Tensor:
    """The order in which llama.cpp keeps rows of q and k: rotary pairs side by side."""
    split = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return split.transpose(1, 2).reshape(weight.shape)


def save_gguf(
    model: Any,
    path: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """The model as llama.cpp's converter would write it, matrices in the block format `kind`."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), config.model_type)
    _describe(writer, config)
    write_vocabulary(writer)
    for key, value in (more or {}).items():
        if isinstance(value, Tensor):
            writer.add_tensor(key, value.numpy())
        elif isinstance(value, str):
            writer.add_string(f"{config.model_type}.{key}", value)
        else:
            writer.add_float32(f"{config.model_type}.{key}", value)
    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[config.model_type]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        base, _, ending = name.rpartition(".")
        values = _as_llama_cpp(config, name, weight).numpy()
        target = f"{names.get_name(base)}.{ending}"
        if kind != gguf.GGMLQuantizationType.F32 and values.ndim == 2:
            writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    if config.model_type == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.model_type == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def _as_llama_cpp(config: Any, name: str, weight: Tensor) -> Tensor:
    if config.model_type in ("llama", "granite") and (".q_proj" in name or ".k_proj" in name):
        queries = ".q_proj" in name
        heads = config.num_attention_heads if queries else config.num_key_value_heads
        return llama_cpp_rows(weight, heads)
    if config.model_type == "gemma" and name.endswith("norm.weight"):
        return weight + 1
    return weight


def write_vocabulary(writer: gguf.GGUFWriter, rule: str = "qwen2") -> None:
    """A byte-level vocabulary of `VOCAB` tokens with one merge and ChatML's markers."""
    alphabet = sorted(byte_level().pre_tokenizer.alphabet())
    tokens = [*alphabet, "Ġd", *CHAT_MARKERS]
    control = [3 if token in CHAT_MARKERS else 1 for token in tokens]
    tokens += [f"unused{n}" for n in range(VOCAB - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types(control + [5] * (VOCAB - len(control)))
    writer.add_token_merges(["Ġ d"])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
