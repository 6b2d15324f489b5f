"""The shared engine with real processes: commands that meet in one daemon, and daemons that die.

The model is a random one of three layers, made on the spot; the daemon that is killed fifty times
has a scripted engine, so that a start costs half a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app import instance
from app.client import RemoteEngine
from app.settings import ModelSettings, Settings
from app.starting import Starter
from app.stopping import stop_engine
from engine.protocol import ChatPrompt, Failed, Finished, GenerateRequest, Turn
from tests.app.remote_engine import paths_in
from tests.app.scripted_daemon import COMMAND
from tests.engine.tiny_checkpoints import random_model, save_gguf
from tests.processes import interruptible

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
MAIN = "import sys; sys.argv[0] = 'sspec-assist'; from app.cli import main; main()"
KILLS = 50


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the daemons of a test live; none outlives it."""
    yield tmp_path
    stop_engine(paths_in(tmp_path))


def environment(folder: Path) -> dict[str, str]:
    paths = paths_in(folder)
    names = ("cache", "data", "config", "runtime")
    moved = {f"SSPEC_ASSIST_{name.upper()}": str(getattr(paths, name)) for name in names}
    return os.environ | moved | {"PYTHONPATH": str(ROOT)}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, *arguments],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def daemons_of(folder: Path) -> list[int]:
    """Pids of living processes that were told to work in `folder`."""
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        dead = process.info["status"] == psutil.STATUS_ZOMBIE
        if process.info["cwd"] == str(paths_in(folder).runtime) and not dead:
            found.append(process.pid)
    return found


def test_commands_meet_in_one_daemon_and_agree_with_none(folder: Path) -> None:
    save_gguf(random_model("qwen2"), folder / "tiny.gguf")
    asked = ("ask", "hello", "--model", "tiny.gguf", "--max-tokens", "12")
    code, text, err = run(folder, *asked)
    assert code == 0, err
    assert "12 tokens" in err
    assert "measuring this machine" in err, "the stages of loading are shown"
    [pid] = daemons_of(folder)

    code, again, err = run(folder, *asked)
    assert (code, again) == (0, text), err
    assert "measuring" not in err, "the model is in memory already"
    assert daemons_of(folder) == [pid]

    code, alone, err = run(folder, *asked, "--no-daemon")
    assert (code, alone) == (0, text), err
    assert daemons_of(folder) == [pid]

    code, out, err = run(folder, "engine", "status", "--json")
    status = json.loads(out)["status"]
    assert (code, status["model"], status["clients"]) == (0, "tiny", 0), err

    os.kill(pid, signal.SIGKILL)
    code, after, err = run(folder, *asked)
    assert (code, after) == (0, text), err
    assert pid not in daemons_of(folder)

    code, out, err = run(folder, "engine", "stop")
    assert (code, out) == (0, "the engine was stopped\n"), err
    assert daemons_of(folder) == []
    assert not instance.is_held(instance.place_of(paths_in(folder).runtime))


def test_what_goes_wrong_has_the_exit_code_of_in_process_use(folder: Path) -> None:
    (folder / "broken.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    cases = (("--model", "./absent"), ("--model", "broken.gguf"), ("--context", "4096"))
    save_gguf(random_model("qwen2"), folder / "tiny.gguf")
    for options in cases:
        model = () if "--model" in options else ("--model", "tiny.gguf")
        shared = run(folder, "ask", "hi", *model, *options)
        alone = run(folder, "ask", "hi", *model, *options, "--no-daemon")
        assert shared[0] == alone[0] != 0, (shared, alone)
        assert shared[2].splitlines()[-1] == alone[2].splitlines()[-1]
        assert "Traceback" not in shared[2]


def test_a_daemon_may_be_killed_at_any_moment(folder: Path) -> None:
    paths = paths_in(folder)
    place = instance.place_of(paths.runtime)
    chance = random.Random(5)
    settings = Settings(model=ModelSettings(model="a/model"))
    lost = 0

    async def answered(text: str) -> Finished | Failed:
        engine = RemoteEngine(settings, paths, "test", Starter(paths, COMMAND))
        turns = (Turn(role="user", content=text),)
        request = GenerateRequest(id=text, prompt=ChatPrompt(turns=turns))
        async with engine.generate(request) as events:
            last = [event async for event in events][-1]
        assert isinstance(last, Finished | Failed)
        return last

    async def killed_after(seconds: float) -> Finished | Failed:
        asking = asyncio.create_task(answered("word " * 100))
        await asyncio.sleep(seconds)
        for pid in daemons_of(folder):
            os.kill(pid, signal.SIGKILL)
        return await asking

    for _ in range(KILLS):
        last = asyncio.run(killed_after(chance.uniform(0.0, 1.2)))
        if isinstance(last, Failed):
            # Killed in mid-answer, or as it was starting; both are said, and neither is a hang.
            assert last.code in ("engine_lost", "engine_start"), last
            lost += 1
        for pid in daemons_of(folder):
            os.kill(pid, signal.SIGKILL)
    assert lost > KILLS / 5, "most kills must have met a daemon at work"

    began = time.monotonic()
    last = asyncio.run(answered("still here"))
    assert isinstance(last, Finished)
    assert last.text == "still here"
    assert time.monotonic() - began < 20
    assert len(daemons_of(folder)) == 1
    stop_engine(paths)
    assert daemons_of(folder) == []
    assert not instance.is_held(place)
    assert {file.name for file in place.folder.iterdir()} <= {"engine.lock", "start.lock"}


def test_an_interrupt_while_it_loads_ends_the_load(folder: Path) -> None:
    save_gguf(random_model("qwen2", num_hidden_layers=12), folder / "tiny.gguf")
    asking = start(folder, "ask", "hi", "--model", "tiny.gguf", "--max-tokens", "4")
    assert asking.stderr is not None
    assert asking.stderr.readline() == "starting\n"
    asking.send_signal(signal.SIGINT)
    out, err = asking.communicate(timeout=60)
    assert (asking.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    deadline = time.monotonic() + 60
    state = "loading"
    while state == "loading" and time.monotonic() < deadline:
        state = json.loads(run(folder, "engine", "status", "--json")[1])["status"]["state"]
    assert state == "asleep"
    assert not list((paths_in(folder).converted_dir()).glob(".*.partial"))
    code, _, err = run(folder, "ask", "hi", "--model", "tiny.gguf", "--max-tokens", "4")
    assert code == 0, err
