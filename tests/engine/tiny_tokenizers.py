"""Tokenizers small enough to build in a test, saved the way a checkpoint's folder holds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

if TYPE_CHECKING:
    from pathlib import Path

CORPUS = [
    "def load(path):\n    with open(path) as file:\n        return json.load(file)\n\n\n",
    "system user assistant You are a helpful assistant. What does this function return?\n\n",
    "for item in items:\n\n\n    print(item, end='|>')  # <| |> im_start im_end fim_suffix\n",
    "Grüße an alle: naïve café, 你好世界, 👩‍💻 emoji\n\n",
] * 8

CHAT_MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_FILL = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>")
QWEN_REPO = ("<|repo_name|>", "<|file_sep|>")


def byte_level(special: tuple[str, ...] = (), plain: tuple[str, ...] = ()) -> Tokenizer:
    """A trained byte-level BPE; `plain` are added tokens that the file does not call special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in plain])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in special])
    return tokenizer


def byte_fallback(markers: tuple[str, ...] = (), merges: tuple[tuple[str, str], ...] = ()) -> Any:
    """A vocabulary as sentencepiece makes them: ▁ for spaces, one in front of every text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [chr(c) for c in range(33, 127)]
    pieces += [a + b for a, b in merges]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*pieces, *markers]))}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, list(merges), byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    return tokenizer


def save(
    folder: Path,
    tokenizer: Tokenizer,
    *,
    template: str | None = None,
    config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    generation_config: dict[str, Any] | None = None,
) -> Path:
    """Write the folder; `config` goes into `tokenizer_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    content = {"tokenizer_class": "PreTrainedTokenizerFast", **(config or {})}
    if template is not None:
        content["chat_template"] = template
    files = {
        "tokenizer_config": content,
        "config": model_config,
        "generation_config": generation_config,
    }
    for stem, data in files.items():
        if data is not None:
            (folder / f"{stem}.json").write_text(json.dumps(data), encoding="utf-8")
    return folder
