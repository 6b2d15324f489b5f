"""Servers as arms of the bench: a small llama-server and a small chat server, in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from app.peers import SAMPLE, ChatServerArm, LlamaServerArm, checked_url, peer_at, peer_on
from engine.bench import prompt_ids
from engine.cases import Case
from engine.protocol import ChatPrompt, FillPrompt, RequestError, SamplingParams, Turn
from tests.engine.tiny_session import tiny_session

CHAT = Case(
    name="chat",
    kind="chat-code",
    prompt=ChatPrompt(turns=(Turn(role="user", content="one two"),)),
)
FILL = Case(name="fill", kind="fill", prompt=FillPrompt(prefix="a", suffix="b"))


class Server:
    """What a llama-server (with `ids`) or a plain chat server answers, and what it was asked."""

    def __init__(self, ids: list[int] | None = None, status: int = 200) -> None:
        self.ids, self.status = ids, status
        self.asked: list[dict[str, Any]] = []
        self.timings: dict[str, float] = {"predicted_n": 40, "predicted_ms": 800.0}
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        if ids is not None:
            routes.append(Route("/tokenize", self.tokenize, methods=["POST"]))
            routes.append(Route("/completion", self.completion, methods=["POST"]))
        self.client = TestClient(Starlette(routes=routes), base_url="http://127.0.0.1:8099")

    async def models(self, _: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": "small"}]})

    async def tokenize(self, request: Request) -> JSONResponse:
        assert (await request.json())["content"] == SAMPLE
        return JSONResponse({"tokens": self.ids})

    async def completion(self, request: Request) -> JSONResponse:
        self.asked.append(await request.json())
        if self.status != 200:
            return JSONResponse({"error": "context too small"}, status_code=self.status)
        return JSONResponse({"content": "x", "timings": self.timings})

    async def chat(self, request: Request) -> PlainTextResponse | StreamingResponse:
        self.asked.append(await request.json())
        if self.status != 200:
            return PlainTextResponse("no such model", status_code=self.status)

        async def lines() -> AsyncIterator[str]:
            for piece in ("one", " two", " three"):
                yield f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n\n"
            usage = {"prompt_tokens": 9, "completion_tokens": 7}
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")


def llama(status: int = 200) -> Server:
    return Server(ids=tiny_session().loaded.text.encode_plain(SAMPLE), status=status)


def test_a_server_with_our_vocabulary_gets_our_ids_and_tells_its_own_time() -> None:
    server, session = llama(), tiny_session()
    arm = peer_on(server.client, session)
    assert isinstance(arm, LlamaServerArm)
    assert arm.name == "llama.cpp:8099"
    for case in (CHAT, FILL):
        run = arm.run(case, SamplingParams(max_tokens=40))
        assert server.asked[-1]["prompt"] == prompt_ids(session, case)
        assert server.asked[-1]["n_predict"] == 40
        assert server.asked[-1]["temperature"] == 0.0
        assert run.tokens_per_s == 50.0


def test_any_other_server_is_timed_by_its_stream() -> None:
    for server in (Server(), Server(ids=[1, 2, 3])):
        arm = peer_on(server.client, tiny_session())
        assert isinstance(arm, ChatServerArm)
        assert arm.name == "server:8099"
        run = arm.run(CHAT, SamplingParams(max_tokens=40))
        assert server.asked[-1]["messages"] == [{"role": "user", "content": "one two"}]
        assert server.asked[-1]["model"] == "small"
        assert (run.prompt_tokens, run.output_tokens) == (9, 7)
        assert run.decode_ms > 0
        with pytest.raises(RequestError, match="chats only"):
            arm.run(FILL, SamplingParams())


def test_a_refusal_is_told_in_the_server_s_words() -> None:
    with pytest.raises(RequestError, match=r"400: .*context too small"):
        peer_on(llama(status=400).client, tiny_session()).run(CHAT, SamplingParams())
    with pytest.raises(RequestError, match="404: no such model"):
        peer_on(Server(status=404).client, tiny_session()).run(CHAT, SamplingParams())


def test_a_server_that_tells_no_time_is_no_peer() -> None:
    server = llama()
    server.timings = {}
    with pytest.raises(RequestError, match="no decoding time"):
        peer_on(server.client, tiny_session()).run(CHAT, SamplingParams())


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "localhost:1", "http://[::1]:1/x"])
def test_addresses_of_this_machine(url: str) -> None:
    assert checked_url(url).startswith("http://")


@pytest.mark.parametrize("url", ["http://10.0.0.7:80", "https://example.org", "example.org:80"])
def test_nothing_else_is_asked(url: str) -> None:
    with pytest.raises(RequestError, match="not an http address on this machine"):
        checked_url(url)


def test_a_server_that_is_not_there_is_said_so() -> None:
    with ExitStack() as stack, pytest.raises(RequestError, match="does not answer"):
        peer_at("http://127.0.0.1:1", tiny_session(), stack)


@pytest.mark.parametrize("url", ["", "http://[::1", "http://127.0.0.1:abc", "127.0.0.1:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match="not an http address on this machine"):
        checked_url(url)


def saying(body: bytes, *, models: bytes = b'{"data": [{"id": "small"}]}') -> TestClient:
    """A server that answers every question to its model with `body`."""

    async def chat(_: Request) -> Response:
        return Response(body, media_type="text/event-stream")

    async def listed(_: Request) -> Response:
        return Response(models, media_type="application/json")

    routes = [
        Route("/v1/models", listed),
        Route("/v1/chat/completions", chat, methods=["POST"]),
    ]
    return TestClient(Starlette(routes=routes), base_url="http://127.0.0.1:8099")


@pytest.mark.parametrize(
    "models", [b"<html>hello</html>", b"[1, 2]", b'{"data": ["small"]}', b"", b"\xff\x00"]
)
def test_a_server_of_another_kind_is_refused_in_a_sentence(models: bytes) -> None:
    with pytest.raises(RequestError, match=r"8099 answered .*, which can't be read") as refused:
        peer_on(saying(b"", models=models), tiny_session())
    assert "llama-server" in refused.value.hint


def test_a_server_without_a_list_of_models_is_asked_all_the_same() -> None:
    assert isinstance(peer_on(saying(b"", models=b"{}"), tiny_session()), ChatServerArm)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"data: {nope\n\n", "can't be read"),
        (b"data: [1]\n\n", "can't be read"),
        (b'data: {"error": {"message": "out of slots"}}\n\n', "out of slots"),
        (b'data: {"choices": [], "usage": {"completion_tokens": "x"}}\n\n', "can't be read"),
        (b"hello", "said too little"),
        (b'data: {"choices": [{"delta": null}]}\n\n', "said too little"),
    ],
)
def test_a_garbled_answer_is_refused_in_a_sentence(said: bytes, why: str) -> None:
    arm = peer_on(saying(said), tiny_session())
    with pytest.raises(RequestError, match=why):
        arm.run(CHAT, SamplingParams())
