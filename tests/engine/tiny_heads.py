"""Exit heads for the tiny models: random ones, and one that really predicts."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from engine.cache import KVCache
from engine.config import Quant
from engine.draft.head_file import Head, HeadAbout, head_of, joined
from engine.model import Model


def about(
    *,
    first: int = 1,
    jump: int = 3,
    vocab: int = 96,
    stop_below: float | None = None,
    digest: str = "d" * 64,
) -> HeadAbout:
    """What stands in the file of a head that nobody trained."""
    return HeadAbout(
        model_digest=digest,
        first=first,
        jump=jump,
        vocab=vocab,
        agreement=(0.6, 0.5),
        made_with={"tokens": 0},
        stop_below=stop_below,
    )


def random_tensors(
    hidden: int = 64, *, deep: bool = True, seed: int = 0, dtype: torch.dtype = torch.bfloat16
) -> dict[str, Tensor]:
    """Seeded weights that keep the size of a state."""
    random = torch.Generator().manual_seed(seed)

    def matrix(out: int, wide: int) -> Tensor:
        return (torch.randn(out, wide, generator=random) / wide**0.5).to(dtype)

    tensors = {"jump.weight": matrix(hidden, 2 * hidden), "jump.bias": matrix(hidden, 1)[:, 0]}
    if deep:
        tensors |= {"net.up": matrix(32, 2 * hidden), "net.down": matrix(hidden, 32)}
    return tensors


def random_head(
    model: Model,
    *,
    first: int = 1,
    jump: int | None = None,
    vocab: int | None = None,
    stop_below: float | None = None,
    quant: Quant = "int8",
    seed: int = 0,
) -> Head:
    """A head that is right by chance only."""
    arch = model.architecture
    return head_of(
        about(
            first=first,
            jump=arch.layers - 1 if jump is None else jump,
            vocab=arch.vocab if vocab is None else vocab,
            stop_below=stop_below,
        ),
        random_tensors(arch.hidden, seed=seed, dtype=model.dtype),
        quant,
    )


def some_neurons(model: Model, jump: int, kept: int = 64) -> dict[int, Tensor]:
    """Others in each layer from `jump` on."""
    arch = model.architecture
    return {
        layer: torch.randperm(arch.feed_forward, generator=torch.Generator().manual_seed(layer))[
            :kept
        ]
        for layer in range(jump, arch.layers)
    }


def front_neurons_of(model: Model, kept: int = 64) -> dict[int, Tensor]:
    """Some of the first layer."""
    random = torch.Generator().manual_seed(99)
    return {0: torch.randperm(model.architecture.feed_forward, generator=random)[:kept]}


def pruned_head(head: Head, model: Model, kept: int = 64, front: int = 0) -> Head:
    """The same head, whose drafts run through a part of the model's neurons; 0: through all."""
    neurons = some_neurons(model, head.about.jump, kept) if kept else {}
    before = front_neurons_of(model, front) if front else {}
    return joined(replace(head, neurons={**before, **neurons}), model)


def listing(head: Head, model: Model, ids: list[int]) -> Head:
    """The same head, which scores the first of these ids in place of the model's first ones."""
    return joined(replace(head, ids=torch.tensor(ids)), model)


@torch.inference_mode()
def states_before(model: Model, tokens: list[int], layer: int) -> Tensor:  # (T, D)
    """The state of every token before `layer`, from one-row passes."""
    cache: KVCache = model.new_cache(1)
    states = []
    for token in tokens:
        span = cache.extend(0, 1)
        hidden = model.embed(torch.tensor([token]))
        hidden = model.run_layers(hidden, [span], cache, first=0, stop=layer)
        states.append(hidden)
        model.run_layers(hidden, [span], cache, first=layer, stop=model.architecture.layers)
    return torch.cat(states)


def fitted_head(model: Model, tokens: list[int], *, jump: int = 2) -> Head:
    """A head that knows this text by heart, from the previous token's state alone."""
    states = states_before(model, tokens, jump).double()
    before, landed = states[:-1], states[1:]
    gram = before.T @ before
    ridge = 1e-6 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
    solved = torch.linalg.solve(gram + ridge, before.T @ landed).T  # (D, D)
    wide = torch.cat((torch.zeros_like(solved), solved), dim=1).to(model.dtype)
    tensors = {"jump.weight": wide, "jump.bias": torch.zeros(len(solved), dtype=model.dtype)}
    return head_of(about(jump=jump, vocab=model.architecture.vocab), tensors, "none")
