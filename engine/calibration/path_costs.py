"""What drafting by each of many paths costs at one context length, all measured side by side.

Costs are compared with each other here, so the paths share their passes and take turns. Invariant:
no arm that does less is told to take longer than one that does more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import torch

from engine.cost_arms import Arm, fastest_of, pass_arms, route_arms, summed_up, timed
from engine.costs import BucketCosts
from engine.draft.contract import Drafter
from engine.pretend import Stage

PATH_ROWS = (2, 4, 5, 9)
"""Of the verifying pass."""
PATH_TURNS = (2, 12)


@torch.inference_mode()
def path_costs(
    stage: Stage, context: int, paths: Mapping[str, Drafter], seconds: float
) -> dict[str, BucketCosts]:
    """The costs of several drafters of whatever routes at one context length, by name. They take
    turns among themselves and with the same passes of 1 to 9 rows, for `seconds`
    within the bounds of `PATH_TURNS`."""
    passes = pass_arms(stage, context)
    arms = {arm: run for arm, run in passes.items() if arm[1] in (1, *PATH_ROWS)}
    for name, drafter in paths.items():
        own = replace(stage, drafters=[drafter])
        arms |= route_arms(own, context, {name: drafter}, PATH_ROWS)
    times = timed(stage, context, arms, time.perf_counter() + seconds, turns=PATH_TURNS)
    stage.cache.rollback(0, 0)
    fastest = _bounded(fastest_of(times), paths)
    return {name: summed_up(fastest, {name: drafter}) for name, drafter in paths.items()}


def _bounded(fastest: Mapping[Arm, float], paths: Mapping[str, Drafter]) -> dict[Arm, float]:
    """Times that whatever else ran made too long, brought down to those of other paths' arms that
    do more: more layers drafted, fewer layers done before."""
    exits = {name: one.reusable_layers for name, one in paths.items() if one.tap_layer is None}

    def does_more(arm: Arm, other: Arm) -> bool:
        kind, _, name = arm[0].partition(" ")
        other_kind, _, other_name = other[0].partition(" ")
        if kind != other_kind or arm[1] > other[1]:
            return False
        if name == other_name:
            return True
        if name not in exits or other_name not in exits:
            return False
        deeper = exits[other_name] - exits[name]
        return deeper >= 0 if kind == "draft" else deeper <= 0

    return {
        arm: min(ms for other, ms in fastest.items() if does_more(arm, other)) for arm in fastest
    }
