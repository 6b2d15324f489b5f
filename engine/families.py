"""What a decoder-only model of the Llama shape is made of, as numbers: one struct, one table.

`architecture_of(config)` turns a checkpoint's `config.json` into an `Architecture`, the only thing
`model.py` reads. A family is supported when its row in `FAMILIES` says how it differs from Llama;
anything else is refused with a sentence, because a checkpoint that merely looks like Llama (a
clipped projection, a parallel block) would load and answer nonsense. No torch here.

Invariant: a trait that changes the logits is either a value of `Architecture` or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from engine.protocol import ModelError

Norm = Literal["rms", "layer"]
Activation = Literal["silu", "gelu", "gelu_tanh"]
Config = Mapping[str, Any]


class Architecture(Struct, frozen=True, kw_only=True):
    """Sizes and traits of one model; what differs between families is a value here, never a branch
    on the family's name in the model's code."""

    family: str
    layers: int  # N
    hidden: int  # D
    heads: int  # H
    kv_heads: int  # G
    head_dim: int  # E
    feed_forward: int
    vocab: int  # V
    context_tokens: int
    """Longest sequence that this engine answers as the checkpoint was trained to."""
    norm: Norm = "rms"
    norm_eps: float = 1e-6
    norm_offset: float = 0.0
    """Added to the norm's weight (Gemma stores weight − 1)."""
    activation: Activation = "silu"
    gated: bool = True
    qk_norm: bool = False
    embedding_scale: float = 1.0
    """Rounded to the embeddings' dtype before it multiplies them."""
    residual_scale: float = 1.0
    attention_scale: float | None = None
    """None is 1/√E."""
    logits_scale: float = 1.0
    """Multiplies the logits."""
    window: int | None = None
    """Positions a query may look back on, itself included; None is all."""
    inv_freq: tuple[float, ...] = ()
    """Rotary frequencies, E/2 of them, after the checkpoint's own scaling rule."""
    rope_scale: float = 1.0
    tied_head: bool = False


class Family(Struct, frozen=True, kw_only=True):
    """One row of the table: what the config leaves unsaid, and how the layers differ from Llama."""

    defaults: Config
    """Keys a `config.json` may leave out, with the values transformers then takes."""
    traits: Callable[[Config], dict[str, Any]] = lambda _: {}
    """Fields of `Architecture` beyond the sizes, from a config with the defaults filled in."""


def _windowed(config: Config) -> dict[str, Any]:
    """Every layer looks back on `sliding_window` positions, or on all."""
    return _window(config, [True] * int(config["num_hidden_layers"]))


def _partly_windowed(config: Config) -> dict[str, Any]:
    """Qwen's rule: only some layers have a window, and only if a switch is on."""
    if not config.get("use_sliding_window"):
        return {}
    layers = int(config["num_hidden_layers"])
    types = config.get("layer_types")
    if types is None:
        start = int(config.get("max_window_layers", 28))
        return _window(config, [layer >= start for layer in range(layers)])
    return _window(config, [kind == "sliding_attention" for kind in types])


def _window(config: Config, windowed: list[bool]) -> dict[str, Any]:
    """One window for all layers. Where layers differ, the context ends at the window instead: up to
    there it hides nothing from anybody, so the answer is still the checkpoint's own."""
    width, context = config.get("sliding_window"), int(config["max_position_embeddings"])
    if width is None or not any(windowed) or int(width) >= context:
        return {}
    return {"window": int(width)} if all(windowed) else {"context_tokens": int(width)}


def _granite(config: Config) -> dict[str, Any]:
    return {
        "embedding_scale": float(config["embedding_multiplier"]),
        "residual_scale": float(config["residual_multiplier"]),
        "attention_scale": float(config["attention_multiplier"]),
        "logits_scale": 1.0 / float(config["logits_scaling"]),
    }


def _starcoder2(config: Config) -> dict[str, Any]:
    return {"norm": "layer", "gated": False, **_windowed(config)}


def _gemma(config: Config) -> dict[str, Any]:
    # The first releases say "gelu" and mean its tanh form; transformers reads them so too.
    return {
        "norm_offset": 1.0,
        "embedding_scale": float(config["hidden_size"]) ** 0.5,
        "activation": "gelu_tanh",
    }


