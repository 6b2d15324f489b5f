"""What can be said about a model without loading it, or the reason why it can't be used.

Start here: `inspect(path)` takes a Hugging Face folder or a `.gguf` file and either returns an
`Inspection` (family, sizes, files, what is missing but bearable) or raises a `ModelError` with one
code, one sentence and one remedy per fault. Headers are read, weights never; no torch, no
transformers.

Invariant: a folder that passes has every byte its headers promise, and tensors of the shapes its
configuration states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from engine import preflight_gguf
from engine import preflight_shards as shards
from engine.families import FAMILIES, Architecture, architecture_of
from engine.memory_plan import ModelSizes
from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NO_CHAT_TEMPLATE = (
    "the model has no chat template: it can complete code, but questions in chat are refused"
)

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"
_TOKENIZER_SETS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))


class Inspection(Struct, frozen=True, kw_only=True):
    """A model that can be loaded, as its files describe it."""

    kind: Literal["folder", "gguf"]
    path: Path
    """Of the GGUF itself where a folder with a single GGUF was given."""
    family: str
    """Key of `engine.families.FAMILIES`."""
    sizes: ModelSizes
    has_chat_template: bool
    weight_files: tuple[str, ...]
    weight_bytes: int
    """On disk."""
    warnings: tuple[str, ...] = ()
    """Sentences about what is missing or odd, yet does not stop the model from loading."""


def inspect(path: Path) -> Inspection:
    """Inspect the model at `path`; `ModelError` with a code of its own for every fault."""
    try:
        return _inspect_folder(path) if path.is_dir() else _inspect_file(path)
    except PermissionError as denied:
        raise ModelError(
            "model_unreadable",
            f"'{denied.filename}' can't be read: {denied.strerror}",
            "Give yourself permission to read the model's files.",
        ) from denied


def _inspect_file(path: Path) -> Inspection:
    if not path.exists() or path.name in shards.partial_downloads(path.parent):
        shards.refuse_partial(path.parent, path.name)
        raise ModelError(
            "model_missing",
            f"there is no model at '{path}'",
            "Check the path, or run 'sspec-assist models list' for names that can be fetched.",
        )
    shards.refuse_pointer(path)
    if path.suffix.lower() != ".gguf":
        raise ModelError(
            "model_not_recognised",
            f"'{path}' is neither a folder nor a .gguf file",
            "Give the folder that holds config.json and the weights, or a .gguf file.",
        )
    header = preflight_gguf.read_header(path)
    family = preflight_gguf.check_kind(header, path)
    if "tokenizer.ggml.tokens" not in header.values:
        raise _no_tokenizer(path, "no vocabulary inside")
    has_template = bool(header.values.get("tokenizer.chat_template"))
    return Inspection(
        kind="gguf",
        path=path,
        family=family,
        sizes=_gguf_sizes(header, path),
        has_chat_template=has_template,
        weight_files=(path.name,),
        weight_bytes=header.file_bytes,
        warnings=() if has_template else (NO_CHAT_TEMPLATE,),
    )


def _gguf_sizes(header: preflight_gguf.GgufHeader, path: Path) -> ModelSizes:
    def number(key: str, default: int | None = None) -> int:
        name = f"{header.architecture}.{key}"
        value = header.values.get(name, default)
        if isinstance(value, int) and value > 0:
            return value
        raise ModelError(
            "bad_config",
            f"'{path}' gives {value!r} for '{name}', where a positive number is needed",
            "Take another GGUF of the model; this one lacks part of its description.",
        )

    hidden, heads = number("embedding_length"), number("attention.head_count")
    return ModelSizes(
        layers=number("block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", hidden // heads),
        feed_forward=number("feed_forward_length"),
        vocab=header.shapes["token_embd.weight"][-1],
        context_tokens=number("context_length"),
        parameters=header.parameters,
        tied_head="output.weight" not in header.shapes,
    )


def _inspect_folder(path: Path) -> Inspection:
    config_path = path / "config.json"
    if not config_path.exists():
        return _without_config(path)
    config = shards.read_json(config_path)
    arch = _architecture(config, path)
    _check_unquantized(config, path)
    weights = shards.read_weights(path)
    _check_tensors(weights, arch, path)
    _check_tokenizer(path)
    has_template = _has_chat_template(path)
    warnings = [] if has_template else [NO_CHAT_TEMPLATE]
    leftover = shards.partial_downloads(path)
    if leftover:
        warnings.append(f"unfinished downloads lie in the folder unused: {', '.join(leftover)}")
    return Inspection(
        kind="folder",
        path=path,
        family=arch.family,
        sizes=_folder_sizes(arch, weights),
        has_chat_template=has_template,
        weight_files=weights.files,
        weight_bytes=weights.file_bytes,
        warnings=tuple(warnings),
    )


def _without_config(path: Path) -> Inspection:
    """A folder that is no checkpoint: the one GGUF inside it, or the reason for refusing it."""
    ggufs = sorted(path.glob("*.gguf"))
    if len(ggufs) == 1:
        return _inspect_file(ggufs[0])
    if (path / "adapter_config.json").exists():
        base = (
            shards.read_json(path / "adapter_config.json").get("base_model_name_or_path")
            or "unknown"
        )
        raise ModelError(
            "adapter_without_base",
            f"'{path}' is a LoRA adapter for '{base}' without the base model's weights",
            "Merge it into its base with peft (merge_and_unload, then save_pretrained) "
            "and give the merged folder.",
        )
    shards.refuse_partial(path)
    if not any(path.iterdir()):
        raise ModelError(
            "model_empty",
            f"the folder '{path}' is empty",
            "Download the model into it, or give the folder that holds config.json.",
        )
    if ggufs:
        names = ", ".join(file.name for file in ggufs)
        raise ModelError(
            "gguf_ambiguous",
            f"'{path}' holds {len(ggufs)} GGUF files: {names}",
            "Give the path of one of them.",
        )
    inner = sorted(file.parent for file in path.glob("*/config.json"))
    raise ModelError(
        "config_missing",
        f"'{path}' has no config.json, so its architecture is unknown",
        f"There is one in '{inner[0]}': give that folder."
        if inner
        else "Download config.json of the same model into the folder.",
    )


def _architecture(config: Mapping[str, Any], path: Path) -> Architecture:
    """What `config` describes, or the reason why its layers can't be run one by one."""
    family = str(config.get("model_type") or "")
    listed = config.get("architectures")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    shown = f"'{path}' is a '{family}' model ({', '.join(names) or 'no class named'})"
    if config.get("is_encoder_decoder") or family in ("t5", "mt5", "bart", "marian", "whisper"):
        raise ModelError(
            "encoder_decoder",
            f"{shown}, which has an encoder and a decoder",
            f"Choose a decoder-only model of: {', '.join(sorted(FAMILIES))}.",
        )
    if "vision_config" in config or any("Vision" in name or "VL" in name for name in names):
        raise ModelError(
            "vision_model",
            f"{shown}, which reads images",
            "Choose the text-only model of the same series.",
        )
    try:
        return architecture_of(config)
    except ModelError as refused:
        message = f"config.json in '{path}' can't be used: {refused.message}"
        raise ModelError(refused.code, message, refused.hint) from refused
    except (KeyError, TypeError, ValueError) as broken:
        raise ModelError(
            "bad_config",
            f"config.json in '{path}' has a value of the wrong kind: {broken}",
            "Fetch config.json again from where the model came from.",
        ) from broken


