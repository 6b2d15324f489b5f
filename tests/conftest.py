"""What holds for every test: a home of its own, no network, and the meaning of the markers.

`model` tests need the real models, so they keep the user's cache and may fetch into it. `gpu` tests
are left out of the collection where there is no CUDA device; nothing is ever skipped in silence,
the header says so.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.loopback import is_loopback
from app.paths import user_paths

# Tiny models gain nothing from a second thread, and workers side by side lose much by waiting for
# each other's. Loading a real model sets its own number.
assert "torch" not in sys.modules, "threads are counted when torch is first imported"
os.environ.setdefault("OMP_NUM_THREADS", "1")


class NetworkForbiddenError(Exception):
    """A test reached for a machine other than this one."""


def has_cuda() -> bool:
    """Whether the driver of a CUDA device is loaded, told without importing torch."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()


def pytest_report_header() -> str:
    return "cuda: " + ("present" if has_cuda() else "absent, tests marked gpu are left out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if has_cuda():
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@pytest.fixture(autouse=True)
def own_home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """Point every folder of the user into the test's own; `model` tests keep the real ones, but for
    that of the shared engine, which must be neither the user's nor outlive the test."""
    keeps_cache = request.node.get_closest_marker("model") is not None
    for variable in list(os.environ):
        kept = keeps_cache and variable == "SSPEC_ASSIST_CACHE"
        if variable.startswith("SSPEC_ASSIST_") and not kept:
            monkeypatch.delenv(variable)
    if keeps_cache:
        for name in ("RUNTIME", "DATA"):
            monkeypatch.setenv(f"SSPEC_ASSIST_{name}", str(tmp_path / name.lower()))
        yield
        from app.stopping import stop_engine

        stop_engine(user_paths())
        return
    home = tmp_path / "home"
    home.mkdir(mode=0o700)  # what others could enter would not do as the folder for sockets
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    for variable in ("CONFIG", "CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{variable}_HOME", str(home / variable.lower()))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    assert user_paths().runtime.is_relative_to(home), "a test must not meet the user's engine"
    yield


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sockets reach this machine only; `model` tests may fetch their model."""
    if request.node.get_closest_marker("model"):
        return
    real = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}

    def guard(name: str) -> Any:
        def call(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
                raise NetworkForbiddenError(f"a test tried to connect to {address}")
            return real[name](self, address)

        return call

    for name in real:
        monkeypatch.setattr(socket.socket, name, guard(name))
