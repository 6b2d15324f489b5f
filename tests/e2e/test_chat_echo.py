"""How long a key takes to show while the real engine loads, reads a prompt and decodes.

The goal is 100 ms for 99 keys of 100, which a quiet machine keeps; what is printed says whether
this one did. Only a freeze fails: other work on the same cores may hold any single key up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pty_window import Window, window

pytestmark = [pytest.mark.model, pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from app.entry import main; main()"]
KEYS = "QZJXVW"
"""Letters that nothing on the screen is likely to hold."""
PRESSES = 100
BETWEEN_S = 0.03
ECHO_MEDIAN_S, ECHO_P99_S = 0.1, 0.5


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    own = {f"SSPEC_ASSIST_{name}": str(tmp_path / name) for name in ("RUNTIME", "DATA", "CONFIG")}
    inherited = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment = inherited | own | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    yield environment
    subprocess.run([*COMMAND, "engine", "stop"], env=environment, check=False, timeout=60)


def echoes(chat: Window) -> tuple[float, float]:
    """What half of the keys take at most, and what 99 of 100 do, in seconds."""
    times = []
    for press in range(PRESSES):
        times.append(chat.echo(KEYS[press % len(KEYS)]))
        chat.drain(BETWEEN_S)
    return sorted(times)[PRESSES // 2], sorted(times)[int(PRESSES * 0.99) - 1]


def test_keys_show_at_once_whatever_the_engine_does(
    environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "long.py").write_text("value = [1, 2, 3]  # a line of a long file\n" * 250)
    took = {}
    with window(COMMAND, folder, environment) as chat:
        assert chat.comes("sk something", 30)
        took["load"] = echoes(chat)
        chat.write("\x03")
        assert chat.came("ready", 300)
        chat.write("Explain @long.py please. ")
        chat.drain(2)
        chat.write("\r")
        assert chat.came("long.py", 10)
        chat.drain(0.5)
        took["prefill"] = echoes(chat)
        assert chat.came("tok/s", 300)
        took["decode"] = echoes(chat)
    print(took)
    assert all(half <= ECHO_MEDIAN_S and most <= ECHO_P99_S for half, most in took.values()), took
