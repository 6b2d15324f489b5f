"""What a pass costs, with torch's operators and with the C kernels, in turns in one process.

    python -m tests.measure.pass_cost --model PATH [--threads 2] [--turns 7] [--cpu]

Prints milliseconds (median and best) of embed + layers + head for some widths and contexts. `--cpu`
counts the calling thread's CPU time instead of the clock's, for one thread on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from app.paths import user_paths
from engine.cache import KVCache, Span
from engine.config import LoadSettings
from engine.converted import read_weights
from engine.fastpath import FastModel
from engine.loading import load
from engine.model import Model
from engine.native.build import native_kernels

WIDTHS = (1, 2, 4, 8, 16)
CONTEXTS = (200, 4000)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--contexts", type=int, nargs="*", default=CONTEXTS)
    parser.add_argument("--cpu", action="store_true")
    chosen = parser.parse_args()
    models = _models(chosen.model, max(chosen.contexts) + max(chosen.widths))
    torch.set_num_threads(chosen.threads)
    caches = {name: model.new_cache(1) for name, model in models.items()}
    clock = time.thread_time if chosen.cpu else time.perf_counter
    for context in chosen.contexts:
        for cache in caches.values():
            for block in (*cache.keys, *cache.values):
                block[0, :, :context].normal_()
        for width in chosen.widths:
            _compare(models, caches, context, width, chosen.turns, clock)


@torch.inference_mode()
def _compare(
    models: dict[str, Model],
    caches: dict[str, KVCache],
    context: int,
    width: int,
    turns: int,
    clock: Callable[[], float],
) -> None:
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(turns + 1):
        for name, model in models.items():
            began = clock()
            _one(model, caches[name], context, width)
            if turn:
                times[name].append((clock() - began) * 1e3)
    told = [f"{name} {statistics.median(t):7.2f} ({min(t):7.2f})" for name, t in times.items()]
    print(f"context {context:5} rows {width:3}   {'   '.join(told)}", flush=True)


def _one(model: Model, cache: KVCache, context: int, width: int) -> None:
    span = Span(row=0, start=context, count=width)
    hidden = model.embed(torch.zeros(width, dtype=torch.int64))
    hidden = model.run_layers(hidden, [span], cache, first=0, stop=model.architecture.layers)
    model.logits(hidden).argmax(dim=-1).tolist()


def _models(path: Path, tokens: int) -> dict[str, Model]:
    """The same weights, read once, under both kinds of operators."""
    settings = LoadSettings(device="cpu", context_tokens=tokens + 64)
    loaded = load(path, settings, user_paths().converted_dir(), lambda *_: None)
    kernels = native_kernels(Path(tempfile.gettempdir()) / "sspec-assist-kernels")
    if kernels.native is None:
        sys.exit(kernels.reason)
    tensors = read_weights(loaded.folder, lambda *_: None)
    arch, context = loaded.architecture, loaded.context_tokens
    return {
        "eager": loaded.model,
        "native": FastModel(arch, tensors, context_tokens=context, native=kernels.native),
    }


if __name__ == "__main__":
    main()
