"""What an editor under test is given: a `sspec-assist` of this checkout, folders of its own, and
patience."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil

from app.paths import Paths, user_paths
from app.stopping import stop_engine
from tests.e2e.editors.installed import ROOT

T = TypeVar("T")

MODEL_S = 300.0
"""Longest time in which a model is loaded on a busy machine, or fetched and converted."""
ANSWER_S = 60.0
"""Longest time for anything after that."""
STEADY_S = 0.6
"""What has stayed the same for so long has come to rest; an editor asks 0.2 s after a key."""


def program(script: Path) -> Path:
    """Write the program of this checkout to `script`."""
    script.parent.mkdir(parents=True)
    main = "import sys; sys.argv[0] = 'sspec-assist'; from app.cli import main; main()"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -c "{main}" "$@"\n'
    )
    script.chmod(0o755)
    return script


def environment(folder: Path) -> dict[str, str]:
    """A home and an engine of the editor's own below `folder`; of the user's only the models."""
    home = folder / "home"
    home.mkdir()
    moved = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CONFIG", "CACHE", "DATA")}
    moved |= {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    moved |= {
        f"SSPEC_ASSIST_{field.upper()}": str(getattr(paths_for(folder), field))
        for field in ("cache", "data", "config", "runtime")
    }
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | moved


def paths_for(folder: Path) -> Paths:
    """The program's folders below `folder`, but for the cache."""
    cache = user_paths().cache
    return Paths(
        cache=cache, data=folder / "data", config=folder / "config", runtime=folder / "run"
    )


@contextmanager
def engine_of_its_own(folder: Path) -> Iterator[None]:
    """No engine outlives the test."""
    paths = paths_for(folder)
    try:
        yield
    finally:
        stop_engine(paths)


def servers_of(folder: Path) -> list[psutil.Process]:
    """The language servers that run with the folders of `environment(folder)`."""
    runtime = str(paths_for(folder).runtime)
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_server = process.cmdline()[-1:] == ["lsp"]
            if is_server and process.environ().get("SSPEC_ASSIST_RUNTIME") == runtime:
                found.append(process)
    return found


def until(look: Callable[[], T], what: str, seconds: float = ANSWER_S) -> T:
    """What `look` gives as soon as it is anything; `what` says what is waited for."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what} did not come in {seconds:.0f} s"
        time.sleep(0.05)
    return seen


def settled(look: Callable[[], T], what: str, seconds: float = ANSWER_S) -> T:
    """What `look` gives once it is something and stays the same for a moment."""
    deadline = time.monotonic() + seconds
    seen = until(look, what, seconds)
    while True:
        time.sleep(STEADY_S)
        if (now := look()) == seen:
            return seen
        assert time.monotonic() < deadline, f"{what} did not settle: {now!r} after {seen!r}"
        seen = until(look, what, seconds)
