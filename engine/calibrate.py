"""Measure what rounds cost on this machine: once per model, device, threads and versions, kept on
disk.

Only costs, no text: a round takes the same time whatever the tokens are, so the cache is filled
with noise and a pretended row stands at its end. What is timed are real rounds: a stand-in drafts
so many tokens for nothing and leaves as many layers done as a route does, and each route that
drafts by passes drafts. The arms of one context length take turns and the fastest turn of each is
kept: what else the machine does can only add to a time, and must not look like a kernel.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import torch

from engine.cache import KVCache
from engine.config import MAX_DRAFT_TOKENS
from engine.costs import BucketCosts, CostTable, between, bucket_of
from engine.draft.contract import Drafter, Guesser
from engine.model import Model
from engine.pretend import Stage
from engine.protocol import Route

logger = logging.getLogger(__name__)

CONTEXTS = (128, 1024, 4096)
PASS_ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 33)
REST_ROWS = (2, 3, 4, 5, 8, 9)
DRAFT_KS = (1, 3)
TURNS = 4
BUDGET_S = 16.0
"""Measuring stops between two turns after this long; every arm of the first context length was
timed at least once."""
FILES_KEPT = 4

Arm = tuple[str, int]
"""What is timed ("pass", a route's draft or rest) and its rows or tokens."""


@torch.inference_mode()
def costs_of(
    model: Model,
    drafters: Sequence[Drafter],
    *,
    folder: Path | None,
    digest: str,
    kernels: str = "",
) -> CostTable:
    """The costs kept in `folder` for these weights, this machine and these versions, brought up to
    this minute's speed; what is absent, damaged or of another shape is measured and kept.

    `digest` stands for the weights, `kernels` for the code that multiplies by them.
    """
    stage = Stage(model=model, cache=model.new_cache(1), drafters=drafters)
    key = key_of(model, digest, kernels)
    file = None if folder is None else folder / f"costs-{_short(key)}.json"
    kept = _read(file) if file is not None else None
    if kept is None or kept.key != key or not kept.buckets:
        kept = measure(stage, key)
    elif kept.shapes == {**kept.shapes, **_shapes(drafters)}:
        _bring_up_to_date(stage, kept)
        return kept
    else:
        _measure_routes(stage, kept)
    if file is not None:
        save(kept, file)
    return kept


def key_of(model: Model, digest: str, kernels: str = "") -> str:
    """What costs hold for, as a line to read."""
    threads = f"{torch.get_num_threads()} threads"
    versions = (f"torch {torch.__version__}", f"sspec-assist {_own_version()}")
    code = f"kernels {kernels or 'of torch'}"
    return ", ".join((digest, _device(model.device), threads, *versions, code))


def save(table: CostTable, file: Path) -> None:
    """Write the table and forget the oldest; a full disk costs the next start a few seconds,
    nothing more."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial_file = file.with_suffix(".partial")
        partial_file.write_bytes(msgspec.json.encode(table))
        partial_file.replace(file)
        known = sorted(file.parent.glob("costs-*.json"), key=lambda one: -one.stat().st_mtime)
        for old in known[FILES_KEPT:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("costs were not kept: %s", error)


@torch.inference_mode()
def measure(stage: Stage, key: str) -> CostTable:
    """Time rounds of 1 to 33 rows and each route's drafts, at up to three context lengths."""
    table = CostTable(key=key, shapes=_shapes(stage.drafters))
    contexts = _contexts(stage.cache)
    ends = time.perf_counter() + BUDGET_S
    for at, context in enumerate(contexts):
        now = time.perf_counter()
        if table.buckets and now > ends:
            break
        arms = _pass_arms(stage, context) | _route_arms(stage, context, stage.drafters)
        times = _timed(stage, context, arms, now + (ends - now) / (len(contexts) - at))
        table.buckets[bucket_of(context)] = _summed_up(times, stage.drafters)
    stage.cache.rollback(0, 0)
    return table


@torch.inference_mode()
def route_costs(model: Model, drafter: Drafter, seconds: float) -> dict[int, BucketCosts]:
    """The costs of one drafter alone, by bucket of context lengths, with passes of 1 to 9 rows;
    `seconds` at each length, two turns at least."""
    stage = Stage(model=model, cache=model.new_cache(1), drafters=[drafter])
    found = {}
    for context in _contexts(stage.cache):
        passes = _pass_arms(stage, context)
        few = {arm: run for arm, run in passes.items() if arm[1] == 1 or arm[1] in REST_ROWS}
        arms = few | _route_arms(stage, context, [drafter])
        times = _timed(stage, context, arms, time.perf_counter() + seconds)
        found[bucket_of(context)] = _summed_up(times, [drafter])
    return found


def _measure_routes(stage: Stage, table: CostTable) -> None:
    """Time only the drafters that are not what they were when the table was made."""
    shapes = _shapes(stage.drafters)
    new = [one for one in stage.drafters if table.shapes.get(one.route) != shapes.get(one.route)]
    ends = time.perf_counter() + BUDGET_S
    for context in _contexts(stage.cache):
        known = table.buckets.get(bucket_of(context))
        if known is None:
            continue
        arms = {("pass", 1): _pass_arms(stage, context)["pass", 1]}
        times = _timed(stage, context, arms | _route_arms(stage, context, new), ends)
        found = _summed_up(times, new)
        known.drafts |= found.drafts
        known.rests |= found.rests
    table.shapes |= shapes
    stage.cache.rollback(0, 0)


def _bring_up_to_date(stage: Stage, table: CostTable) -> None:
    context = _contexts(stage.cache)[0]
    arms = {("pass", 1): _pass_arms(stage, context)["pass", 1]}
    now = min(_timed(stage, context, arms, float("inf"))["pass", 1])
    factor = now / table.unit_ms(context)
    for costs in table.buckets.values():
        costs.unit_ms *= factor


def _contexts(cache: KVCache) -> list[int]:
    """The context lengths to measure at; a cache too short for all still has one."""
    room = cache.slots - max(PASS_ROWS)
    return [min(CONTEXTS[0], room), *(context for context in CONTEXTS[1:] if context <= room)]


def _shapes(drafters: Sequence[Drafter]) -> dict[Route, str]:
    """What the costs of each route that drafts by passes depend on, as far as it can be told."""
    return {
        one.route: f"{one.reusable_layers} layers kept, tapped at {one.tap_layer}"
        for one in drafters
        if not isinstance(one, Guesser)
    }


def _pass_arms(stage: Stage, context: int) -> dict[Arm, Callable[[], float]]:
    rows = [rows for rows in PASS_ROWS if context + rows <= stage.cache.slots]
    return {("pass", n): partial(stage.rest_ms, context, n) for n in rows}


def _route_arms(
    stage: Stage, context: int, drafters: Sequence[Drafter]
) -> dict[Arm, Callable[[], float]]:
    arms: dict[Arm, Callable[[], float]] = {}
    for drafter in drafters:
        if isinstance(drafter, Guesser) or not stage.can_draft(context, drafter):
            continue
        for k in DRAFT_KS:
            arms[f"draft {drafter.route}", k] = partial(stage.draft_ms, context, drafter, k)
        if drafter.reusable_layers:
            for rows in REST_ROWS:
                arms[f"rest {drafter.route}", rows] = partial(
                    stage.rest_ms, context, rows, drafter.reusable_layers
                )
    return arms


def _timed(
    stage: Stage, context: int, arms: Mapping[Arm, Callable[[], float]], ends: float
) -> dict[Arm, list[float]]:
    """Milliseconds of each turn of each arm."""
    stage.fill(context)
    times: dict[Arm, list[float]] = {arm: [] for arm in arms}
    for turn in range(TURNS + 1):
        if turn > 1 and time.perf_counter() > ends:
            break
        for arm, run in arms.items():
            elapsed = run()
            if turn:  # the first turn warms up
                times[arm].append(elapsed)
    return times


def _summed_up(times: Mapping[Arm, Sequence[float]], drafters: Sequence[Drafter]) -> BucketCosts:
    fastest = {arm: min(seen) for arm, seen in times.items()}
    unit = fastest["pass", 1]

    def ratios(what: str) -> dict[int, float]:
        return {n: ms / unit for (arm, n), ms in fastest.items() if arm == what}

    costs = BucketCosts(unit_ms=unit, passes=between(ratios("pass"), MAX_DRAFT_TOKENS + 1))
    for drafter in drafters:
        if isinstance(drafter, Guesser):
            continue
        # A route that could not be tried must not look as if it drafted for nothing.
        drafts = ratios(f"draft {drafter.route}") or {1: 1.0}
        costs.drafts[drafter.route] = between(drafts, MAX_DRAFT_TOKENS)
        rests = ratios(f"rest {drafter.route}")
        if rests:
            wider = {n: ratio for n, ratio in ratios("pass").items() if n > max(rests)}
            saved = rests[max(rests)] / between(ratios("pass"), max(rests))[-1] if wider else 1.0
            rests |= {n: ratio * saved for n, ratio in wider.items()}
            costs.rests[drafter.route] = between(rests, MAX_DRAFT_TOKENS + 1)
    return costs


def _own_version() -> str:
    try:
        return version("sspec-assist")
    except PackageNotFoundError:
        return "from its source"


def _device(device: torch.device) -> str:
    if device.type != "cuda":
        return f"{platform.machine()} {device.type}"
    name: str = torch.cuda.get_device_name(device)
    return name


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def _read(file: Path) -> CostTable | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=CostTable)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("kept costs in %s can't be read and are measured again: %s", file, error)
        return None
