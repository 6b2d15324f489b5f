"""Other programs on this machine as arms of `bench`: llama-server, or any OpenAI-compatible one.

They get the same prompts with the same bounds, and one run at a time like every arm. llama-server
is sent our token ids where its vocabulary is ours, and tells its own decoding time; any other
server is sent the conversation and timed from its first piece of text to its last. Invariant:
nothing but a loopback address is ever asked.
"""

from __future__ import annotations

import ipaddress
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from engine.bench_results import Run
from engine.protocol import ChatPrompt, EngineError, RequestError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from engine.bench import Arm
    from engine.cases import Case
    from engine.protocol import SamplingParams
    from engine.session import Session

ANSWER_SECONDS = 900.0
SAMPLE = "def add(a: int, b: int) -> int:\n    return a + b  # größer\n"
"""Text whose token ids must be the same on both sides before ids are sent."""


class LlamaServerArm:
    """A llama-server with our model's vocabulary, asked by token ids."""

    def __init__(self, name: str, client: httpx.Client, session: Session) -> None:
        self.name, self._client, self._session = name, client, session

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case once; the time is the server's own. Raises `RequestError` for a prompt
        that the server can't take and `EngineError` if it does not answer."""
        from engine.bench import prompt_ids

        ids = prompt_ids(self._session, case)
        told = _post(
            self._client,
            "/completion",
            {
                "prompt": ids,
                "n_predict": sampling.max_tokens,
                "cache_prompt": True,
                "return_tokens": True,
                "top_k": sampling.top_k,
                "min_p": sampling.min_p,
                "repeat_penalty": sampling.repetition_penalty,
                **_common(sampling),
            },
        )
        timings = told.get("timings", {})
        produced, decode_ms = timings.get("predicted_n", 0), timings.get("predicted_ms", 0.0)
        if not produced or decode_ms <= 0:
            raise RequestError(
                "no_timings", f"{self.name} told no decoding time", "Ask a newer llama-server."
            )
        return Run(
            prompt_tokens=len(ids),
            output_tokens=int(produced),
            decode_ms=float(decode_ms),
            output=None,
        )


class ChatServerArm:
    """Any server that streams `/v1/chat/completions`."""

    def __init__(self, name: str, client: httpx.Client, model: str) -> None:
        self.name, self._client, self._model = name, client, model

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case once, timed between the first and the last piece of text. Raises
        `RequestError` for a fill, `EngineError` if the server does not answer."""
        if not isinstance(case.prompt, ChatPrompt):
            raise RequestError("no_fill", "this server is asked for chats only", "Leave it out.")
        turns = [{"role": turn.role, "content": turn.content} for turn in case.prompt.turns]
        body = {
            "model": self._model,
            "messages": turns,
            "max_tokens": sampling.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **_common(sampling),
        }
        pieces, usage = _streamed(self._client, body)
        produced = int(usage.get("completion_tokens", len(pieces)))
        if len(pieces) < 2 or produced < 2:
            raise RequestError("no_text", f"{self.name} said too little to time", "Leave it out.")
        # The first piece ends the reading of the prompt; what follows are the other tokens.
        per_token = 1e3 * (pieces[-1] - pieces[0]) / (produced - 1)
        return Run(
            prompt_tokens=int(usage.get("prompt_tokens", 0)),
            output_tokens=produced,
            decode_ms=max(per_token * produced, 1e-6),
        )


def peer_at(url: str, session: Session, stack: ExitStack) -> Arm:
    """The arm for the server at `url`, reached until `stack` is left. Raises `RequestError` for an
    address that is not loopback and `EngineError` for a server that does not answer."""
    base = checked_url(url)
    client = httpx.Client(base_url=base, timeout=ANSWER_SECONDS, trust_env=False)
    return peer_on(stack.enter_context(client), session)


def peer_on(client: httpx.Client, session: Session) -> Arm:
    """The arm for a server that `client` reaches."""
    port = client.base_url.port or 80
    if _speaks_our_ids(client, session):
        return LlamaServerArm(f"llama.cpp:{port}", client, session)
    models = _get(client, "/v1/models").get("data") or [{}]
    return ChatServerArm(f"server:{port}", client, str(models[0].get("id", "default")))


def checked_url(url: str) -> str:
    """`url` without a path, or `RequestError` if it leads off this machine."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme != "http" or not _is_loopback(parts.hostname or ""):
        raise RequestError(
            "not_loopback",
            f"{url} is not an http address on this machine",
            "Peers are measured on the same machine; give http://127.0.0.1:PORT.",
        )
    return f"http://{parts.netloc}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _speaks_our_ids(client: httpx.Client, session: Session) -> bool:
    """Whether this is a llama-server whose token ids are ours."""
    try:
        response = client.post("/tokenize", json={"content": SAMPLE, "add_special": False})
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    if response.status_code != 200:
        return False
    told = response.json()
    ours = session.loaded.text.encode_plain(SAMPLE)
    return isinstance(told, dict) and told.get("tokens") == ours


def _common(sampling: SamplingParams) -> dict[str, Any]:
    told: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.seed is not None:
        told["seed"] = sampling.seed
    if sampling.stop:
        told["stop"] = list(sampling.stop)
    return told


def _streamed(client: httpx.Client, body: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
    """When each piece of text came, in seconds, and the usage that was told."""
    pieces: list[float] = []
    usage: dict[str, Any] = {}
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                raise _refused(response)
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                told = json.loads(line[len("data: ") :])
                usage = told.get("usage") or usage
                if any(choice.get("delta", {}).get("content") for choice in told["choices"]):
                    pieces.append(time.perf_counter())
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    return pieces, usage


def _post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        response = client.post(path, json=body)
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    return _told(response)


def _get(client: httpx.Client, path: str) -> dict[str, Any]:
    try:
        response = client.get(path)
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    return _told(response)


def _told(response: httpx.Response) -> dict[str, Any]:
    if response.status_code != 200:
        raise _refused(response)
    told: dict[str, Any] = response.json()
    return told


def _refused(response: httpx.Response) -> RequestError:
    said = response.text.strip()[:200]
    return RequestError(
        "peer_refused",
        f"{response.url.host}:{response.url.port} answered {response.status_code}: {said}",
        "Look at the server's own log; it may need a larger context.",
    )


def _unreachable(client: httpx.Client, error: httpx.HTTPError) -> EngineError:
    return EngineError(
        "peer_unreachable",
        f"{client.base_url} does not answer ({error})",
        "Start the server first, and wait until it has loaded its model.",
    )
