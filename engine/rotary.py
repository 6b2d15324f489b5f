"""The rotary frequencies of a checkpoint, computed once, at conversion.

Owns the reading of `rope_parameters` in all its spellings, which it leaves to transformers: a
config object, never a model. What comes out is plain numbers that `architecture.json` keeps, so a
warm start imports no transformers.

Invariant: at every position below `context_tokens` the frequencies are those transformers would
use. Rules that change them beyond a length (dynamic, longrope) end the context at that length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import torch

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.families import Architecture

FREQUENCY_FACTORS = "rope_frequency_factors"
"""Config key of ours: divisors of each frequency (E/2 of them), as a GGUF stores Llama 3's rule."""

_RULES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def with_rotary(arch: Architecture, config: Mapping[str, Any]) -> Architecture:
    """`arch` with `inv_freq`, `rope_scale` and the context they hold for filled in.

    Raises `ModelError` for a scaling rule that is unknown or covers only a part of each head.
    """
    rule, frequencies, scale = _frequencies(arch, config)
    factors = config.get(FREQUENCY_FACTORS)
    if factors is not None:
        frequencies = frequencies / torch.tensor(factors, dtype=torch.float32)
    if len(frequencies) != arch.head_dim // 2:
        raise _refused(f"covers {2 * len(frequencies)} of {arch.head_dim} numbers a head")
    context = arch.context_tokens
    if rule["rope_type"] == "longrope":
        context = min(context, int(rule["original_max_position_embeddings"]))
    return msgspec.structs.replace(
        arch,
        inv_freq=tuple(frequencies.tolist()),
        rope_scale=float(scale),
        context_tokens=context,
    )


def _frequencies(
    arch: Architecture, config: Mapping[str, Any]
) -> tuple[dict[str, Any], torch.Tensor, float]:
    """The rule in its newest spelling, (E/2,) float32 frequencies, the factor on cos and sin."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = {key: value for key, value in config.items() if key != "model_type"}
    settings["head_dim"] = arch.head_dim
    try:
        parsed = AutoConfig.for_model(arch.family, **settings)
        rule = dict(parsed.rope_parameters)
        kind = rule["rope_type"]
        if kind not in _RULES:
            raise _refused(f"is scaled by the rule {kind!r}")
        if rule.get("partial_rotary_factor", 1.0) != 1.0:
            raise _refused(f"covers {rule['partial_rotary_factor']} of each head")
        if kind == "default":
            steps = torch.arange(0, arch.head_dim, 2, dtype=torch.float32)
            return rule, 1.0 / (rule["rope_theta"] ** (steps / arch.head_dim)), 1.0
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](parsed, torch.device("cpu"))
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(f"can't be read ({error})") from error
    return rule, frequencies, scale


def _refused(what: str) -> ModelError:
    return ModelError(
        "unsupported_rope",
        f"the model's position encoding {what}",
        "Choose another checkpoint of the model, or remove rope_scaling from its config.json to "
        "use its original context.",
    )
