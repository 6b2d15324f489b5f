"""`calibrate` as a user meets it: its refusals, what it prints and keeps, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.calibrate_cli import CalibrateOptions, _questions
from app.cli import cli
from app.offline import load_model, load_session
from app.settings import ModelSettings
from engine.config import DraftSettings
from engine.profile import FILE, read_profile
from engine.protocol import ChatPrompt, GenerateRequest, SamplingParams, Turn
from engine.train.questions import questions_for
from tests.engine.tiny_session import tiny_loaded
from tests.processes import interruptible

ROOT = Path(__file__).parents[2]
QUICK = ("--minutes", "0.3", "--requests-count", "8", "--threads", "1")
"""Few requests, so that even a busy machine has time for all stages."""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["calibrate", *arguments])


def settings(model: Path) -> ModelSettings:
    return ModelSettings(model=str(model), threads=1)


def test_help_names_its_options_and_codes() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for option in ("--repo", "--requests", "--requests-count", "--minutes", "--json", "--model"):
        assert option in result.output
    assert "130 interrupted" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--repo", "nowhere"), 2, "no such folder"),
        (("--requests", "nowhere.txt"), 2, "can't be read: No such file"),
        (("--minutes", "0"), 2, "--minutes"),
        (("--repo", ".", "--requests", "x"), 2, "don't go together"),
        (("--model", "nowhere.gguf"), 3, "nowhere.gguf"),
    ],
)
def test_mistakes_are_sentences(arguments: tuple[str, ...], code: int, sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert sentence in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "holds no request"),
        (b'{"prompt": "fine"}\n{"prompt"\n', "line 2 of"),
        (b'{"messages": [{"role": "user"}]}', "line 1 of"),
        (b"caf\xe9", "not UTF-8 text (byte 3)"),
    ],
)
def test_a_broken_file_of_requests_is_refused_before_a_model_is_loaded(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(content)
    result = run("--requests", str(file), "--model", "nowhere.gguf")
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_folder_without_code_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no code")
    result = run("--repo", str(tmp_path), "--model", "nowhere.gguf")
    assert result.exit_code == 2
    assert "no code in it" in result.output


def project(folder: Path, name: str) -> Path:
    (folder / name / ".git").mkdir(parents=True)
    code = "".join(f"def {name}_{i}(value):\n    return value + {i}\n\n" for i in range(60))
    (folder / name / "code.py").write_text(code)
    return folder / name


def test_the_current_project_is_taken_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = replace(tiny_loaded(), context_tokens=6144)
    here, named = project(tmp_path, "here"), project(tmp_path, "named")

    def asked(**what: Any) -> list[str]:
        found = _questions(CalibrateOptions(requests_count=5000, **what), loaded)
        return [question.key for question in found]

    def cut_from(folder: Path | None) -> list[str]:
        return [question.key for question in questions_for(loaded.text, folder, 6144)]

    monkeypatch.chdir(here)
    assert asked() == cut_from(here)
    assert asked(repo=named) == cut_from(named) != cut_from(here)
    file = tmp_path / "requests.txt"
    file.write_text("What is one?\nWhat is two?\n")
    assert len(asked(requests=file)) == 2
    (here / ".git").rmdir()
    assert asked() == cut_from(None) != cut_from(here)


def test_what_it_finds_is_told_kept_and_used_by_the_next_start(tiny_gguf: Path) -> None:
    result = run("--model", str(tiny_gguf), *QUICK)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "requests answered" in lines[0]
    for name in ("first 1", "first 2", "first 3"):
        assert [line.split()[:2] for line in lines].count(name.split()) >= 2, "α and costs"
    assert lines[-1] == "the next start uses it"
    file = Path(lines[-2].removeprefix("kept in "))
    assert "the model answers" in result.stderr
    loaded = load_model(settings(tiny_gguf), context_tokens=512)
    assert file == loaded.folder / FILE
    profile = read_profile(loaded.folder, loaded.weights_digest, loaded.architecture.layers)
    assert profile is not None
    assert drafting_exit(tiny_gguf) == profile.exit_layer_at(10)


def drafting_exit(model: Path) -> int:
    """The exit layer that the next start's first answer drafts with."""
    session = load_session(settings(model), DraftSettings(), lambda *_: None)
    turn = Turn(role="user", content="one")
    answer = session.start(
        GenerateRequest(
            id="1", prompt=ChatPrompt(turns=(turn,)), sampling=SamplingParams(max_tokens=1)
        )
    )
    return answer.drafting.drafters["layer_skip"].reusable_layers


def test_where_nothing_pays_it_says_why_and_what_helps(tiny_gguf: Path, tmp_path: Path) -> None:
    """A random model's layers agree on nothing, and its few operators cost as much as Python."""
    file = tmp_path / "requests.txt"
    file.write_text("\n".join(f"What is {n}?" for n in range(20)))
    result = run("--model", str(tiny_gguf), "--requests", str(file), *QUICK)
    assert result.exit_code == 0, result.output
    assert " of 8 requests answered" in result.stdout
    text = " ".join(result.stdout.split())
    assert "short contexts: plain; the best path, first" in text
    assert "below 0.65: another exit or a trained head (sspec-assist train-head)" in text


def test_json_is_one_document_with_report_and_profile(tiny_gguf: Path, tmp_path: Path) -> None:
    file = tmp_path / "requests.txt"
    file.write_text("What is one?\nWhat is two?\n" + "long " * 900)
    result = run("--model", str(tiny_gguf), "--requests", str(file), "--json", *QUICK)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["report"]["requests"] == told["report"]["asked"] == 2
    assert {path["name"] for path in told["report"]["paths"]} >= {"first 1", "first 2", "first 3"}
    assert json.loads(Path(told["file"]).read_bytes()) == told["profile"]
    assert "1 requests are left out: longer than 640 tokens" in result.stderr


@pytest.mark.parametrize(
    ("stage", "told", "keeps"),
    [
        ("the model answers", "stopped before anything was timed; nothing was changed", False),
        ("real rounds", "stopped; what was measured until then was kept", True),
    ],
)
def test_an_interrupt_keeps_what_there_is(
    stage: str, told: str, keeps: bool, tiny_gguf: Path, tmp_path: Path
) -> None:
    command = "from app.cli import main; main()"
    arguments = ("calibrate", "--model", str(tiny_gguf), *QUICK, "--minutes", "1")
    with subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=interruptible,
    ) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if stage in line:
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (seen, err)
    assert told in err
    assert "Traceback" not in err
    assert ("requests answered" in out) == keeps
    assert bool(list(tmp_path.rglob(FILE))) == keeps
