"""`ask`: one question, one streamed answer, one line of statistics.

Builds the request from what the user gave (argument, standard input, attached files) and shows the
events of the answer as they come. Knows of the engine only its protocol. Invariant: standard output
carries the answer, or one JSON event per line, and nothing else; an interrupted answer keeps what
came and is still accounted for.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

import msgspec
from msgspec import Struct

from app.inputs import name_of, read_text, require_text
from app.statistics import Statistics, observe, summary
from app.stream import read_events
from engine.protocol import (
    ChatPrompt,
    Engine,
    EngineError,
    Event,
    GenerateRequest,
    RequestError,
    RouteChoice,
    SamplingParams,
    Snippet,
    Started,
    TextDelta,
    Turn,
)

if TYPE_CHECKING:
    from pathlib import Path


class Question(Struct, frozen=True, kw_only=True):
    """What the user wants answered."""

    text: str
    system: str | None = None
    files: tuple[Path, ...] = ()


def question_text(argument: str | None, piped: str | None) -> str:
    """The question from the argument and from standard input, either of which may be missing.

    `-` as argument stands for standard input. With both, the input follows the argument. Raises
    `RequestError` when neither holds any text.
    """
    parts = [argument if argument != "-" else None, piped]
    text = "\n\n".join(part for part in parts if part and part.strip())
    if not text:
        raise RequestError(
            "no_question",
            "There is no question",
            'Write it as in: sspec-assist ask "How do I read a file line by line?"',
        )
    return text


def build_request(
    question: Question, sampling: SamplingParams, *, route: RouteChoice, k: int | None
) -> GenerateRequest:
    """The request for `question`; reads the attached files. Raises `RequestError` if one fails."""
    require_text(question.text, "the question")
    require_text(question.system or "", "the system message")
    system = (Turn(role="system", content=question.system),) if question.system else ()
    snippets = tuple(
        Snippet(path=name_of(path), text=read_text(path)) for path in dict.fromkeys(question.files)
    )
    return GenerateRequest(
        id=uuid.uuid4().hex,
        prompt=ChatPrompt(
            turns=(*system, Turn(role="user", content=question.text)), snippets=snippets
        ),
        sampling=sampling,
        route=route,
        k=k,
        client="ask",
    )


def answer(
    engine: Engine, request: GenerateRequest, out: TextIO, err: TextIO, *, as_json: bool = False
) -> Statistics:
    """Stream the answer to `out`, then write one line of statistics to `err`.

    Raises an `EngineError` when the engine gives up. An interrupt or a closed pipe passes through
    after the statistics were written.
    """
    shown = _Shown(out, err, as_json=as_json)
    context_limit = 0

    async def read() -> None:
        nonlocal context_limit
        try:
            await read_events(engine, request, shown.show)
        finally:
            # Of no more interest than the answer: an engine that is gone is told by its stream.
            with suppress(EngineError):
                context_limit = (await engine.status()).context_limit

    try:
        asyncio.run(read())
    finally:
        shown.end_line()
        err.write(summary(shown.statistics, context_limit) + "\n")
        err.flush()
    return shown.statistics


class _Shown:
    """What was shown so far of one answer."""

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool) -> None:
        self.statistics = Statistics()
        self._out = out
        self._err = err
        self._as_json = as_json
        self._last = ""
        self._broken = False

    def show(self, event: Event) -> bool:
        self.statistics = observe(self.statistics, event)
        if isinstance(event, Started) and event.notice:
            self._err.write(event.notice + "\n")
        if self._as_json:
            self._write(msgspec.json.encode(event).decode() + "\n")
        elif isinstance(event, TextDelta) and event.text:
            self._write(event.text)
        return True

    def end_line(self) -> None:
        """Leave the cursor at the start of a line, so that what follows does not stick to it."""
        if self._last and not self._last.endswith("\n") and not self._broken:
            self._write("\n")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            self._broken = True
            raise
        self._last = text
