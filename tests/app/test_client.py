"""The client and the daemon's process: started once, lost, stopped, of another version."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app import instance
from app.client import RemoteEngine
from app.connection import GoneError
from app.settings import ModelSettings, Settings
from app.starting import Starter, wanted_by
from app.stopping import stop_engine
from engine.protocol import (
    ChatPrompt,
    EngineError,
    EngineStatus,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    ModelError,
    Started,
    Steering,
    TextDelta,
    Turn,
)
from tests.app.remote_engine import PacedEngine, Served, opening, paths_in
from tests.app.scripted_daemon import COMMAND


def ask(text: str = "a few words", id_: str = "r") -> GenerateRequest:
    turns = (Turn(role="user", content=text),)
    return GenerateRequest(id=id_, prompt=ChatPrompt(turns=turns))


def settings_of(model: str, *, origin: str = "the command line") -> Settings:
    return Settings(model=ModelSettings(model=model), origins={"model.model": origin})


async def answer(engine: RemoteEngine, text: str = "a few words") -> list[Event]:
    async with engine.generate(ask(text)) as events:
        return [event async for event in events]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where daemons of the test live; none outlives it."""
    yield tmp_path
    stop_engine(paths_in(tmp_path))


def client(folder: Path, model: str = "a/model") -> RemoteEngine:
    paths = paths_in(folder)
    return RemoteEngine(settings_of(model), paths, "test", Starter(paths, COMMAND, patience_s=30))


def pid_of(folder: Path) -> int:
    record = instance.read_record(instance.place_of(paths_in(folder).runtime))
    assert record is not None
    return record.pid


def kill(folder: Path) -> None:
    os.kill(pid_of(folder), signal.SIGKILL)


@contextlib.contextmanager
def serving(folder: Path, engine: PacedEngine) -> Iterator[Served]:
    served = Served(folder, opening(engine))
    try:
        yield served
    finally:
        served.close()


def test_the_first_question_starts_a_daemon_and_the_next_finds_it(folder: Path) -> None:
    async def main() -> None:
        last = (await answer(client(folder), "to be"))[-1]
        assert isinstance(last, Finished)
        assert last.text == "to be"
        first = pid_of(folder)
        assert isinstance((await answer(client(folder)))[-1], Finished)
        assert pid_of(folder) == first != os.getpid()

    asyncio.run(main())


def test_a_text_that_no_message_can_carry_is_refused_and_starts_nothing(folder: Path) -> None:
    (only,) = asyncio.run(answer(client(folder), "caf\udce9"))
    assert isinstance(only, Failed)
    assert (only.code, only.exit_code) == ("not_utf8", 2)
    assert not instance.is_held(instance.place_of(paths_in(folder).runtime))


def test_eight_clients_at_once_start_one_daemon(folder: Path) -> None:
    async def main() -> None:
        answers = await asyncio.gather(*(answer(client(folder), f"word {i}") for i in range(8)))
        for i, events in enumerate(answers):
            assert isinstance(events[-1], Finished)
            assert events[-1].text == f"word {i}"

    asyncio.run(main())
    log = paths_in(folder).log_file().read_text(encoding="utf-8")
    assert log.count("the engine's process starts") == 1
    assert log.count("loaded a/model") == 1


def test_looking_and_steering_start_nothing(folder: Path) -> None:
    async def main() -> None:
        engine = client(folder)
        status = await engine.status()
        assert (status.state, status.model, status.failure) == ("asleep", "a/model", None)
        await engine.steer("r", Steering())
        await engine.stop_loading()
        with pytest.raises(GoneError):
            await engine.shut_down()

    asyncio.run(main())
    assert not paths_in(folder).runtime.exists()


