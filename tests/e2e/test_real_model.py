"""The commands as a user runs them, on the real default model: real processes, real text.

The model is fetched into the user's cache once; the first test of a machine pays for that and for
the conversion.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import interruptible

pytestmark = [pytest.mark.model, pytest.mark.e2e, pytest.mark.timeout(900)]

QUESTION = "Write a Python function that reverses the words of a sentence."
COMMAND = [sys.executable, "-c", "from app.cli import main; main()"]


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(
        [*COMMAND, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=800,
        env=environment,
        check=False,
    )


def test_ask_answers_with_code_that_parses() -> None:
    done = run("ask", QUESTION, "--max-tokens", "300")
    assert done.returncode == 0, done.stderr
    code = re.search(r"```python\n(.*?)```", done.stdout, re.DOTALL)
    assert code is not None, done.stdout
    assert any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(code[1])))
    assert "tok/s" in done.stderr
    assert "α" in done.stderr


def test_every_route_gives_the_same_text() -> None:
    texts = {
        route: run("ask", QUESTION, "--max-tokens", "80", "--route", route, "--k", "3").stdout
        for route in ("plain", "copy", "layer_skip", "exit_head", "auto")  # its head is shipped
    }
    assert texts["plain"].strip()
    assert set(texts.values()) == {texts["plain"]}


def test_events_add_up() -> None:
    done = run("ask", QUESTION, "--max-tokens", "60", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["type"] == "started"
    last = events[-1]
    assert last["type"] == "finished"
    rounds = [event for event in events if event["type"] == "round"]
    assert sum(event["tested"] for event in rounds) == last["usage"]["tested"]
    assert sum(event["accepted"] for event in rounds) == last["usage"]["accepted"]
    assert len(rounds) == last["usage"]["rounds"]
    text = "".join(event["text"] for event in events if event["type"] == "text")
    assert text == last["text"]


def test_complete_fills_the_hole() -> None:
    source = "def add(a: int, b: int) -> int:\n    return <CURSOR>\n\n\nprint(add(1, 2))\n"
    done = run("complete", given=source)
    assert done.returncode == 0, done.stderr
    filled = source.replace("<CURSOR>", done.stdout)
    assert "a + b" in filled
    ast.parse(filled)


def test_verify_finds_every_text_identical() -> None:
    done = run("verify", "--tokens", "24", "--k", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all identical" in done.stdout


def test_interrupt_keeps_what_came() -> None:
    process = subprocess.Popen(
        [*COMMAND, "ask", "Explain sorting algorithms at length.", "--max-tokens", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=interruptible,
    )
    assert process.stdout is not None
    first = process.stdout.read(40)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    rest, _ = process.communicate(timeout=60)
    assert first.strip()
    assert process.returncode == 130
    assert time.monotonic() - began < 60
    assert len(first + rest) < 8000


def test_a_missing_model_is_one_sentence() -> None:
    done = run("ask", "hi", "--model", "./no/such/folder")
    assert done.returncode == 3
    assert "no/such/folder" in done.stderr
    assert "Traceback" not in done.stderr
