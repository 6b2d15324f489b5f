"""`sspec-assist stats`: what a session's server counted comes out again, and nothing is made."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.editor_stats import StatisticsError, completions_file, read_summary
from app.paths import user_paths
from lsp.document import Document
from lsp.learning import Learning
from lsp.learning_store import open_store
from lsp.offer import Shown, Source
from tests.fakes import round_of


@pytest.fixture
def file() -> Path:
    return completions_file(user_paths())


def stats(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["stats", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def session(file: Path, *, age_days: float = 0.0) -> None:
    """Four suggestions: accepted, in part (up to the end, so not looked at again), typed out by
    hand, and something else typed."""
    now = [0.0]

    async def work() -> None:
        learning = Learning(
            file, clock=lambda: now[0], today=lambda: time.time() - age_days * 86_400
        )

        def show(text: str, becomes: str, latency_ms: float, source: Source = "model") -> None:
            document = Document("u", "\n")
            shown = Shown(id=text, start=0, end=0, text=text, source=source)
            learning.shown(document.snapshot(0), [shown], latency_ms)
            now[0] += 1
            pieces = [becomes] if len(becomes) > 3 else list(becomes)
            at = 0
            for piece in pieces:
                edit = document.replace(at, at, piece)
                at += len(piece)
                learning.changed(document.snapshot(at), (edit,))
            now[0] += 31
            learning.look_again()
            learning.closed("u")

        show("return a", "return a", 400.0)
        show("raise Error", "raise", 300.0, "memory")
        show("x=1", "x=1", 4.0, "memory")
        show("y()", "z", 200.0, "prefetch")
        learning.nothing(50.0)
        learning.cancelled(0)
        learning.cancelled(3)
        learning.decoded([round_of(drafted=4, accepted=3), round_of(drafted=0, accepted=0)])
        await learning.close()

    asyncio.run(work())


def test_without_a_completion_it_says_so_and_makes_no_file(file: Path) -> None:
    assert stats() == "No completion has been asked for so far.\n"
    assert stats("--days", "7") == "No completion has been asked for in the last 7 days.\n"
    assert not file.exists()


def test_what_was_counted_is_printed(file: Path) -> None:
    session(file)
    heading, *lines = stats().splitlines()
    assert heading == "Completions in editors so far"
    told = {line[2:14].rstrip(): line[14:] for line in lines}
    assert told == {
        "accepted": "50 % of 4 seen, 1 whole, 1 in part, 1 typed out by hand",
        "kept": "100 % after 30 s (2)",
        "memory": "75 % of 4 answers needed no model",
        "latency": "p50 200 ms, p90 300 ms",
        "  model": "p50 400 ms, p90 400 ms, 1 answer",
        "  memory": "p50 4 ms, p90 4 ms, 2 answers",
        "  prefetch": "p50 200 ms, p90 200 ms, 1 answer",
        "cancelled": "2, 3 tokens computed after, 1.50 each",
        "drafting": "α 0.75 of 4 tested",
        "  copy": "α 0.75, 1 round",
        "  plain": "1 round",
    }


def test_json_has_the_sums_and_the_shares(file: Path) -> None:
    session(file)
    told = json.loads(stats("--json"))
    assert told["accepted"] == told["partial"] == told["typed"] == told["rejected"] == 1
    assert told["seen"] == 4
    assert told["acceptance"] == 0.5
    assert told["from_memory"] == 0.75
    assert told["alpha"] == 0.75
    assert told["accepted_chars"] == 13
    assert told["latency"]["all"] == {"answers": 4, "p50_ms": 200.0, "p90_ms": 300.0}
    assert (told["empty"], told["cancelled"], told["tokens_after_cancel"]) == (1, 2, 3)
    assert told["kept"][0] == {"after_s": 30, "measured": 2, "share": 1.0}
    assert json.loads(stats("--json", "--days", "1"))["days"] == 1


def test_days_leave_out_what_is_older(file: Path) -> None:
    session(file, age_days=5)
    assert read_summary(file, 4).is_empty
    assert read_summary(file, 6).seen == 4
    assert stats("--days", "1") == "No completion has been asked for today.\n"


def test_a_store_that_is_being_written_can_be_read(file: Path) -> None:
    session(file)
    writer = open_store(file)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO cancels VALUES (4e9, 9)")
    assert read_summary(file).tokens_after_cancel == 3
    writer.execute("COMMIT")
    assert read_summary(file).tokens_after_cancel == 12
    writer.close()


@pytest.mark.parametrize("kind", ["damaged", "newer"])
def test_what_cannot_be_read_is_one_sentence(file: Path, kind: str) -> None:
    session(file)
    if kind == "newer":
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        file.write_bytes(b"no database" * 1000)
    with pytest.raises(StatisticsError, match=file.name):
        read_summary(file)
    done = CliRunner().invoke(cli, ["stats"])
    assert done.exit_code == 1
    assert "could not be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_just_begun_counts_as_none(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.touch()
    assert read_summary(file).is_empty
