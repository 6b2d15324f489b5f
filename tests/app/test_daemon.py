"""The daemon as a client meets it, over its own socket: many at once, refusals, and leaving."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from app import instance, wire
from app.settings import DaemonSettings, ModelSettings
from app.wire import Startup, Wanted
from engine.protocol import (
    PROTOCOL_VERSION,
    ChatPrompt,
    EngineStatus,
    Event,
    Failed,
    Finished,
    GenerateRequest,
    Snippet,
    Started,
    Steering,
    TextDelta,
    Turn,
)
from tests.app.remote_engine import PacedEngine, Served, opening, paths_in
from tests.fakes import ScriptedEngine, answer_script

VERSION = {wire.VERSION_HEADER: str(PROTOCOL_VERSION)}


def ask(text: str = "a few words", id_: str = "r") -> GenerateRequest:
    turns = (Turn(role="user", content=text),)
    return GenerateRequest(id=id_, prompt=ChatPrompt(turns=turns))


@contextlib.contextmanager
def serving(folder: Path, engine: Any, opened: list[str] | None = None) -> Iterator[Served]:
    served = Served(folder, opening(engine, opened))
    try:
        yield served
    finally:
        served.close()


def http(served: Served) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(served.place.socket), verify=False)
    return httpx.Client(transport=transport, base_url="http://engine", trust_env=False)


async def text_of(served: Served, request: GenerateRequest) -> str:
    async with served.client().generate(request) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, Finished), last
    return last.text


async def eventually(true: Any, patience_s: float = 5.0) -> None:
    async with asyncio.timeout(patience_s):
        while True:
            if true():
                return
            await asyncio.sleep(0.005)


def test_eight_clients_share_one_load_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    engine, opened = PacedEngine(pause_s=0.002), list[str]()

    async def main(served: Served) -> None:
        questions = [f"question {i} " + "word " * i + "end" for i in range(8)]
        texts = await asyncio.gather(
            *(text_of(served, ask(text, str(i))) for i, text in enumerate(questions))
        )
        assert texts == questions

    with serving(tmp_path, engine, opened) as served:
        asyncio.run(main(served))
    assert len(opened) == 1
    assert engine.cancelled == []


def test_a_client_that_leaves_leaves_no_work(tmp_path: Path) -> None:
    engine = PacedEngine(pause_s=0.01)

    async def main(served: Served) -> None:
        async def leave(i: int) -> None:
            async with served.client().generate(ask("word " * 500, str(i))) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        return

        await asyncio.gather(*(leave(i) for i in range(8)))
        await eventually(lambda: len(engine.cancelled) == 8)
        at_cancel = dict(engine.rounds)
        await asyncio.sleep(0.2)
        assert dict(engine.rounds) == at_cancel, "not a round after the cancellation"
        assert max(at_cancel.values()) <= 20
        assert await text_of(served, ask("still here")) == "still here"

    with serving(tmp_path, engine) as served:
        asyncio.run(main(served))


def test_a_client_whose_process_dies_is_noticed_like_one_that_leaves(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("a b c d"), hold_after=3)

    async def main(served: Served) -> None:
        reader, writer = await asyncio.open_unix_connection(str(served.place.socket))
        body = msgspec.json.encode(ask())
        head = f"POST /v1/generate HTTP/1.1\r\nhost: e\r\n{wire.VERSION_HEADER}: 1\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await reader.readuntil(b'"started"')
        writer.transport.abort()
        await eventually(lambda: engine.cancelled == ["r"])

    with serving(tmp_path, engine) as served:
        asyncio.run(main(served))


def test_a_client_that_does_not_read_costs_nobody_else(tmp_path: Path) -> None:
    long = "word " * 50_000
    with serving(tmp_path, PacedEngine()) as served:

        async def main() -> None:
            async with served.client().generate(ask(long, "slow")) as events:
                assert isinstance(await anext(events), Started)
                assert await text_of(served, ask("quick", "quick")) == "quick"

        asyncio.run(main())


@pytest.mark.parametrize(
    "text", ["e\u2028f\u2029g\x85h\x0bi\x0cj\rk\r\n\nl", "data: \n\ndata: x", "😀\0"]
)
def test_no_text_breaks_a_frame(tmp_path: Path, text: str) -> None:
    with serving(tmp_path, PacedEngine()) as served:
        assert asyncio.run(text_of(served, ask(text))) == text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_come_apart_wherever_the_transport_cuts_them(size: int) -> None:
    events: list[Event] = [
        TextDelta(text="a\nb\n\ndata: é", kinds=(), spans=()),
        *answer_script("x y"),
    ]
    sent = b"".join(wire.STILL_HERE + wire.frame(event) for event in events)
    frames = wire.Frames()
    cut = [sent[i : i + size] for i in range(0, len(sent), size)]
    data = [one for chunk in cut for one in frames.feed(chunk)]
    assert [msgspec.json.decode(one, type=Event) for one in data] == events


def test_watching_shows_the_load_and_counts_clients_once(tmp_path: Path) -> None:
    async def main(served: Served) -> None:
        one, other = served.client(), served.client()
        async with one.watch() as statuses, other.watch() as others:
            async for status in statuses:
                if status.state == "ready":
                    break
            await anext(others)
            async with one.generate(ask()) as events:
                async for _ in events:
                    pass
            assert (await one.status()).clients == 2
        async with asyncio.timeout(5):
            while True:
                if not (await one.status()).clients:
                    break
                await asyncio.sleep(0.01)

    with serving(tmp_path, PacedEngine()) as served:
        asyncio.run(main(served))


def test_steering_and_measuring_reach_the_engine(tmp_path: Path) -> None:
    engine = PacedEngine()

    async def main(served: Served) -> None:
        client = served.client()
        prompt = ChatPrompt(
            turns=(Turn(role="user", content="x" * 8),), snippets=(Snippet(path="p", text="y" * 4),)
        )
        assert (await client.measure(prompt)).snippet_tokens == (1,)
        await client.steer("an id", Steering(route="plain", k=2))
        assert engine.steered == [("an id", Steering(route="plain", k=2))]

    with serving(tmp_path, engine) as served:
        asyncio.run(main(served))


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/generate", b"", 400, "bad_request"),
        ("/v1/generate", b"{}", 400, "bad_request"),
        ("/v1/generate", b'{"id":1}', 400, "bad_request"),
        ("/v1/generate", b"\xff\xfe", 400, "bad_request"),
        ("/v1/generate", b"[" * 100_000, 400, "bad_request"),
        (
            "/v1/generate",
            b'{"id":"\\ud800","prompt":{"type":"chat","turns":[]}}',
            400,
            "bad_request",
        ),
        ("/v1/measure", b'{"prompt":{"type":"poem"}}', 400, "bad_request"),
        ("/v1/steer", b'{"request_id":"x","steering":{"route":"fast"}}', 400, "bad_request"),
        ("/v1/model", b'{"model":{"quant":"nf9"}}', 400, "bad_request"),
        ("/v1/generate", b"x" * (wire.MAX_BODY_BYTES + 1), 413, "too_large"),
        ("/v2/generate", b"", 404, "unknown_path"),
        ("/v1/status", b"", 405, "unknown_path"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_request_is_refused_with_words(
    tmp_path: Path, path: str, body: bytes, status: int, code: str
) -> None:
    engine = PacedEngine()
    with serving(tmp_path, engine) as served, http(served) as client:
        response = client.post(path, content=body, headers=VERSION)
        failed = msgspec.json.decode(response.content, type=Failed)
        assert (response.status_code, failed.code, failed.exit_code) == (status, code, 2)
        assert failed.message
        assert "Traceback" not in response.text
        assert client.get("/v1/status", headers=VERSION).status_code == 200
    assert engine.requests == []


@pytest.mark.parametrize("version", [None, "0", "2", "x" * 500])
def test_another_version_is_refused_with_what_to_do(tmp_path: Path, version: str | None) -> None:
    headers = {} if version is None else {wire.VERSION_HEADER: version}
    with serving(tmp_path, PacedEngine()) as served, http(served) as client:
        for path in ("/v1/status", "/v1/watch"):
            response = client.get(path, headers=headers)
            failed = msgspec.json.decode(response.content, type=Failed)
            assert (response.status_code, failed.code) == (426, "protocol_version")
            assert "sspec-assist engine stop" in failed.hint
            assert response.headers[wire.VERSION_HEADER] == str(PROTOCOL_VERSION)


def test_any_version_may_end_it(tmp_path: Path) -> None:
    with serving(tmp_path, PacedEngine()) as served, http(served) as client:
        assert client.post("/v1/shutdown").status_code == 200
        served._thread.join(10)
        assert not served._thread.is_alive()
    assert not instance.is_held(served.place)


def test_ending_it_ends_watchers_properly_and_answers_with_a_failure(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("a b c"), hold_after=2)
    heard: list[EngineStatus] = []
    note = heard.append

    async def main(served: Served) -> None:
        async def watch() -> None:
            async with served.client().watch() as statuses:
                async for status in statuses:
                    note(status)

        async def read() -> list[Event]:
            async with served.client().generate(ask()) as events:
                return [event async for event in events]

        watching, reading = asyncio.create_task(watch()), asyncio.create_task(read())
        await eventually(engine.holding.is_set)
        await served.client().shut_down()
        last = (await reading)[-1]
        assert isinstance(last, Failed)
        assert last.exit_code == 1
        await eventually(lambda: heard[-1].state == "asleep")
        watching.cancel()

    with serving(tmp_path, engine) as served:
        asyncio.run(main(served))
    assert engine.closed


def test_an_engine_that_raises_ends_the_answer_and_not_the_daemon(tmp_path: Path) -> None:
    def script(request: GenerateRequest) -> list[Event]:
        if request.id == "bad":
            raise ZeroDivisionError("a bug")
        return answer_script("fine")

    async def main(served: Served) -> None:
        async with served.client().generate(ask(id_="bad")) as events:
            [failed] = [event async for event in events]
        assert isinstance(failed, Failed)
        assert (failed.code, failed.exit_code) == ("internal", 1)
        assert "engine logs" in failed.hint
        assert await text_of(served, ask()) == "fine"

    with serving(tmp_path, ScriptedEngine(script)) as served:
        asyncio.run(main(served))


def test_the_loopback_takes_only_those_with_the_token(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    place = instance.place_of(paths.runtime, loopback=True)

    async def main() -> None:
        from app.daemon import serve

        with instance.claimed(place) as (bound, record):
            ending = asyncio.Event()
            opened = opening(PacedEngine())
            serving_ = asyncio.create_task(serve(Startup(), bound, record.token, opened, ending))
            await eventually(lambda: instance.listening(place))
            base = f"http://127.0.0.1:{record.port}"
            async with httpx.AsyncClient(base_url=base, verify=False, trust_env=False) as client:
                for given in (
                    {},
                    {"authorization": "Bearer wrong"},
                    {"authorization": record.token},
                ):
                    response = await client.get("/v1/status", headers=VERSION | given)
                    failed = msgspec.json.decode(response.content, type=Failed)
                    assert (response.status_code, failed.code) == (401, "no_token")
                    response = await client.post("/v1/shutdown", headers=given)
                    assert response.status_code == 401
                right = VERSION | {"authorization": f"Bearer {record.token}"}
                assert (await client.get("/v1/status", headers=right)).status_code == 200
            ending.set()
            await serving_

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(6))
def test_who_connects_while_it_ends_is_told_so(tmp_path: Path, turns: int) -> None:
    place = instance.place_of(paths_in(tmp_path).runtime)
    assert place.socket is not None

    async def main() -> None:
        from app.daemon import serve

        loop, ending = asyncio.get_running_loop(), asyncio.Event()

        def end(turns_left: int) -> None:
            loop.call_soon(end, turns_left - 1) if turns_left else ending.set()

        with instance.claimed(place) as (bound, record):
            serving_ = asyncio.create_task(
                serve(Startup(), bound, record.token, opening(PacedEngine()), ending)
            )
            await eventually(lambda: instance.listening(place))
            await asyncio.sleep(0.05)  # the looks above are over
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(place.socket))
                end(turns)
                await serving_
                client.settimeout(1)
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(1) == b""
        gc.collect()

    asyncio.run(main())


def test_it_ends_by_itself_when_nobody_needs_it(tmp_path: Path) -> None:
    startup = Startup(daemon=DaemonSettings(idle_minutes=0.002))
    served = Served(tmp_path, opening(PacedEngine()), startup)
    served._thread.join(10)
    assert not served._thread.is_alive()
    assert not instance.listening(served.place)
    assert not instance.is_held(served.place)


def test_it_says_what_it_serves_in_any_script(tmp_path: Path) -> None:
    wanted = Wanted(model=ModelSettings(model="/ü/模型 😀"))
    served = Served(tmp_path, opening(PacedEngine()), Startup(wanted=wanted))
    try:
        with http(served) as client:
            said = client.get("/v1/status", headers=VERSION).headers[wire.SERVES_HEADER]
        assert msgspec.json.decode(said, type=Wanted) == wanted
    finally:
        served.close()


def test_only_this_user_can_reach_it(tmp_path: Path) -> None:
    with serving(tmp_path, PacedEngine()) as served:
        assert served.place.socket is not None
        assert served.place.socket.stat().st_mode & 0o777 == 0o600
        assert served.place.folder.stat().st_mode & 0o777 == 0o700
        assert served.place.socket.stat().st_uid == os.getuid()


def test_the_process_serves_before_it_knows_torch() -> None:
    probe = (
        "import app.daemon, sys; print(*{'torch', 'transformers', 'bitsandbytes'} & {*sys.modules})"
    )
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
