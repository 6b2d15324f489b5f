"""The commands on models: results on stdout, remarks on stderr, and no network but for `pull`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from app.catalogue import CATALOGUE
from app.download import final_path
from app.models_cli import models
from app.paths import user_paths
from engine.protocol import ModelError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file() -> Path:
    """A stand-in for the default model, whose note says that it is verified."""
    entry = CATALOGUE["qwen2.5-coder-0.5b"]
    path = final_path(entry, user_paths().models_dir())
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    note = {"size_bytes": 4, "mtime_ns": path.stat().st_mtime_ns, "sha256": entry.sha256}
    path.with_name(f"{path.name}.verified.json").write_text(json.dumps(note))
    return path


def test_list_shows_every_model(file: Path) -> None:
    result = CliRunner().invoke(models, ["list"])
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["NAME", "SIZE", "LICENCE", "STATE", "MODEL"]
    assert [row.split()[0] for row in rows] == list(CATALOGUE)
    assert "468.6 MiB" in rows[0]
    assert "Apache-2.0" in rows[0]
    assert "present" in rows[0]
    assert rows[0].endswith("(default)")
    assert "absent" in rows[1]
    assert "1.04 GiB" in rows[1]


def test_list_as_json(file: Path) -> None:
    result = CliRunner().invoke(models, ["list", "--json"])
    listed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [model["name"] for model in listed] == list(CATALOGUE)
    assert listed[0]["state"] == "present"
    assert listed[0]["size_bytes"] == 491_400_064


def test_pull_of_a_model_that_is_here_only_says_where(file: Path) -> None:
    result = CliRunner().invoke(models, ["pull"])
    assert result.exit_code == 0
    assert result.stdout == f"{file}\n"


def test_path_and_rm(file: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(models, ["path", "qwen2.5-coder-0.5b"]).stdout == f"{file}\n"
    assert runner.invoke(models, ["rm", "qwen2.5-coder-0.5b"]).stdout.startswith("removed qwen2.5")
    assert not file.exists()
    result = runner.invoke(models, ["path", "qwen2.5-coder-0.5b"])
    assert isinstance(result.exception, ModelError)
    assert result.exception.code == "model_absent"
    assert result.stdout == ""


def test_an_unknown_name_asks_back() -> None:
    result = CliRunner().invoke(models, ["pull", "smollm"])
    assert isinstance(result.exception, ModelError)
    assert "Did you mean smollm2-135m?" in result.exception.hint
