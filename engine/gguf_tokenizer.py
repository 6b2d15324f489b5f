"""The tokenizer inside a GGUF, rebuilt once as Hugging Face files.

transformers turns vocabulary and merges into a `tokenizers` object; what it leaves at GPT-2's
defaults although the file names another rule (how digits and lines are split before merging, which
normal form) is put right here, since every id depends on it.

Invariant: the folder afterwards suffices for `text.py`; the GGUF is not opened for text again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ENDS = frozenset(
    {
        "<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
        "<|EOT|>", "<｜end▁of▁sentence｜>", "<end_of_turn>", "<EOT>", "_<EOT>", "</s>", "<eos>",
    }
)  # fmt: skip
"""Control tokens that end an answer or a fill, whichever of them the file declares as its eos."""

_CONTROL = 3  # tokenizer.ggml.token_type
_DIGITS_APART = frozenset({"smollm", "starcoder", "refact", "codeshell", "command-r"})
_DEEPSEEK = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+")
_KNOWN_SPLITS = frozenset(
    {
        "default", "gpt-2", "mpt", "olmo", "llama3", "llama-v3", "llama-bpe", "tekken", "qwen2",
        "deepseek-r1-qwen", "falcon3", "dbrx", "smaug-bpe", "gpt-4o",
    }
)  # fmt: skip
"""Values of `tokenizer.ggml.pre` that transformers splits correctly by itself."""


def end_ids(metadata: Mapping[str, Any]) -> list[int]:
    """Ids that end an answer: the declared ones, and control tokens known to mean the same."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    declared = [metadata.get(f"tokenizer.ggml.{key}") for key in keys]
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    kinds = metadata.get("tokenizer.ggml.token_type") or []
    known = [
        index
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == _CONTROL and token in _ENDS
    ]
    return list(dict.fromkeys([index for index in declared if index is not None] + known))


def write_gguf_tokenizer(path: Path, metadata: Mapping[str, Any], folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and, if the file
    has a template, `chat_template.jinja`. Raises `ModelError` `bad_tokenizer`."""
    backend, settings = _rebuild(path, metadata)
    backend.save(str(folder / "tokenizer.json"))
    template = metadata.get("tokenizer.chat_template")
    if template:
        settings["chat_template"] = template
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / "generation_config.json", {"eos_token_id": end_ids(metadata)})


def _rebuild(path: Path, metadata: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The `tokenizers.Tokenizer` and the settings that belong beside it."""
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    try:
        architecture, parts, settings = get_gguf_tokenizer(str(path))
        backend, _ = convert_gguf_tokenizer(architecture, parts)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise _bad_tokenizer(path, str(error)) from error
    if parts.get("tokenizer_type") == "gpt2":
        _split_as_declared(path, backend, str(metadata.get("tokenizer.ggml.pre", "default")))
    if settings.get("add_bos_token") and settings.get("bos_token"):
        _begin_with(backend, settings["bos_token"])
    kept = {key: value for key, value in settings.items() if value is not None}
    return backend, {"tokenizer_class": "PreTrainedTokenizerFast", **kept}


def _split_as_declared(path: Path, backend: Any, rule: str) -> None:
    from tokenizers import Regex, normalizers, pre_tokenizers

    if rule == "qwen2":
        backend.normalizer = normalizers.NFC()
    if rule in _KNOWN_SPLITS:
        return
    digits = pre_tokenizers.Digits(individual_digits=True)
    if rule in _DIGITS_APART:
        steps = [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    elif rule == "deepseek-coder":
        splits = [pre_tokenizers.Split(Regex(text), behavior="isolated") for text in _DEEPSEEK]
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        steps = [*splits, digits, bytes_only]
    else:
        raise _bad_tokenizer(path, f"its rule for splitting text, {rule!r}, is not known here")
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)


def _begin_with(backend: Any, token: str) -> None:
    from tokenizers import processors

    backend.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", special_tokens=[(token, backend.token_to_id(token))]
    )


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def _bad_tokenizer(path: Path, what: str) -> ModelError:
    return ModelError(
        "bad_tokenizer",
        f"the tokenizer in '{path}' can't be rebuilt: {what}",
        "Use the model's Hugging Face folder instead.",
    )
