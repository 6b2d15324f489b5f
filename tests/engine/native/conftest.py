"""The C kernels, compiled once; where the processor can't run them there is nothing to collect."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.native.bindings import Native
from engine.native.build import native_kernels
from engine.native.suitable import unsuitable

collect_ignore_glob = ["test_*.py"] if unsuitable() else []


@pytest.fixture(scope="session")
def kernels_folder(pytestconfig: pytest.Config) -> Path:
    """Where compiled kernels stay between runs."""
    assert pytestconfig.cache is not None
    return Path(pytestconfig.cache.mkdir("kernels"))


@pytest.fixture(scope="session")
def native(kernels_folder: Path) -> Native:
    """The library."""
    built = native_kernels(kernels_folder)
    assert built.native is not None, built.reason
    return built.native