def _check_unquantized(config: Mapping[str, Any], path: Path) -> None:
    settings = config.get("quantization_config") or config.get("compression_config")
    if settings:
        method = settings.get("quant_method", "unknown") if isinstance(settings, dict) else settings
        raise ModelError(
            "already_quantized",
            f"'{path}' is already quantized ('{method}')",
            "Use the unquantized weights of the same model; they are quantized while loading.",
        )


def _folder_sizes(arch: Architecture, weights: shards.Weights) -> ModelSizes:
    unused_head = arch.tied_head and _HEAD in weights.shapes
    return ModelSizes(
        layers=arch.layers,
        hidden=arch.hidden,
        heads=arch.heads,
        kv_heads=arch.kv_heads,
        head_dim=arch.head_dim,
        feed_forward=arch.feed_forward,
        vocab=arch.vocab,
        context_tokens=arch.context_tokens,
        parameters=weights.parameters - arch.vocab * arch.hidden * unused_head,
        tied_head=arch.tied_head,
    )


def _check_tensors(weights: shards.Weights, arch: Architecture, path: Path) -> None:
    """Refuse weights that lack layers, or whose shapes are of another model than the config."""
    present = {name.split(".")[2] for name in weights.shapes if name.startswith("model.layers.")}
    absent = [str(layer) for layer in range(arch.layers) if str(layer) not in present]
    wanted = [_EMBEDDING] if arch.tied_head else [_EMBEDDING, _HEAD]
    lacking = [name for name in wanted if name not in weights.shapes]
    lacking += [f"model.layers.{layer}" for layer in absent]
    if lacking:
        raise ModelError(
            "weights_incomplete",
            f"the weights in '{path}' lack {len(lacking)} parts of the model, "
            f"among them {lacking[0]}",
            "Download the whole model; a base model without LM head can't generate.",
        )
    shape = weights.shapes[_EMBEDDING]
    if shape != (arch.vocab, arch.hidden):
        raise ModelError(
            "weights_mismatch",
            f"config.json in '{path}' says vocabulary {arch.vocab} × hidden {arch.hidden}, "
            f"but {_EMBEDDING} is {list(shape)}",
            "Take config.json and the weights from the same model.",
        )


def _check_tokenizer(path: Path) -> None:
    for names in _TOKENIZER_SETS:
        if all((path / name).exists() for name in names):
            for name in names:
                shards.refuse_pointer(path / name)
            return
    raise _no_tokenizer(path, "none of tokenizer.json, tokenizer.model, vocab.json + merges.txt")


def _no_tokenizer(path: Path, what: str) -> ModelError:
    return ModelError(
        "tokenizer_missing",
        f"'{path}' has no tokenizer ({what})",
        "Download the tokenizer files of the same model into the folder, or another GGUF of it.",
    )


def _has_chat_template(path: Path) -> bool:
    if any((path / name).exists() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    settings = path / "tokenizer_config.json"
    return settings.exists() and bool(shards.read_json(settings).get("chat_template"))
