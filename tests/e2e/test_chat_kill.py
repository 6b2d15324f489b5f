"""The chat killed at fifty random moments: what was said stays, nothing is left over."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app import instance
from app.stopping import stop_engine
from tests.app.remote_engine import paths_in
from tests.e2e.pty_window import window
from tests.e2e.scripted_chat import COMMAND
from tui.history import History

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
KILLS = 50
LONGEST_S = 5.0
LOST_S = 1.0
WORDS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop_engine(paths_in(tmp_path))


def environment(folder: Path) -> dict[str, str]:
    paths = paths_in(folder)
    names = ("cache", "data", "config", "runtime")
    moved = {f"SSPEC_ASSIST_{name.upper()}": str(getattr(paths, name)) for name in names}
    return os.environ | moved | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}


def killed_after(seconds: float, question: str, notes: Path, folder: Path) -> float:
    """Run the chat, ask as soon as it is there, kill it; the moment of the kill."""
    end = time.monotonic() + seconds
    with window([*COMMAND, str(notes)], ROOT, environment(folder)) as chat:
        if chat.comes("sk something", seconds):
            # As a paste: fifteen hundred single keys would take their time.
            chat.write(f"\x1b[200~{question}\x1b[201~")
            chat.drain(0.1)
            chat.write("\r")
            chat.drain(end - time.monotonic())
        killed = time.monotonic()
        chat.kill()
    return killed


def came_before(notes: Path, moment: float) -> int:
    """Characters of the answer that had come by then."""
    if not notes.exists():
        return 0
    lines = [line.split() for line in notes.read_text().splitlines()]
    return max((int(count) for at, count in lines if float(at) <= moment), default=0)


def test_killed_at_any_moment_it_loses_a_second_at_most(folder: Path) -> None:
    chance = random.Random(7)
    paths, met = paths_in(folder), 0
    for round_ in range(KILLS):
        question = f"{round_}: " + " ".join(f"w{n}" for n in range(WORDS))
        notes = folder / f"notes-{round_}"
        killed = killed_after(chance.uniform(0.1, LONGEST_S), question, notes, folder)
        history = History.open(paths.data / "history.sqlite")
        sure = came_before(notes, killed - LOST_S)
        found = [one for one in history.conversations() if one.title.startswith(f"{round_}: ")]
        if found:
            leaf = history.leaf(found[0].id)
            assert leaf is not None
            question_, answer = history.thread(leaf)
            assert question_.content == question
            assert question.startswith(answer.content)
            assert len(answer.content) >= sure
            met += bool(answer.content)
        else:
            assert sure == 0
        history.close()
    assert met > KILLS / 5, "many kills must have met an answer"
    daemons = [
        process.pid
        for process in psutil.process_iter(["cwd", "status"])
        if process.info["cwd"] == str(paths.runtime)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    assert len(daemons) == 1
    assert not list((paths.data / "history.windows").glob("*.window"))
    stop_engine(paths)
    assert not instance.is_held(instance.place_of(paths.runtime))