def test_a_daemon_that_dies_in_mid_answer_is_told_and_the_text_kept(folder: Path) -> None:
    async def main() -> None:
        engine = client(folder)
        events: list[Event] = []
        keep = events.append
        async with engine.generate(ask("word " * 300)) as stream:
            async for event in stream:
                keep(event)
                if len(events) == 20:
                    kill(folder)
        last = events[-1]
        assert isinstance(last, Failed)
        assert (last.code, last.exit_code) == ("engine_lost", 1)
        assert "engine logs" in last.hint
        assert any(isinstance(event, TextDelta) for event in events)
        status = await engine.status()
        assert (status.state, status.context_limit) == ("asleep", 0)
        assert isinstance((await answer(engine))[-1], Finished), "the next one starts it again"

    asyncio.run(main())


def test_a_watcher_outlives_a_crash_and_starts_the_daemon_once_more(folder: Path) -> None:
    async def main() -> None:
        engine = client(folder)
        heard: list[EngineStatus] = []
        async with asyncio.timeout(40), engine.watch() as statuses:
            async for status in statuses:
                heard.append(status)
                if status.state == "ready":
                    if any(s.state == "failed" for s in heard):
                        break
                    kill(folder)
        lost = next(status for status in heard if status.state == "failed")
        assert lost.failure is not None
        assert lost.failure.code == "engine_lost"
        assert lost.model == "a/model"
        assert lost.context_limit > 0

    asyncio.run(main())


def test_a_daemon_that_was_stopped_stays_so_until_it_is_needed(folder: Path) -> None:
    async def main() -> None:
        engine = client(folder)
        states: list[str] = []
        note = states.append

        async def watch() -> None:
            async with engine.watch() as statuses:
                async for status in statuses:
                    note(status.state)

        async def until(state: str) -> None:
            async with asyncio.timeout(20):
                while True:
                    if states and states[-1] == state:
                        return
                    await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        await until("ready")
        assert await asyncio.to_thread(stop_engine, paths_in(folder))
        await until("asleep")
        await asyncio.sleep(1.2)
        assert not instance.listening(instance.place_of(paths_in(folder).runtime))
        assert "failed" not in states
        await answer(engine)
        await until("ready")
        watching.cancel()

    asyncio.run(main())


def test_a_daemon_that_cant_start_says_why(folder: Path) -> None:
    async def main() -> None:
        [failed] = await answer(client(folder, "exits/early"))
        assert isinstance(failed, Failed)
        assert failed.code == "engine_start"
        assert "exit code 3" in failed.message
        assert "this daemon was told to fail" in failed.hint
        assert str(paths_in(folder).log_file()) in failed.hint
        async with client(folder, "exits/early").watch() as statuses:
            with pytest.raises(EngineError, match="could not be started"):
                await anext(statuses)

    asyncio.run(main())


def test_a_model_that_cant_be_loaded_fails_with_the_engine_s_sentence(folder: Path) -> None:
    async def main() -> None:
        [failed] = await answer(client(folder, "broken/load"))
        assert isinstance(failed, Failed)
        assert (failed.code, failed.exit_code) == ("broken", 3)
        assert "damaged" in failed.message

    asyncio.run(main())


def test_a_load_is_stopped_from_a_client(folder: Path) -> None:
    async def main() -> None:
        engine = client(folder, "slow/load")
        async with asyncio.timeout(20), engine.watch() as statuses:
            async for status in statuses:
                if status.load is not None and status.load.done:
                    await engine.stop_loading()
                if status.state == "asleep":
                    break

    asyncio.run(main())


@pytest.mark.parametrize("model", ["./absent", "no-such-name", "absent.gguf"])
def test_a_model_that_is_not_there_starts_no_daemon(folder: Path, model: str) -> None:
    async def main() -> None:
        [failed] = await answer(client(folder, model))
        assert isinstance(failed, Failed)
        assert failed.exit_code == 3

    asyncio.run(main())
    assert not paths_in(folder).runtime.exists()


