"""The store under `kill -9` at any moment, and under several processes at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tui.history_writer import text_of
from tui.history import History

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
KILLS = 50
WRITERS = 4
TURNS = 25


class Writers:
    """A process that makes writers on demand."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.tui.history_writer"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *works: str) -> list[int]:
        """Begin the works, `STORE LOG TURNS SEED` each, and return the process ids."""
        assert self._server.stdin
        self._server.stdin.write(";".join(works) + "\n")
        self._server.stdin.flush()
        return self._numbers()

    def ended(self) -> list[int]:
        """Wait for those that were started last, and return their exit codes."""
        return self._numbers()

    def close(self) -> None:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.wait(timeout=30)
        self._server.stdout.close()

    def _numbers(self) -> list[int]:
        assert self._server.stdout
        return [int(word) for word in self._server.stdout.readline().split()]


@pytest.fixture(scope="module")
def writers():
    made = Writers()
    yield made
    made.close()


def told(log: Path) -> list[dict[str, Any]]:
    """What the writers said was done."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines()]


def check_kept(history: History, lines: list[dict[str, Any]]) -> int:
    """Everything that was told is there, less what may have been deleted; returns how much."""
    gone = {line["deleting"] for line in lines if "deleting" in line}
    latest = {
        line["message"]: line
        for line in lines
        if "message" in line and line["conversation"] not in gone
    }
    for message, line in latest.items():
        found = history.message(message)
        assert found.conversation == line["conversation"]
        if "question" in line:
            assert found.content == line["question"]
            continue
        assert found.content == text_of(message, len(found.content))
        assert len(found.content) >= line["length"]
        assert found.kinds == b"k" * len(found.content)
        if line.get("whole"):
            assert found.state == "whole"
    return len(latest)


def check_sound(history: History, *owners: str) -> None:
    """The file is whole, nothing points nowhere, and only these windows write answers."""
    connection = history._store.connection
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    history._store.index.check()
    owning = connection.execute("SELECT DISTINCT owner FROM messages WHERE owner IS NOT NULL")
    assert {owner for (owner,) in owning} <= set(owners)
    orphaned = (
        "SELECT count(*) FROM journal JOIN messages ON messages.id = journal.message "
        "WHERE owner IS NULL"
    )
    assert connection.execute(orphaned).fetchone() == (0,)
    for conversation in history.conversations(limit=10_000):
        leaf = history.leaf(conversation.id)
        assert leaf is not None
        assert history.thread(leaf)[0].parent is None


def test_a_store_survives_its_writer_at_any_moment(writers: Writers, tmp_path: Path) -> None:
    """A window that lives through all of it keeps its own unfinished answer."""
    store, log = tmp_path / "data" / "history.sqlite", tmp_path / "log"
    chance = random.Random(20)
    watching = None
    mine = 0
    partial = 0
    for kill in range(KILLS):
        (pid,) = writers.start(f"{store} {log} 1000000 {kill}")
        time.sleep(chance.uniform(0, 0.06))
        os.kill(pid, signal.SIGKILL)
        assert writers.ended() == [-signal.SIGKILL]
        history = History.open(store)
        assert history.notice == ""
        check_kept(history, told(log))
        check_sound(history, watching._store.window if watching else "")
        living = {history._store.window} | ({watching._store.window} if watching else set())
        files = {file.stem for file in store.with_suffix(".windows").iterdir()}
        assert files == living
        counted = history._store.connection.execute(
            "SELECT count(*) FROM messages WHERE state = 'partial'"
        ).fetchone()
        partial = max(partial, counted[0])
        history.close()
        if kill == 10:
            watching = History.open(store)
            conversation = watching.create().id
            question = watching.add(conversation, None, "user", "mine").id
            mine = watching.add(conversation, question, "assistant", "", state="partial").id
        if watching:
            watching.journal(mine, text_of(mine, kill * 10), b"")
            assert len(watching.message(mine).content) == kill * 10
    assert watching
    watching.close()
    assert check_kept(History.open(store), told(log)) > KILLS
    assert partial > 3, "too few kills fell into an answer for this to show anything"


def test_processes_that_write_at_once_lose_nothing(writers: Writers, tmp_path: Path) -> None:
    store = tmp_path / "data" / "history.sqlite"
    logs = [tmp_path / f"log{number}" for number in range(WRITERS)]
    writers.start(*(f"{store} {log} {TURNS} {seed}" for seed, log in enumerate(logs)))
    assert writers.ended() == [0] * WRITERS
    history = History.open(store)
    lines = [line for log in logs for line in told(log)]
    assert sum("question" in line for line in lines) == WRITERS * TURNS
    gone = {line["deleting"] for line in lines if "deleting" in line}
    assert gone
    expected = {
        line["message"] for line in lines if "message" in line and line["conversation"] not in gone
    }
    there = history._store.connection.execute("SELECT id FROM messages").fetchall()
    assert {message for (message,) in there} == expected
    assert check_kept(history, lines) == len(expected)
    check_sound(history)
    answers = [line["message"] for line in lines if line.get("whole")]
    assert len(set(answers)) == WRITERS * TURNS
    history.close()
