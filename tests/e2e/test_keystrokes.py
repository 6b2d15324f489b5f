"""Recorded edits typed into the real language server with the real default model."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.model, pytest.mark.e2e, pytest.mark.timeout(900)]

COMMAND = [sys.executable, "-c", "from app.cli import main; main()", "bench", "--keystrokes"]
LONGEST_ROUND = 9
"""Tokens: the largest k that is ever drafted, and one more."""


def test_nothing_that_is_shown_while_typing_is_wrong() -> None:
    cases = [f"--case={name}" for name in ("md-changes", "crlf-ts-slug", "rs-count")]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [*COMMAND, *cases, "--speed", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=800,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print(json.dumps(told, indent=1))
    assert told["wishes"] > 200
    assert {"error", "unanswered"}.isdisjoint(told["outcomes"])
    assert told["key_to_answer_ms"]["nothing to show"]["count"] + told["shown"] > 0
    for fault in ("stale", "duplicates", "leaks", "wrong_texts"):
        assert told[fault] == [], fault
    assert told["most_tokens_after_a_cancel"] <= LONGEST_ROUND
