"""Freed memory is reused, not given to the system and fetched again page by page."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROUNDS = """
import ctypes, resource, sys
sys.path.insert(0, sys.argv[1])
from app import heap
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def round_of_laws():
    blocks = [library.malloc(2_431_000) for _ in range(3)]
    for block in blocks:
        library.memset(block, 1, 2_431_000)
    for block in blocks:
        library.free(block)
if sys.argv[2] == "kept":
    heap.keep_freed_memory()
round_of_laws()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    round_of_laws()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
heap.give_back_freed_memory()
round_of_laws()
"""


def _faults(how: str, root: str) -> int:
    command = [sys.executable, "-c", ROUNDS, root, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_rounds_reuse_what_earlier_rounds_freed(pytestconfig: pytest.Config) -> None:
    faults = _faults("kept", str(pytestconfig.rootpath))
    assert faults < 50 * 100  # each round touches 1,780 pages