def test_a_path_means_the_same_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    paths = paths_in(tmp_path)
    for spec in ("models/mine", "./models/mine", str(tmp_path / "models" / "mine")):
        assert wanted_by(settings_of(spec), paths).model.model == str(tmp_path / "models" / "mine")
    assert wanted_by(settings_of("org/name"), paths).model.model == "org/name"
    assert wanted_by(settings_of("QWEN2.5-coder-0.5b"), paths).model.model == "QWEN2.5-coder-0.5b"
    with pytest.raises(ModelError, match="no model called"):
        wanted_by(settings_of("qwen"), paths)


def test_the_first_one_s_settings_hold_and_the_second_is_told(tmp_path: Path) -> None:
    async def main(served: Served) -> None:
        other = served.client(settings_of("other/model"))
        events = await answer(other)
        assert isinstance(events[0], Started)
        assert "qwen2.5-coder-0.5b (asked for: other/model)" in events[0].notice
        assert "engine stop" in events[0].notice
        assert "other/model" in (await other.status()).notice
        for quiet in (served.client(), served.client(settings_of("qwen2.5-coder-0.5b"))):
            started = (await answer(quiet))[0]
            assert isinstance(started, Started)
            assert started.notice == ""

    with serving(tmp_path, PacedEngine()) as served:
        asyncio.run(main(served))


def test_another_model_is_used_by_all_once_one_wishes_it(folder: Path) -> None:
    async def main() -> None:
        one, other = client(folder), client(folder)
        await answer(one)
        await other.use_model("b/model")
        assert isinstance((await answer(one))[-1], Finished)
        assert (await one.status()).model == "b/model"
        assert (await other.status()).notice == ""
        with pytest.raises(ModelError):
            await other.use_model("no-such-name")
        assert (await one.status()).model == "b/model"

    asyncio.run(main())


def test_a_model_whose_files_are_broken_takes_nobody_s_place(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")

    async def main() -> None:
        one, other = client(folder), client(folder)
        await answer(one)
        before = (await one.status()).model
        with pytest.raises(ModelError, match=r"broken\.gguf"):
            await other.use_model(str(tmp_path / "broken.gguf"))
        status = await one.status()
        assert (status.state, status.model) == ("ready", before)
        assert (await other.status()).notice == ""

    asyncio.run(main())


class _OldDaemon(socketserver.StreamRequestHandler):
    """Speaks version 0, whatever it is asked."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(
            b"HTTP/1.1 200 OK\r\nx-sspec-protocol: 0\r\ncontent-length: 2\r\n"
            b"connection: close\r\n\r\n{}"
        )


def test_an_older_daemon_is_refused_with_what_to_do(folder: Path) -> None:
    place = instance.place_of(paths_in(folder).runtime)
    instance.prepare(place)
    with socketserver.UnixStreamServer(str(place.socket), _OldDaemon) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:

            async def main() -> None:
                engine = client(folder)
                with pytest.raises(EngineError, match="speaks version '0'") as caught:
                    await engine.status()
                assert "sspec-assist engine stop" in caught.value.hint
                [failed] = await answer(engine)
                assert isinstance(failed, Failed)
                assert (failed.code, failed.exit_code) == ("protocol_version", 2)
                await engine.shut_down()

            asyncio.run(main())
        finally:
            server.shutdown()


def test_a_daemon_that_hangs_is_ended_by_force(folder: Path) -> None:
    asyncio.run(answer(client(folder)))
    pid = pid_of(folder)
    os.kill(pid, signal.SIGSTOP)
    assert stop_engine(paths_in(folder), patience_s=0.3)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not stop_engine(paths_in(folder))


def test_a_log_that_cant_be_written_is_a_sentence(folder: Path) -> None:
    paths_in(folder).data.write_text("a file where the folder should be")

    async def main() -> None:
        [failed] = await answer(client(folder))
        assert isinstance(failed, Failed)
        assert "can't be used" in failed.message
        assert "SSPEC_ASSIST_DATA" in failed.hint

    asyncio.run(main())
