"""What is timed to know the costs of rounds: arms that take turns, and what their times add up to.

An arm is a pass of so many rows, a drafter's draft of so many tokens, or the rest of a round behind
it; each is a real round of `pretend`. The fastest turn of each is kept: what else the machine does
can only add to a time. It keeps nothing and decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from engine.cache import KVCache
from engine.config import MAX_DRAFT_TOKENS
from engine.costs import BucketCosts, between
from engine.draft.contract import Drafter, Guesser
from engine.pretend import Stage

CONTEXTS = (128, 1024, 4096)
PASS_ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 33)
REST_ROWS = (2, 3, 4, 5, 8, 9)
DRAFT_KS = (1, 3)
TURNS = 4

Arm = tuple[str, int]
"""What is timed ("pass", a drafter's draft or rest) and its rows or tokens."""


def contexts_of(cache: KVCache) -> list[int]:
    """The context lengths to measure at; a cache too short for all still has one."""
    room = cache.slots - max(PASS_ROWS)
    return [min(CONTEXTS[0], room), *(context for context in CONTEXTS[1:] if context <= room)]


def named(drafters: Iterable[Drafter]) -> dict[str, Drafter]:
    """By route."""
    return {one.route: one for one in drafters}


def pass_arms(stage: Stage, context: int) -> dict[Arm, Callable[[], float]]:
    """Passes of every width that the cache has room for."""
    rows = [rows for rows in PASS_ROWS if context + rows <= stage.cache.slots]
    return {("pass", n): partial(stage.rest_ms, context, n) for n in rows}


def route_arms(
    stage: Stage,
    context: int,
    drafters: Mapping[str, Drafter],
    rest_rows: Sequence[int] = REST_ROWS,
) -> dict[Arm, Callable[[], float]]:
    """Drafts of every drafter that has something to offer here, and what follows them."""
    arms: dict[Arm, Callable[[], float]] = {}
    for name, drafter in drafters.items():
        if isinstance(drafter, Guesser) or not stage.can_draft(context, drafter):
            continue
        for k in DRAFT_KS:
            arms[f"draft {name}", k] = partial(stage.draft_ms, context, drafter, k)
        if drafter.reusable_layers:
            for rows in rest_rows:
                arms[f"rest {name}", rows] = partial(
                    stage.rest_ms, context, rows, drafter.reusable_layers
                )
    return arms


def timed(
    stage: Stage,
    context: int,
    arms: Mapping[Arm, Callable[[], float]],
    ends: float,
    *,
    turns: tuple[int, int] = (1, TURNS),
) -> dict[Arm, list[float]]:
    """Milliseconds of each turn of each arm, of so many turns at least and at most."""
    stage.fill(context)
    times: dict[Arm, list[float]] = {arm: [] for arm in arms}
    least, most = turns
    for turn in range(most + 1):
        if turn > least and time.perf_counter() > ends:
            break
        for arm, run in arms.items():
            elapsed = run()
            if turn:  # the first turn warms up
                times[arm].append(elapsed)
    return times


def fastest_of(times: Mapping[Arm, Sequence[float]]) -> dict[Arm, float]:
    """The least of each arm's turns, and of those of the same kind that do more: whatever else ran
    can only add."""
    return {
        (what, n): min(min(seen) for (other, m), seen in times.items() if other == what and m >= n)
        for what, n in times
    }


def summed_up(fastest: Mapping[Arm, float], drafters: Mapping[str, Drafter]) -> BucketCosts:
    """The costs that these times (ms) stand for."""
    unit = fastest["pass", 1]

    def ratios(what: str) -> dict[int, float]:
        return {n: ms / unit for (arm, n), ms in fastest.items() if arm == what}

    costs = BucketCosts(unit_ms=unit, passes=between(ratios("pass"), MAX_DRAFT_TOKENS + 1))
    for name, drafter in drafters.items():
        if isinstance(drafter, Guesser):
            continue
        # A route that could not be tried must not look as if it drafted for nothing.
        drafts = ratios(f"draft {name}") or {1: 1.0}
        costs.drafts[drafter.route] = between(drafts, MAX_DRAFT_TOKENS)
        rests = ratios(f"rest {name}")
        if rests:
            wider = {n: ratio for n, ratio in ratios("pass").items() if n > max(rests)}
            saved = rests[max(rests)] / between(ratios("pass"), max(rests))[-1] if wider else 1.0
            rests |= {n: ratio * saved for n, ratio in wider.items()}
            costs.rests[drafter.route] = between(rests, MAX_DRAFT_TOKENS + 1)
    return costs
