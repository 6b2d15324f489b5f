"""Other programs on this machine as arms of `bench`: llama-server, or any OpenAI-compatible one.

They get the same prompts with the same bounds, and one run at a time like every arm. llama-server
is sent our token ids where its vocabulary is ours, and tells its own decoding time; any other
server is sent the conversation and timed from its first piece of text to its last. Invariant:
nothing but a loopback address is ever asked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx
import msgspec
from msgspec import Struct, field

from app.loopback import is_loopback
from engine.bench_results import Run
from engine.protocol import ChatPrompt, RequestError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from engine.bench import Arm
    from engine.cases import Case
    from engine.protocol import SamplingParams
    from engine.session import Session

ANSWER_SECONDS = 900.0
"""Without a byte of an answer."""
GREETING_SECONDS = 30.0
"""The same for what is asked first, which needs no model."""
SAMPLE = "def add(a: int, b: int) -> int:\n    return a + b  # größer\n"
"""Text whose token ids must be the same on both sides before ids are sent."""


class _Timings(Struct, frozen=True):
    predicted_n: int = 0
    predicted_ms: float = 0.0


class _Completion(Struct, frozen=True):
    """What llama-server answers to `/completion`, as far as it is read."""

    timings: _Timings = _Timings()


class _Delta(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct, frozen=True):
    delta: _Delta | None = None


class _Usage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(Struct, frozen=True):
    """One `data:` line of a streamed chat."""

    choices: list[_Choice]
    usage: _Usage | None = None


class _Model(Struct, frozen=True):
    id: str


class _Models(Struct, frozen=True):
    """What `/v1/models` answers."""

    data: list[_Model] = field(default_factory=list)


class _Tokens(Struct, frozen=True):
    """What llama-server answers to `/tokenize`."""

    tokens: list[int]


_T = TypeVar("_T")


class LlamaServerArm:
    """A llama-server with our model's vocabulary, asked by token ids."""

    def __init__(self, name: str, client: httpx.Client, session: Session) -> None:
        self.name, self._client, self._session = name, client, session

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case once; the time is the server's own. Raises `RequestError` for a prompt
        that the server can't take, and if it does not answer."""
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
            _Completion,
        )
        produced, decode_ms = told.timings.predicted_n, told.timings.predicted_ms
        if produced <= 0 or decode_ms <= 0:
            raise RequestError(
                "no_timings", f"{self.name} told no decoding time", "Ask a newer llama-server."
            )
        return Run(
            prompt_tokens=len(ids),
            output_tokens=produced,
            decode_ms=decode_ms,
            output=None,
        )


class ChatServerArm:
    """Any server that streams `/v1/chat/completions`."""

    def __init__(self, name: str, client: httpx.Client, model: str) -> None:
        self.name, self._client, self._model = name, client, model

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        """Decode the case once, timed between the first and the last piece of text. Raises
        `RequestError` for a fill, and if the server does not answer."""
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
        produced = len(pieces) if usage.completion_tokens is None else usage.completion_tokens
        if len(pieces) < 2 or produced < 2:
            raise RequestError("no_text", f"{self.name} said too little to time", "Leave it out.")
        # The first piece ends the reading of the prompt; what follows are the other tokens.
        per_token = 1e3 * (pieces[-1] - pieces[0]) / (produced - 1)
        return Run(
            prompt_tokens=usage.prompt_tokens or 0,
            output_tokens=produced,
            decode_ms=max(per_token * produced, 1e-6),
        )


def peer_at(url: str, session: Session, stack: ExitStack) -> Arm:
    """The arm for the server at `url`, reached until `stack` is left. Raises `RequestError` for an
    address that is not loopback and for a server that does not answer."""
    base = checked_url(url)
    client = httpx.Client(base_url=base, timeout=GREETING_SECONDS, trust_env=False)
    arm = peer_on(stack.enter_context(client), session)
    client.timeout = httpx.Timeout(ANSWER_SECONDS)
    return arm


def peer_on(client: httpx.Client, session: Session) -> Arm:
    """The arm for a server that `client` reaches."""
    port = client.base_url.port or 80
    if _speaks_our_ids(client, session):
        return LlamaServerArm(f"llama.cpp:{port}", client, session)
    models = _get(client, "/v1/models", _Models).data
    return ChatServerArm(f"server:{port}", client, models[0].id if models else "default")


def checked_url(url: str) -> str:
    """`url` without a path, or `RequestError` if it leads off this machine."""
    parts = _parts_of(url)
    if parts is None or parts.scheme != "http" or not is_loopback(parts.hostname or ""):
        raise RequestError(
            "not_loopback",
            f"{url} is not an http address on this machine",
            "Peers are measured on the same machine; give http://127.0.0.1:PORT.",
        )
    return f"http://{parts.netloc}"


def _parts_of(url: str) -> SplitResult | None:
    """The parts of an address, or None for what is none: `[::1`, a port that is no number."""
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _speaks_our_ids(client: httpx.Client, session: Session) -> bool:
    """Whether this is a llama-server whose token ids are ours."""
    try:
        response = client.post("/tokenize", json={"content": SAMPLE, "add_special": False})
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    if response.status_code != 200:
        return False
    try:
        told = msgspec.json.decode(response.content, type=_Tokens)
    except msgspec.MsgspecError:
        return False
    return told.tokens == session.loaded.text.encode_plain(SAMPLE)


def _common(sampling: SamplingParams) -> dict[str, Any]:
    told: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.seed is not None:
        told["seed"] = sampling.seed
    if sampling.stop:
        told["stop"] = list(sampling.stop)
    return told


def _streamed(client: httpx.Client, body: dict[str, Any]) -> tuple[list[float], _Usage]:
    """When each piece of text came, in seconds, and the usage that was told."""
    pieces: list[float] = []
    usage = _Usage()
    try:
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                response.read()
                raise _refused(response)
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                told = _read(client, line[len("data: ") :].encode(), _Chunk)
                usage = told.usage or usage
                if any(choice.delta and choice.delta.content for choice in told.choices):
                    pieces.append(time.perf_counter())
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    return pieces, usage


def _post(client: httpx.Client, path: str, body: dict[str, Any], kind: type[_T]) -> _T:
    try:
        response = client.post(path, json=body)
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    return _told(client, response, kind)


def _get(client: httpx.Client, path: str, kind: type[_T]) -> _T:
    try:
        response = client.get(path)
    except httpx.HTTPError as error:
        raise _unreachable(client, error) from error
    return _told(client, response, kind)


def _told(client: httpx.Client, response: httpx.Response, kind: type[_T]) -> _T:
    if response.status_code != 200:
        raise _refused(response)
    return _read(client, response.content, kind)


def _read(client: httpx.Client, said: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(said, type=kind)
    except msgspec.MsgspecError as error:
        start = said[:80].decode(errors="replace")
        raise RequestError(
            "peer_garbled",
            f"{client.base_url} answered {start!r}, which can't be read ({error})",
            "Name a llama-server or an OpenAI-compatible server.",
        ) from error


def _refused(response: httpx.Response) -> RequestError:
    said = response.text.strip()[:200]
    return RequestError(
        "peer_refused",
        f"{response.url.host}:{response.url.port} answered {response.status_code}: {said}",
        "Look at the server's own log; it may need a larger context.",
    )


def _unreachable(client: httpx.Client, error: httpx.HTTPError) -> RequestError:
    said = f"{error}" or type(error).__name__
    return RequestError(
        "peer_unreachable",
        f"{client.base_url} does not answer ({said})",
        "Start the server first, and wait until it has loaded its model.",
    )
