"""What a plain step, a wider pass and the parts of a draft step cost on this machine.

Shares of a plain step, the fastest of a few turns that the arms take one after another: what else
the machine does can only add to a time. Only costs, no text: the cache is filled with noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from engine.cache import Span
from engine.draft.head_file import Head
from engine.model import Model
from engine.train.agreement import STEPS
from engine.train.candidates import packed
from engine.train.neurons import kept_of
from engine.train.prospect import PRUNED, StepCosts

CONTEXT = 256
TURNS = 12
OVERHEAD = 0.02
"""Python, drawing and joining of one draft step, as a share of a plain step."""


@torch.no_grad()
def step_costs(model: Model) -> StepCosts:
    """Measure; takes a second or two. The jump is one without a network beside its map."""
    layers = model.architecture.layers
    cache = model.new_cache(1)
    context = min(CONTEXT, cache.slots - STEPS - 1)
    for block in (*cache.keys, *cache.values):
        block[0, :, :context].normal_()
    cache.lengths[0] = context
    jump = _pretended_jump(model)
    states = model.embed(torch.zeros(STEPS + 1, dtype=torch.int64, device=model.device))

    def run(of: Model, rows: int, stop: int, *, scored: bool) -> None:
        span = Span(row=0, start=context, count=rows)
        hidden = of.run_layers(states[:rows].clone(), [span], cache, first=0, stop=stop)
        if scored:
            of.logits(hidden).argmax(dim=-1).tolist()

    some = max(1, layers // 3)
    kept = kept_of(model.architecture.feed_forward, PRUNED)
    neurons = torch.arange(kept, device=model.device)
    pruned = model.pruned(dict.fromkeys(range(some), neurons))
    arms: dict[str, Callable[[], object]] = {
        f"pass {rows}": partial(run, model, rows, layers, scored=True)
        for rows in range(1, STEPS + 2)
    }
    arms["layers"] = partial(run, model, 1, some, scored=False)
    arms["pruned"] = partial(run, pruned, 1, some, scored=False)
    arms["head"] = partial(model.logits, states[:1])
    arms["jump"] = partial(jump, states[:1], states[:1])
    spent = _fastest(arms)
    unit = spent["pass 1"]
    return StepCosts(
        layer=spent["layers"] / some / unit,
        pruned=min(spent["pruned"], spent["layers"]) / some / unit,
        head=spent["head"] / unit,
        jump=spent["jump"] / unit,
        overhead=OVERHEAD,
        pass_ratio={rows: spent[f"pass {rows}"] / unit for rows in range(1, STEPS + 2)},
    )


def _pretended_jump(model: Model) -> Head:
    wide = model.architecture.hidden
    weight = torch.zeros((wide, 2 * wide), dtype=torch.bfloat16, device=model.device)
    return packed({"jump.weight": weight, "jump.bias": weight[:, 0]}, model.native)


def _fastest(arms: Mapping[str, Callable[[], object]]) -> dict[str, float]:  # seconds
    found = dict.fromkeys(arms, float("inf"))
    for _ in range(TURNS):
        for name, run in arms.items():
            began = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - began)
    return found
