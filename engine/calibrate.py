"""Measure what passes cost on this machine: once per model and device, kept on disk.

Only costs, no text: a pass takes the same time whatever the tokens are, so the cache is filled with
noise and its pointer moved. The arms of one context length take turns and the fastest turn of
each is kept: what else the machine does can only add to a time, and must not look like a kernel.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import torch

from engine.cache import KVCache, Span
from engine.costs import BucketCosts, CostTable, bucket_of
from engine.model import Model

logger = logging.getLogger(__name__)

CONTEXTS = (128, 1024, 4096)
PASS_ROWS = (1, 2, 3, 4, 5, 6, 8, 9)
TAIL_ROWS = (2, 3, 4, 5, 9)
TURNS = 5
BUDGET_S = 12.0
"""Measuring stops between two turns after this long; every arm was timed at least once."""


@torch.inference_mode()
def costs_of(model: Model, exit_layer: int, file: Path | None) -> CostTable:
    """The costs kept in `file`, brought up to this minute's speed; measured anew if absent,
    damaged, or of another exit layer."""
    cache = model.new_cache(1)
    kept = _read(file) if file is not None else None
    layers = model.architecture.layers
    if kept is None or (kept.exit_layer, kept.layers) != (exit_layer, layers):
        kept = measure(model, cache, exit_layer)
        if file is not None:
            save(kept, file)
        return kept
    context = _contexts(cache)[0]
    _pretend(cache, context)
    one_row = partial(_one_pass, model, cache, context, 1)
    now = min(_time(one_row) for _ in range(TURNS))
    factor = now / kept.at(context).unit_ms
    for costs in kept.buckets.values():
        costs.unit_ms *= factor
    return kept


def save(table: CostTable, file: Path) -> None:
    """Write the table; a full disk costs the next start a few seconds, nothing more."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(table))
        partial.replace(file)
    except OSError as error:
        logger.warning("costs were not kept: %s", error)


@torch.inference_mode()
def measure(model: Model, cache: KVCache, exit_layer: int) -> CostTable:
    """Time passes of 1…9 rows, a draft step and verify passes from the exit layer, at up to three
    context lengths."""
    table = CostTable(exit_layer=exit_layer, layers=model.architecture.layers)
    ends = time.perf_counter() + BUDGET_S
    for context in _contexts(cache):
        if not table.buckets or time.perf_counter() < ends:
            table.buckets[bucket_of(context)] = _measure_at(model, cache, exit_layer, context, ends)
    cache.rollback(0, 0)
    return table


def _contexts(cache: KVCache) -> list[int]:
    """The context lengths to measure at; a cache too short for all still has one."""
    room = cache.slots - max(PASS_ROWS)
    return [min(CONTEXTS[0], room), *(context for context in CONTEXTS[1:] if context <= room)]


def _measure_at(
    model: Model, cache: KVCache, exit_layer: int, context: int, ends: float
) -> BucketCosts:
    _pretend(cache, context)
    arms: dict[tuple[str, int], Callable[[], None]] = {}
    for rows in PASS_ROWS:
        arms["pass", rows] = partial(_one_pass, model, cache, context, rows)
    for rows in TAIL_ROWS:
        arms["tail", rows] = partial(_tail_pass, model, cache, context, rows, exit_layer)
    arms["draft", 1] = partial(_one_pass, model, cache, context, 1, stop=exit_layer)
    times: dict[tuple[str, int], list[float]] = {arm: [] for arm in arms}
    for turn in range(TURNS + 1):
        if turn > 1 and time.perf_counter() > ends:
            break
        for arm, run in arms.items():
            elapsed = _time(run)
            if turn:  # the first turn warms up
                times[arm].append(elapsed)
    unit = min(times["pass", 1])
    ratio = {arm: min(seen) / unit for arm, seen in times.items()}
    return BucketCosts(
        unit_ms=unit,
        pass_ratio={rows: ratio["pass", rows] for rows in PASS_ROWS},
        draft_ratio=ratio["draft", 1],
        tail_ratio={rows: ratio["tail", rows] for rows in TAIL_ROWS},
    )


def _one_pass(
    model: Model, cache: KVCache, context: int, rows: int, stop: int | None = None
) -> None:
    span = Span(row=0, start=context, count=rows)
    hidden = model.embed(torch.zeros(rows, dtype=torch.int64, device=model.device))
    last = model.architecture.layers if stop is None else stop
    hidden = model.run_layers(hidden, [span], cache, first=0, stop=last)
    model.logits(hidden).argmax(dim=-1).tolist()


def _tail_pass(model: Model, cache: KVCache, context: int, rows: int, exit_layer: int) -> None:
    """What a verify pass does after `rows − 1` early-exit drafts: the lower layers of the last
    draft, then the rest for all rows."""
    span = Span(row=0, start=context, count=rows)
    last = Span(row=0, start=context + rows - 1, count=1)
    hidden = model.embed(torch.zeros(rows, dtype=torch.int64, device=model.device))
    model.run_layers(hidden[-1:], [last], cache, first=0, stop=exit_layer)
    hidden = model.run_layers(
        hidden, [span], cache, first=exit_layer, stop=model.architecture.layers
    )
    model.logits(hidden).argmax(dim=-1).tolist()


def _pretend(cache: KVCache, context: int) -> None:
    """Make the row look `context` tokens long, in memory that is really there: untouched pages
    all read from one, and would flatter attention."""
    for block in (*cache.keys, *cache.values):
        block[0, :, :context].normal_()
    cache.lengths[0] = context


def _time(run: Callable[[], None]) -> float:  # ms
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def _read(file: Path) -> CostTable | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=CostTable)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("kept costs in %s can't be read and are measured again: %s", file, error)
        return None
