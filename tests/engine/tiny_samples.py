"""Samples of a random model's own answers, for the tests of `engine.train`."""

from __future__ import annotations

from functools import cache

import torch

from engine.model import Model
from engine.train.answers import Answered, Decoder, Question
from engine.train.samples import Marks, Sample

from .tiny import tiny_architecture, tiny_tensors

MARKS = Marks(firsts=(1,), jumps=(2, 3), layers=4)
VOCAB = 96


@cache
def model(*, window: int | None = None, qk_norm: bool = False) -> Model:
    """NF4 weights, four layers."""
    arch = tiny_architecture(window=window)
    tensors = tiny_tensors(arch, "nf4")
    if qk_norm:
        import msgspec

        arch = msgspec.structs.replace(arch, qk_norm=True)
        for layer in range(arch.layers):
            for part in ("q_norm", "k_norm"):
                scale = torch.linspace(0.5, 1.5, arch.head_dim).to(torch.bfloat16)
                tensors[f"layers.{layer}.{part}.weight"] = scale
    return Model(arch, tensors, context_tokens=512)


def questions(count: int, *, tokens: int = 40, temperature: float = 0.0) -> list[Question]:
    """Random prompts of different lengths."""
    random = torch.Generator().manual_seed(1)
    return [
        Question(
            ids=torch.randint(0, VOCAB, (9 + i,), generator=random).tolist(),
            stop_ids=frozenset({VOCAB - 1}),
            max_tokens=tokens,
            temperature=temperature,
        )
        for i in range(count)
    ]


def answered(
    target: Model, asked: list[Question], *, rows: int = 8
) -> list[tuple[Answered, Sample]]:
    """All answers."""
    return list(Decoder(target, MARKS, asked, rows=rows).answers(lambda: True))


@cache
def own_answers(count: int = 16) -> list[Sample]:
    """Answers drawn at temperature 0.7, which do not repeat themselves as greedy ones do."""
    return [sample for _, sample in answered(model(), questions(count, temperature=0.7))]
