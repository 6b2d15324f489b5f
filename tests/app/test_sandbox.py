"""The sandbox lets right programs pass and survives what generated code may do."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from app.sandbox import Limits, run_program

SHORT = Limits(wall_s=1.0)


def test_a_right_program_passes() -> None:
    outcome = run_program(
        "import math, json, collections, re, typing, hashlib\nassert math.sqrt(4) == 2\n"
        "open('note.txt', 'w').write('a small file is fine')\n"
    )
    assert outcome.passed, outcome.detail


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("assert 1 + 1 == 3", "AssertionError"),
        ("def broken(:\n", "SyntaxError"),
        ("print(undefined)", "NameError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("input()", "EOFError"),
    ],
)
def test_a_wrong_program_fails_and_says_why(source: str, said: str) -> None:
    outcome = run_program(source)
    assert outcome.result == "failed"
    assert said in outcome.detail


@pytest.mark.parametrize(
    "leave", ["raise SystemExit", "import sys; sys.exit(0)", "import os; os._exit(0)"]
)
def test_leaving_before_the_end_is_not_passing(leave: str) -> None:
    assert run_program(f"{leave}\nassert False").result == "failed"


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ],
)
def test_an_endless_program_is_killed(loop: str) -> None:
    began = time.perf_counter()
    assert run_program(loop, SHORT).result == "timeout"
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "start",
    [
        "import os\nos.fork()",
        "import subprocess\nsubprocess.run(['true'])",
        "import threading\nthreading.Thread(target=print).start()",
    ],
)
def test_no_second_process_or_thread(start: str) -> None:
    outcome = run_program(start)
    assert outcome.result == "failed"
    assert "unavailable" in outcome.detail or "can't start" in outcome.detail


def test_memory_is_bounded() -> None:
    outcome = run_program("x = bytearray(2 << 30)")
    assert outcome.result == "failed"
    assert "MemoryError" in outcome.detail


def test_files_are_bounded() -> None:
    outcome = run_program("open('big', 'wb').write(bytes(2 << 20))")
    assert outcome.result == "failed"
    assert "too large" in outcome.detail


def test_noise_on_its_outputs_is_bounded() -> None:
    outcome = run_program("import sys\nwhile True: sys.stderr.write('noise ' * 9999)", SHORT)
    assert not outcome.passed
    assert len(outcome.detail) <= 400


def test_the_limits_can_not_be_lifted() -> None:
    outcome = run_program("import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (99, 99))\n")
    assert outcome.result == "failed"


def test_each_program_starts_in_an_empty_folder() -> None:
    source = "import os\nassert os.listdir() == []\nopen('left', 'w').close()\n"
    assert run_program(source).passed
    assert run_program(source).passed


def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)  # root, whom no mode stops, has become nobody inside
    outcome = run_program(f"open({str(closed / 'intruder')!r}, 'w')")
    assert outcome.result == "failed"
    assert "PermissionError" in outcome.detail
    assert not list(closed.iterdir())


def test_the_network_is_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=2)\n"
        assert run_program(source).result == "failed"
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            pass  # the server is there, so it was the sandbox that refused
