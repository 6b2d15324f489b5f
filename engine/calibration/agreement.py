"""How often shorter paths say what the whole model says, on the model's own answers.

Greedily, and at temperatures: the chance that rejection sampling keeps a token is the overlap
Σ min(p, q) of the two laws. By position in a draft: the share of tokens kept where those drafted
before were. It knows no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from engine.draft.contract import Drafter, Guesser
from engine.model import Model
from engine.protocol import SamplingParams
from engine.row import Chain, Row
from engine.train.agreement import STEPS, Jump, batches
from engine.train.samples import Sample
from engine.train.tail import OwnSlots, Tail, drafting_starts

TEMPERATURES = (0.0, 0.7, 1.0)
ByPosition = tuple[float, ...]
"""As many positions as enough drafts got to, one at least."""
GoOn = Callable[[], bool]
BRIEF_TOKENS = 250
LEAST_REACHED = 8.0
"""Drafts that got to a position, for its share to be more than chance."""
_ROWS = 64
_GUESSED = 4


@torch.no_grad()
def exit_agreement(
    model: Model, samples: Sequence[Sample], exits: Sequence[int], go_on: GoOn = lambda: True
) -> dict[int, dict[float, ByPosition]]:
    """Of each exit layer, at each temperature, as far as `go_on` lets it. An exit's drafts read
    exact keys and values, so the second token of a draft agrees as often as any first one: only
    streaks make a difference."""
    kept: dict[int, dict[float, list[Tensor]]] = {
        layer: {temperature: [] for temperature in TEMPERATURES} for layer in exits
    }
    for sample in samples:
        at = slice(max(0, sample.answer_at - 1), sample.tokens)
        full = sample.states[model.architecture.layers][at]
        parts: dict[tuple[int, float], list[Tensor]] = {}
        for rows in torch.split(torch.arange(len(full)), _ROWS):
            if (parts or kept[exits[0]][0.0]) and not go_on():
                break
            scores = model.logits(full[rows]).float()
            laws = {temperature: _law(scores, temperature) for temperature in TEMPERATURES}
            ids = torch.arange(scores.shape[1], device=scores.device)
            for layer in exits:
                draft = model.logits(sample.states[layer][at][rows]).float()
                for temperature, law in laws.items():
                    found = _kept(law, draft, temperature, ids)
                    parts.setdefault((layer, temperature), []).append(found)
        for (layer, temperature), found_parts in parts.items():
            kept[layer][temperature].append(torch.cat(found_parts))
    return {
        layer: {temperature: by_position(found) for temperature, found in of.items()}
        for layer, of in kept.items()
    }


@torch.no_grad()
def jump_agreement(
    model: Model, tail: Tail, jump: Jump, samples: Sequence[Sample], path: tuple[int, int]
) -> dict[float, ByPosition]:
    """Of a path with a jump from layer `path[0]` to `path[1]`, drafting as the route does from
    every token of the answers, as far as `BRIEF_TOKENS` goes: whole laws take their time."""
    first, landing = path
    overlaps: dict[float, list[Tensor]] = {temperature: [] for temperature in TEMPERATURES}
    for starts in batches(drafting_starts(_few(samples), STEPS), _ROWS):
        past, own = starts.gathered(landing, -1), OwnSlots()
        columns: dict[float, list[Tensor]] = {temperature: [] for temperature in TEMPERATURES}
        for step in range(STEPS):
            past = jump(starts.gathered(first, step), past)
            draft = tail.scores(tail.run(past, starts, own, step=step, first=landing))
            full = model.logits(starts.gathered(model.architecture.layers, step)).float()
            for temperature in TEMPERATURES:
                columns[temperature].append(overlap(full, draft, temperature, tail.ids))
        for temperature, column in columns.items():
            overlaps[temperature].append(torch.stack(column, dim=1))
    return {temperature: _shares(torch.cat(rows)) for temperature, rows in overlaps.items()}


def _shares(kept: Tensor) -> ByPosition:  # (n, STEPS)
    """Chances of n drafts by position, each weighed by the chance to get there."""
    kept = kept.double()
    before = torch.cat((torch.ones_like(kept[:, :1]), kept[:, :-1].cumprod(dim=1)), dim=1)
    return _known((kept * before).sum(dim=0).tolist(), before.sum(dim=0).tolist())


def _known(kept: Sequence[float], reached: Sequence[float]) -> ByPosition:
    """Shares of the positions that enough drafts got to."""
    positions = range(len(kept))
    enough = [at for at in positions if at == 0 or reached[at] >= LEAST_REACHED]
    return tuple(kept[at] / reached[at] if reached[at] else 0.0 for at in enough)


def _few(samples: Sequence[Sample]) -> list[Sample]:
    """The first samples of `BRIEF_TOKENS` answered tokens."""
    few: list[Sample] = []
    for sample in samples:
        few.append(sample)
        if sum(one.tokens - one.answer_at for one in few) >= BRIEF_TOKENS:
            break
    return few


def overlap(
    full: Tensor,  # (T, V)
    draft: Tensor,  # (T, n)
    temperature: float,
    ids: Tensor | None = None,  # (n,) int64, what the draft scores; None: the first n
) -> Tensor:  # (T,)
    """The chance that a token of the draft is kept."""
    ids = torch.arange(draft.shape[1], device=draft.device) if ids is None else ids
    return _kept(_law(full, temperature), draft, temperature, ids)


def _law(full: Tensor, temperature: float) -> Tensor:  # (T, V) -> (T,) int64 or (T, V)
    """The greedy token, or the law at a temperature."""
    return full.argmax(dim=-1) if temperature == 0 else (full / temperature).softmax(dim=-1)


def _kept(law: Tensor, draft: Tensor, temperature: float, ids: Tensor) -> Tensor:  # (T,)
    if temperature == 0:
        return (law == ids[draft.argmax(dim=-1)]).float()
    q = (draft / temperature).softmax(dim=-1)
    return torch.minimum(law[:, ids], q).sum(dim=-1)


def by_position(runs: Sequence[Tensor], steps: int = STEPS) -> ByPosition:
    """Chances along texts, one tensor a text, as shares by position in drafts from every token."""
    kept, reached = [0.0] * steps, [0.0] * steps
    for run in runs:
        chance = torch.ones(len(run), dtype=torch.float64)
        for step in range(min(steps, len(run))):
            ahead = run[step:].double()
            chance = chance[: len(ahead)]
            reached[step] += float(chance.sum())
            chance = chance * ahead
            kept[step] += float(chance.sum())
    return _known(kept, reached)


def played_back(tokens: list[int]) -> Row:
    """A request whose answer is known and needs no model: whoever plays it back appends to
    `tokens`."""
    return Row(
        id="played back",
        tokens=tokens,
        prompt_tokens=len(tokens),
        cache_row=0,
        chain=Chain(SamplingParams(), tokens, torch.device("cpu")),
        stop_ids=frozenset(),
        max_tokens=1 << 20,
    )


def guess_agreement(
    drafter: Drafter, samples: Sequence[Sample]
) -> dict[int, tuple[float, float, float]]:
    """Of a drafter that needs no pass, by its class of evidence: the 1st, the 2nd, later tokens."""
    assert isinstance(drafter, Guesser), "only guesses are free to compare"
    tested: dict[int, list[list[int]]] = {}
    for sample in samples:
        for evidence, position, kept in _guessed(drafter, sample):
            counts = tested.setdefault(evidence, [[0, 0, 0], [0, 0, 0]])
            counts[0][min(position, 2)] += 1
            counts[1][min(position, 2)] += kept
    return {
        evidence: _rates(counts[0], counts[1])
        for evidence, counts in tested.items()
        if counts[0][0] >= _ROWS // 2
    }


def _rates(tested: Sequence[int], kept: Sequence[int]) -> tuple[float, float, float]:
    """Shares, drawn a little towards a half where there were few tests."""
    first, second, later = ((k + 1) / (t + 2) for t, k in zip(tested, kept, strict=True))
    return first, second, later


def _guessed(drafter: Drafter, sample: Sample) -> Iterator[tuple[int, int, bool]]:
    """Class, position and outcome of every guess along one answer."""
    assert isinstance(drafter, Guesser)
    ids = sample.ids.tolist()
    row = played_back(ids[: sample.answer_at])
    tokens = row.tokens
    for at in range(sample.answer_at, len(ids)):
        evidence = drafter.evidence(row)
        if evidence is not None:
            for position, token in enumerate(drafter.guess(row, _GUESSED)):
                if at + position >= len(ids):
                    break
                kept = token == ids[at + position]
                yield evidence, position, kept
                if not kept:
                    break
        tokens.append(ids[at])
