"""One text of the model's own with what its layers made of it: the material of every later stage.

Owns which states are kept (`Marks`) and how a pass over tokens leaves them (`record`). It knows
neither where texts come from nor what is fitted to them.

Invariant: index t of every tensor of a sample belongs to the token `ids[t]`, and the states are the
very ones that the model computed when it decoded or read that text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.cache import KVCache, Span
from engine.model import Model

WIDE_TOKENS = 512
"""Tokens of one teacher-forced pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The layers before which a state is kept."""

    firsts: tuple[int, ...]
    jumps: tuple[int, ...]
    layers: int

    @property
    def kept(self) -> tuple[int, ...]:
        """All of them in order, the end of the last layer included."""
        return tuple(sorted({*self.firsts, *self.jumps, self.layers}))

    @property
    def tail(self) -> range:
        """The layers whose keys and values are kept."""
        return range(min(self.jumps), self.layers)

    def among(self, others: Marks) -> Marks:
        """Those that `others` has too."""
        return replace(
            self,
            firsts=tuple(first for first in self.firsts if first in others.firsts),
            jumps=tuple(jump for jump in self.jumps if jump in others.jumps),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A prompt and its answer, T + 1 tokens of which the last was not run."""

    ids: Tensor  # (T + 1,) int64
    answer_at: int
    """Index of the answer's first token."""
    states: Mapping[int, Tensor]  # layer -> (T, D), the state before it
    keys: Mapping[int, Tensor]  # layer of the tail -> (T, G, E)
    values: Mapping[int, Tensor]  # the same
    best: Tensor  # (T,) int64, the model's greedy next token; −1 inside the prompt
    total: Tensor  # (T,) float32, log of the summed exponentials of all logits; 0 in the prompt

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.ids) - 1

    @property
    def nbytes(self) -> int:
        """Memory that the states, keys and values take."""
        groups = (self.states, self.keys, self.values)
        return sum(tensor.nbytes for group in groups for tensor in group.values())

    def only(self, marks: Marks) -> Sample:
        """The same sample without what `marks` has no use for."""
        return replace(
            self,
            states={layer: self.states[layer] for layer in marks.kept},
            keys={layer: self.keys[layer] for layer in marks.tail},
            values={layer: self.values[layer] for layer in marks.tail},
        )


def record(
    model: Model, hidden: Tensor, spans: Sequence[Span], cache: KVCache, marks: Marks
) -> Tensor:  # (M, T, D), one slice per kept mark
    """Run all layers over embedded tokens and keep the marked states."""
    at, kept = 0, []
    for mark in marks.kept:
        hidden = model.run_layers(hidden, spans, cache, first=at, stop=mark)
        kept.append(hidden)
        at = mark
    return torch.stack(kept)


def read_prompt(
    model: Model, cache: KVCache, row: int, ids: Sequence[int], marks: Marks
) -> Tensor:  # (M, T, D)
    """Write `ids` into an empty cache row and keep their marked states."""
    kept = []
    for begin in range(0, len(ids), WIDE_TOKENS):
        part = ids[begin : begin + WIDE_TOKENS]
        span = cache.extend(row, len(part))
        hidden = model.embed(torch.tensor(part, device=model.device))
        kept.append(record(model, hidden, [span], cache, marks))
    if not kept:
        return torch.empty(
            (len(marks.kept), 0, model.architecture.hidden), dtype=model.dtype, device=model.device
        )
    return torch.cat(kept, dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was kept while a text was decoded or read."""

    ids: Sequence[int]
    answer_at: int
    states: Tensor  # (M, T, D)
    best: Tensor  # of the tokens from `answer_at` − 1 on
    total: Tensor  # the same


def sample_of(cache: KVCache, row: int, seen: Seen, marks: Marks) -> Sample:
    """A sample from a cache row that holds all its tokens but the last."""
    length = len(seen.ids) - 1
    keys, values = {}, {}
    for layer in marks.tail:
        k, v = cache.view(layer, row, 0, length)
        keys[layer] = k[0].transpose(0, 1).contiguous()
        values[layer] = v[0].transpose(0, 1).contiguous()
    prompt, device = length - len(seen.best), seen.best.device
    return Sample(
        ids=torch.tensor(seen.ids, device=device),
        answer_at=seen.answer_at,
        states={mark: seen.states[i].contiguous() for i, mark in enumerate(marks.kept)},
        keys=keys,
        values=values,
        best=torch.cat((torch.full((prompt,), -1, device=device), seen.best)),
        total=torch.cat((torch.zeros(prompt, device=device), seen.total)),
    )


@torch.no_grad()
def reread(
    model: Model, cache: KVCache, ids: Sequence[int], answer_at: int, marks: Marks
) -> Sample:
    """The sample of a text that was decoded in an earlier run, by teacher-forced passes."""
    cache.rollback(0, 0)
    states = read_prompt(model, cache, 0, ids[:-1], marks)
    best, total = judge(model, states[-1, answer_at - 1 :])
    seen = Seen(ids=ids, answer_at=answer_at, states=states, best=best, total=total)
    return sample_of(cache, 0, seen, marks)


def judge(model: Model, final: Tensor) -> tuple[Tensor, Tensor]:  # (T,) int64 and (T,) float32
    """The greedy next token of each final state, and the logarithm of its law's denominator."""
    best, total = [], []
    for part in torch.split(final, 64):
        scores = model.logits(part).float()
        best.append(scores.argmax(dim=-1))
        total.append(scores.logsumexp(dim=-1))
    return torch.cat(best), torch.cat(total)
