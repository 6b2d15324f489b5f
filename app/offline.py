"""The root of in-process use: from settings to an engine that answers, in this process alone.

It resolves the model's name to files, loads them, measures what passes cost on this machine and
hands over a session or an engine; torch comes in inside these functions only. Invariant: stages are
told on stderr, nothing on stdout, and whatever ends the block, the engine's thread is gone.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from app import model_store
from app.heap import keep_freed_memory
from app.paths import user_paths
from app.progress import shown_on
from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.progress import Report
    from app.settings import ModelSettings, Settings
    from engine.config import DraftSettings, Wish
    from engine.loading import Loaded
    from engine.protocol import Engine, RouteChoice
    from engine.session import Session
    from engine.trace import TraceFile


SPINS = "10000"
"""How often an OpenMP thread looks for work before it sleeps. Its own 300,000 are a whole time
slice: on two cores with one other busy process a 14 ms pass then took 40 ms on average (28 ms with
this), since a thread that spins keeps the one it waits for off the core. Quiet, both take 14 ms."""


@contextmanager
def open_engine(settings: Settings, trace: TraceFile | None = None) -> Iterator[Engine]:
    """An engine with the model of `settings`, whose rounds are written to `trace` if there is one;
    closed when the context is left.

    Raises `ModelError` and `MemoryLimitError` as resolving and loading do, before the block runs.
    """
    from engine.service import LocalEngine

    session = open_session(settings)
    session.trace = trace
    engine = LocalEngine(session)
    try:
        yield engine
    finally:
        engine.close()


def open_session(settings: Settings) -> Session:
    """A session with the model of `settings`, for callers that step answers themselves.

    Raises as `open_engine` does.
    """
    with shown_on(sys.stderr) as progress:
        return load_session(settings.model, settings.decode, progress)


def load_session(model: ModelSettings, decode: DraftSettings, progress: Report) -> Session:
    """The same for whoever shows the stages in its own way; `progress` may raise to end the work.

    Raises as `open_engine` does.
    """
    _prepare_process()
    paths = user_paths()
    load_settings = msgspec.structs.replace(model.load(), twin=_twin_wish(decode.route))
    source = model_store.resolve(model.model, paths, progress)
    progress("starting", 0, 0)
    from engine.loading import load
    from engine.out_of_memory import told
    from engine.session import Session, measured_costs
    from engine.twin import with_twin

    loaded = load(
        source.path,
        load_settings,
        paths.converted_dir(),
        progress,
        heads=paths.heads_dir(),
        kernels=paths.kernels_dir(),
    )
    loaded = with_twin(
        loaded, source.path, load_settings, paths.converted_dir(), progress, paths.kernels_dir()
    )
    progress("measuring this machine", 0, 0)
    with told("while this machine was measured", "Start with a smaller model."):
        costs = measured_costs(loaded, decode, loaded.folder)
    return Session(loaded, decode, costs, name=source.name)


def _prepare_process() -> None:
    """What has to be set before torch loads its OpenMP and before the first pass."""
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # a value of the user's own stays
    keep_freed_memory()


def load_model(model: ModelSettings, *, context_tokens: int) -> Loaded:
    """The model by itself, for those who measure or train it: without a twin, and unless the user
    says otherwise with `context_tokens` at most.

    Stages are told on stderr. Raises as `open_engine` does.
    """
    _prepare_process()
    paths, wanted = user_paths(), model.load()
    with shown_on(sys.stderr) as progress:
        source = model_store.resolve(model.model, paths, progress)
        progress("starting", 0, 0)
        from engine.loading import load

        load_it = partial(
            load,
            source.path,
            cache_folder=paths.converted_dir(),
            progress=progress,
            heads=paths.heads_dir(),
            kernels=paths.kernels_dir(),
        )
        if wanted.context_tokens is None:
            enough = msgspec.structs.replace(wanted, context_tokens=context_tokens)
            with suppress(RequestError):  # of a model whose own context is shorter
                return load_it(settings=enough)
        return load_it(settings=wanted)


def _twin_wish(route: RouteChoice) -> Wish:
    """Whether the NF4 twin is worth its memory for answers that draft like this."""
    if route == "low_precision":
        return "always"
    return "auto" if route == "auto" else "never"
