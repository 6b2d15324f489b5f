"""`engine start|status|stop|logs`, and the completion scripts, as a user meets them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from app import engine_cli, instance
from app.catalogue import CATALOGUE
from app.cli import cli
from app.completion import VARIABLE
from app.engine_cli import FOLLOW_S, EngineReport
from app.paths import user_paths
from engine.protocol import EngineStatus, Held
from tests.app.remote_engine import Served, opening
from tests.fakes import STATUS, ScriptedEngine, answer_script

if TYPE_CHECKING:
    from click.testing import Result

ROOT = Path(__file__).parents[2]
MAIN = "import sys; sys.argv[0] = 'sspec-assist'; from app.cli import main; main()"


def run(*arguments: str) -> Result:
    result: Any = CliRunner().invoke(cli, arguments)
    return result


def process(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def serve(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: EngineStatus | None
) -> Iterator[Served]:
    """A daemon where this user's commands look for one; it is ready if a status is given."""
    engine = ScriptedEngine(answer_script("x"), status=status or STATUS)
    served = Served(folder, opening(engine))
    for name in ("runtime", "data", "config", "cache"):
        monkeypatch.setenv(f"SSPEC_ASSIST_{name.upper()}", str(getattr(served.paths, name)))

    async def ready() -> None:
        async with served.client().watch() as statuses:
            async for one in statuses:
                if one.state == "ready":
                    return

    asyncio.run(ready())
    yield served
    served.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    yield from serve(
        tmp_path, monkeypatch, replace(STATUS, held=(Held(conversation="c1", tokens=1234),))
    )


def test_without_an_engine_every_command_says_so_and_starts_none() -> None:
    assert run("engine", "status").stdout == "no engine is running\n"
    report = msgspec.json.decode(run("engine", "status", "--json").stdout, type=EngineReport)
    assert (report.running, report.pid, report.status) == (False, None, None)
    assert run("engine", "stop").stdout == "no engine is running\n"
    logs = run("engine", "logs")
    assert (logs.exit_code, logs.stdout) == (0, "")
    assert "no log yet" in logs.stderr
    assert not user_paths().runtime.exists()


def test_the_status_is_a_table(served: Served) -> None:
    result = run("engine", "status")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["state"] == "ready"
    assert lines["model"] == "scripted (nf4, cpu, greedy text is exact)"
    assert lines["context"].startswith("16,384 tokens")
    assert lines["held"] == "1,234 tokens of c1"
    assert lines["clients"] == "0"
    assert str(served.place.socket) in lines["process"]
    assert all(len(line) < 120 for line in result.stdout.splitlines()[:-2])


def test_the_status_is_json_too(served: Served) -> None:
    report = msgspec.json.decode(run("engine", "status", "--json").stdout, type=EngineReport)
    assert report.running
    assert report.pid == os.getpid()
    assert report.status is not None
    assert report.status.held == (Held(conversation="c1", tokens=1234),)


def test_one_that_gives_no_answer_is_not_called_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_cli, "PATIENCE_S", 0.2)
    with instance.claimed(instance.place_of(user_paths().runtime)) as (bound, _):
        bound.listen()  # and serves nobody
        said = run("engine", "status").stdout
        report = msgspec.json.decode(run("engine", "status", "--json").stdout, type=EngineReport)
    assert said == (
        f"an engine is running (process {os.getpid()}) but gives no answer; "
        "sspec-assist engine stop ends it\n"
    )
    assert (report.running, report.pid, report.status) == (True, os.getpid(), None)


def test_starting_twice_says_who_runs(served: Served) -> None:
    result = run("engine", "start", "--idle-after", "1")
    assert result.stdout == f"an engine runs already (process {os.getpid()}); its settings hold\n"


@pytest.mark.parametrize("minutes", ["-1", "soon", "1e9"])
def test_a_time_that_is_none_is_refused(minutes: str) -> None:
    assert run("engine", "start", "--idle-after", minutes).exit_code == 2


def test_stopping_ends_it(served: Served) -> None:
    assert run("engine", "stop").stdout == "the engine was stopped\n"
    assert run("engine", "status").stdout == "no engine is running\n"


def test_the_log_s_end_is_printed() -> None:
    file = user_paths().log_file()
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"line {n}\n" for n in range(100)))
    assert run("engine", "logs", "-n", "2").stdout == "line 98\nline 99\n"
    assert run("engine", "logs").stdout.count("\n") == 50


def test_a_log_is_followed_across_its_rotation() -> None:
    file = user_paths().log_file()
    file.parent.mkdir(parents=True)
    file.write_text("old\n")
    with process("engine", "logs", "--follow") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "old\n"
        with file.open("a") as log:
            log.write("added\n")
        assert following.stdout.readline() == "added\n"
        with file.open("a") as log:
            log.write("the last one\n")
        file.rename(file.with_name("engine.log.1"))
        file.write_text("fresh\n")
        assert following.stdout.readline() == "the last one\n"
        assert following.stdout.readline() == "fresh\n"
        following.terminate()
        following.communicate()


def test_a_character_that_is_written_in_two_parts_is_shown_whole() -> None:
    file = user_paths().log_file()
    file.parent.mkdir(parents=True)
    file.write_text("old\n")
    with process("engine", "logs", "--follow") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "old\n"
        with file.open("ab", buffering=0) as log:
            log.write(b"caf\xc3")
            time.sleep(3 * FOLLOW_S)
            log.write(b"\xa9\n")
        assert following.stdout.readline() == "caf\u00e9\n"
        following.terminate()
        following.communicate()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_it_can_read(shell: str, tmp_path: Path) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "sspec-assist" in result.stdout
    assert VARIABLE in result.stdout
    if (program := shutil.which(shell)) is not None:
        file = tmp_path / "script"
        file.write_text(result.stdout)
        subprocess.run([program, "-n", str(file)], check=True)


def test_an_unknown_shell_is_refused() -> None:
    assert run("completion", "tcsh").exit_code == 2


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sspec-assist ask --model qwen", {name for name in CATALOGUE if name.startswith("qwen")}),
        ("sspec-assist --model sm", {"smollm2-135m"}),
        ("sspec-assist eng", {"engine"}),
        ("sspec-assist engine st", {"start", "status", "stop"}),
    ],
)
def test_bash_is_offered_what_fits(words: str, offered: set[str]) -> None:
    given = {VARIABLE: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    out, err = process(**given).communicate(timeout=30)
    assert set(out.split()) == offered, err


def test_the_report_is_one_line_of_json(served: Served) -> None:
    assert json.loads(run("engine", "status", "--json").stdout)["status"]["state"] == "ready"