FAMILIES: Mapping[str, Family] = {
    "llama": Family(defaults={"max_position_embeddings": 2048}),
    "mistral": Family(
        defaults={
            "max_position_embeddings": 131_072,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
        },
        traits=_windowed,
    ),
    "qwen2": Family(
        defaults={
            "max_position_embeddings": 32_768,
            "num_key_value_heads": 32,
            "sliding_window": 4096,
        },
        traits=_partly_windowed,
    ),
    "qwen3": Family(
        defaults={
            "max_position_embeddings": 32_768,
            "num_key_value_heads": 32,
            "head_dim": 128,
            "sliding_window": 4096,
        },
        traits=lambda config: {"qk_norm": True, **_partly_windowed(config)},
    ),
    "granite": Family(
        defaults={
            "max_position_embeddings": 2048,
            "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
        traits=_granite,
    ),
    "starcoder2": Family(
        defaults={
            "max_position_embeddings": 4096,
            "num_key_value_heads": 2,
            "norm_epsilon": 1e-5,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
        },
        traits=_starcoder2,
    ),
    "gemma": Family(
        defaults={
            "max_position_embeddings": 8192,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
        },
        traits=_gemma,
    ),
    "phi3": Family(
        defaults={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        traits=_windowed,
    ),
}
"""The supported families, by `model_type`."""

_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")

_ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}

_REFUSED = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "attn_logit_softcapping": "capped attention scores",
    "final_logit_softcapping": "capped logits",
    "clip_qkv": "clipped projections",
    "use_bidirectional_attention": "attention in both directions",
    "is_encoder_decoder": "an encoder",
}
"""Config keys that, set to anything but a blank, change the layers in a way not modelled here."""


def architecture_of(config: Config) -> Architecture:
    """The architecture described by a transformers `config.json` (already parsed).

    `inv_freq` and `rope_scale` stay at their defaults: `rotary.with_rotary` fills them in. Raises
    `ModelError` for an unknown family, an unsupported trait or a missing size.
    """
    name = str(config.get("model_type") or "")
    family = FAMILIES.get(name)
    if family is None:
        raise ModelError(
            "unknown_architecture",
            f"the model is of type {name or 'that its config does not name'!r}",
            f"Supported are: {', '.join(sorted(FAMILIES))}.",
        )
    filled = {**family.defaults, **config}
    _refuse_unmodelled(name, filled)
    for key in (*_SIZES, "vocab_size"):
        _positive(filled, key)
    fields: dict[str, Any] = {
        "family": name,
        **_sizes_of(filled),
        "norm_eps": _norm_eps(filled),
        "activation": _activation(name, filled),
        "tied_head": bool(filled.get("tie_word_embeddings", False)),
    }
    return Architecture(**(fields | family.traits(filled)))


def _sizes_of(config: Config) -> dict[str, int]:
    hidden, heads = _positive(config, "hidden_size"), _positive(config, "num_attention_heads")
    kv_heads = _positive(config, "num_key_value_heads", heads)
    head_dim = _positive(config, "head_dim", hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise _bad_config(
            f"{heads} query heads, {kv_heads} key heads and {head_dim} numbers a head don't fit"
        )
    return {
        "layers": _positive(config, "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "feed_forward": _positive(config, "intermediate_size"),
        "vocab": _positive(config, "vocab_size"),
        "context_tokens": _positive(config, "max_position_embeddings"),
    }


def _positive(config: Config, key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise _bad_config(f"{key} is {value!r}" if key in config else f"there is no {key}")


def _norm_eps(config: Config) -> float:
    for key in ("rms_norm_eps", "norm_epsilon", "layer_norm_eps"):
        if config.get(key) is not None:
            return float(config[key])
    return 1e-6


def _activation(name: str, config: Config) -> Activation:
    keys = ("hidden_activation", "hidden_act", "activation_function")
    value = next((str(config[key]) for key in keys if config.get(key)), "silu")
    if value not in _ACTIVATIONS:
        raise _unsupported(name, f"the activation {value!r}")
    return _ACTIVATIONS[value]


def _refuse_unmodelled(name: str, config: Config) -> None:
    for key, what in _REFUSED.items():
        if config.get(key):
            raise _unsupported(name, f"{what} ({key} = {config[key]!r})")


def _unsupported(name: str, what: str) -> ModelError:
    return ModelError(
        "unknown_architecture",
        f"this {name} model has {what}, which this engine does not compute",
        f"Choose another model of: {', '.join(sorted(FAMILIES))}.",
    )


def _bad_config(what: str) -> ModelError:
    return ModelError(
        "bad_config",
        f"the model's config does not describe a model: {what}",
        "Fetch config.json again from where the model came from.",
    )
