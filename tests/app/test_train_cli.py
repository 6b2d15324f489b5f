"""`train-head` as a user meets it: its help, its refusals, and a head made from a real file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.paths import user_paths
from engine.draft.head_file import read_about


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["train-head", *arguments])


def test_help_names_its_options_and_codes() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for option in ("--repo", "--minutes", "--first", "--jump", "--neurons", "--quick", "--model"):
        assert option in result.output
    assert "130 interrupted" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--repo", "nowhere"), 2, "no such folder"),
        (("--minutes", "0"), 2, "--minutes"),
        (("--model", "nowhere.gguf"), 3, "nowhere.gguf"),
    ],
)
def test_mistakes_are_sentences(arguments: tuple[str, ...], code: int, sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_a_folder_without_code_is_refused(tmp_path: Path) -> None:
    result = run("--repo", str(tmp_path))
    assert result.exit_code == 2
    assert "no code in it" in result.output


def test_a_layer_that_is_not_there_is_refused(tiny_gguf: Path) -> None:
    result = run("--model", str(tiny_gguf), "--first", "9")
    assert result.exit_code == 2
    assert "outside this model of 4 layers" in result.output


def test_neurons_that_are_not_there_are_refused(tiny_gguf: Path) -> None:
    result = run("--model", str(tiny_gguf), "--neurons", "9999")
    assert result.exit_code == 2
    assert "--neurons 9999 is no number of this model's" in result.output
    assert "Choose a value from 64 to" in result.output


def test_it_makes_a_head_where_the_engine_looks_for_it(tiny_gguf: Path) -> None:
    result = run("--model", str(tiny_gguf), "--minutes", "0.05", "--quick", "--threads", "1")
    assert result.exit_code == 0, result.output
    *_, told, file = result.stdout.strip().splitlines()
    assert "agreement" in told
    assert Path(file).parent == user_paths().heads_dir()
    assert read_about(Path(file)).first < 4
    assert "the model answers questions" in result.stderr
    again = run("--model", str(tiny_gguf), "--minutes", "0.05", "--quick", "--threads", "1")
    assert "reading earlier answers" in again.stderr
