"""`--trace` and `bench --replay` as a user meets them: what is written, summed up and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from engine.trace import read_trace
from tests.engine.test_trace import line, traced
from tests.engine.tiny_checkpoints import random_model, save_gguf


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": "80"})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.jsonl"
    traced(file, "a b a b a b", "c d c d c d")
    return file


def test_an_answer_s_trace_is_summed_up(tmp_path: Path) -> None:
    model = save_gguf(random_model("qwen2", tie_word_embeddings=True), tmp_path / "tiny.gguf")
    file = tmp_path / "trace.jsonl"
    options = ("--model", str(model), "--threads", "1", "--max-tokens", "9")
    asked = run("ask", "one two", *options, "--trace", str(file))
    assert asked.exit_code == 0, asked.output
    lines = read_trace(file)
    assert len({one.answer for one in lines}) == 1
    assert sum(one.tokens for one in lines) == 9
    assert " 1 answers: 9 tokens" in run("bench", "--replay", str(file)).stdout


def test_a_page_is_printed_and_fits_a_narrow_terminal(trace: Path) -> None:
    result = run("bench", "--replay", str(trace))
    assert result.exit_code == 0, result.output
    assert "2 answers" in result.stdout
    assert "copy" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stderr == ""


def test_json_is_one_document(trace: Path) -> None:
    told = json.loads(run("bench", "--replay", str(trace), "--json").stdout)
    assert (told["answers"], told["rounds"]) == (2, len(read_trace(trace)))


def test_an_unfinished_last_line_costs_that_line_and_says_so(trace: Path) -> None:
    count = len(read_trace(trace))
    trace.write_bytes(trace.read_bytes()[:-20])
    result = run("bench", "--replay", str(trace), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rounds"] == count - 1
    assert "unfinished" in result.stderr


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "can't be read: No such file or directory"),
        (b"", "holds no round"),
        (b"a letter to a friend\n", "line 1 of"),
        (b'{"id": 1}\n', "line 1 of"),
        (b"\x00\xff\xfe", "line 1 of"),
    ],
)
def test_what_is_no_trace_is_refused(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    if content is not None:
        file.write_bytes(content)
    result = run("bench", "--replay", str(file))
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert sentence in told
    assert "Name a file that --trace wrote." in told
    assert "Traceback" not in told


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    result = run("bench", "--replay", str(tmp_path))
    assert result.exit_code == 2
    assert "can't be read: Is a directory" in " ".join(result.output.split())


@pytest.mark.parametrize("command", [("ask", "one"), ("bench",)])
def test_a_trace_that_cant_be_written_is_refused_before_a_model_is_loaded(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "nowhere" / "trace.jsonl"
    result = run(*command, "--model", "nowhere.gguf", "--trace", str(file))
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "can't be written: No such file or directory" in told
    assert "Name a file in a folder that exists." in told


def test_a_reason_is_told_with_its_rounds(tmp_path: Path) -> None:
    import msgspec

    file = tmp_path / "trace.jsonl"
    plain = line(route="plain", k=0, drafted=0, tested=0, accepted=0, reason="nothing to copy")
    file.write_bytes(b"\n".join(map(msgspec.json.encode, [plain, plain, line()])) + b"\n")
    assert "2 × nothing to copy" in run("bench", "--replay", str(file)).stdout
