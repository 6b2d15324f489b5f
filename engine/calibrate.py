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
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import torch

from engine.cost_arms import contexts_of, fastest_of, named, pass_arms, route_arms, summed_up, timed
from engine.costs import CostTable, bucket_of
from engine.draft.contract import Drafter, Guesser
from engine.model import Model
from engine.pretend import Stage
from engine.protocol import Route

logger = logging.getLogger(__name__)

BUDGET_S = 16.0
"""Measuring stops between two turns after this long; every arm of the first context length was
timed at least once."""
FILES_KEPT = 4
CALM = 0.75
"""Share of the processor time of its threads that plain rounds get at least on a machine with
nothing else to do (measured on two cores: 0.89 to 0.98; beside two other jobs 0.36 to 0.44)."""
LOOK_S = 0.25


DraftersAt = Callable[[int], Sequence[Drafter]]
"""What drafts at a context length: calibration may have found another exit for each."""


@torch.inference_mode()
def costs_of(
    model: Model,
    drafters: DraftersAt,
    *,
    folder: Path | None,
    digest: str,
    kernels: str = "",
    calm: Callable[[Stage], bool] | None = None,
) -> CostTable:
    """The costs kept in `folder` for these weights, this machine and these versions, brought up to
    this minute's speed; what is absent, damaged or of another shape is measured and kept, and what
    was measured on a busy machine is measured again on a calm one.

    `digest` stands for the weights, `kernels` for the code that multiplies by them, `calm` asks the
    machine.
    """
    stage = Stage(model=model, cache=model.new_cache(1), drafters=drafters(0))
    key = key_of(model, digest, kernels)
    file = None if folder is None else folder / f"costs-{_short(key)}.json"
    kept = _read(file) if file is not None else None
    calm = calm or is_calm
    if kept is None or kept.key != key or not kept.buckets or (kept.busy and calm(stage)):
        was_calm = calm(stage)
        kept = measure(stage, key, drafters)
        kept.busy = not (was_calm and calm(stage))
    elif kept.shapes == {**kept.shapes, **_shapes(drafters, stage)}:
        _bring_up_to_date(stage, kept)
        return kept
    else:
        was_calm = calm(stage)
        _measure_routes(stage, kept, drafters)
        kept.busy = kept.busy or not (was_calm and calm(stage))
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
def measure(stage: Stage, key: str, drafters: DraftersAt) -> CostTable:
    """Time rounds of 1 to 33 rows and each route's drafts, at up to three context lengths."""
    table = CostTable(key=key, shapes=_shapes(drafters, stage))
    contexts = contexts_of(stage.cache)
    ends = time.perf_counter() + BUDGET_S
    for at, context in enumerate(contexts):
        now = time.perf_counter()
        if table.buckets and now > ends:
            break
        here = named(drafters(context))
        arms = pass_arms(stage, context) | route_arms(stage, context, here)
        times = timed(stage, context, arms, now + (ends - now) / (len(contexts) - at))
        table.buckets[bucket_of(context)] = summed_up(fastest_of(times), here)
    stage.cache.rollback(0, 0)
    return table


def is_calm(stage: Stage) -> bool:
    """Whether this process gets the processor to itself; of another device it is taken to."""
    if stage.model.device.type != "cpu":
        return True
    context = contexts_of(stage.cache)[0]
    stage.fill(context)
    began, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < LOOK_S:
        stage.rest_ms(context, 1)
    had = (time.process_time() - used) / (time.perf_counter() - began)
    stage.cache.rollback(0, 0)
    return had >= CALM * torch.get_num_threads()


def _measure_routes(stage: Stage, table: CostTable, drafters: DraftersAt) -> None:
    """Time only the drafters that are not what they were when the table was made."""
    shapes = _shapes(drafters, stage)
    changed = {route for route, shape in shapes.items() if table.shapes.get(route) != shape}
    ends = time.perf_counter() + BUDGET_S
    for context in contexts_of(stage.cache):
        costs = table.buckets.get(bucket_of(context))
        if costs is None:
            continue
        new = named(one for one in drafters(context) if one.route in changed)
        arms = {("pass", 1): pass_arms(stage, context)["pass", 1]}
        times = timed(stage, context, arms | route_arms(stage, context, new), ends)
        found = summed_up(fastest_of(times), new)
        for route in changed:  # a draft that leaves nothing to take over has no rest any more
            costs.rests.pop(route, None)
        costs.drafts |= found.drafts
        costs.rests |= found.rests
    table.shapes |= shapes
    stage.cache.rollback(0, 0)


def _bring_up_to_date(stage: Stage, table: CostTable) -> None:
    context = contexts_of(stage.cache)[0]
    arms = {("pass", 1): pass_arms(stage, context)["pass", 1]}
    now = min(timed(stage, context, arms, float("inf"))["pass", 1])
    factor = now / table.unit_ms(context)
    for costs in table.buckets.values():
        costs.unit_ms *= factor


def _shapes(drafters: DraftersAt, stage: Stage) -> dict[Route, str]:
    """What the costs of each route that drafts by passes depend on, as far as it can be told."""
    keys: dict[Route, dict[str, None]] = {}
    for context in contexts_of(stage.cache):
        for one in drafters(context):
            if not isinstance(one, Guesser):
                keys.setdefault(one.route, {})[one.cost_key] = None
    return {route: ", later ".join(each) for route, each in keys.items()}


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
