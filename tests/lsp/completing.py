"""A session of completions without a client: documents, a completer and a scripted engine."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec

from engine.protocol import (
    EngineStatus,
    Event,
    FillPrompt,
    GenerateRequest,
    RoundDone,
    Snippet,
)
from lsp.complete import Completer, Selected, Suggestion, Wanted
from lsp.document import Snapshot
from lsp.documents import Documents, Opened
from lsp.settings import EditorSettings
from tests.fakes import STATUS, ScriptedEngine, answer_script

URI = "file:///project/a.py"
PATIENCE_S = 10.0

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Engine(ScriptedEngine):
    """Says what a function makes of the prompt: a text, or all events of an answer."""

    def __init__(
        self,
        say: Callable[[FillPrompt], str | Sequence[Event]] | str,
        *,
        hold_after: int | None = None,
        status: EngineStatus = STATUS,
    ) -> None:
        self._say = say
        super().__init__(self._script_for, hold_after=hold_after, status=status)

    def _script_for(self, request: GenerateRequest) -> Sequence[Event]:
        assert isinstance(request.prompt, FillPrompt)
        said = self._say if isinstance(self._say, str) else self._say(request.prompt)
        return answer_script(said) if isinstance(said, str) else said

    @property
    def prompts(self) -> list[FillPrompt]:
        return [one.prompt for one in self.requests if isinstance(one.prompt, FillPrompt)]


class Counts:
    """A learner that keeps what it is told."""

    def __init__(self) -> None:
        self.shows: list[tuple[Suggestion, ...]] = []
        self.nothings = 0
        self.cancels: list[int] = []
        self.rounds = 0

    def shown(self, snapshot: Snapshot, suggestions: Sequence[Suggestion], _: float) -> None:
        self.shows.append(tuple(suggestions))

    def nothing(self, latency_ms: float) -> None:
        self.nothings += 1

    def cancelled(self, tokens_after: int) -> None:
        self.cancels.append(tokens_after)

    def decoded(self, rounds: Sequence[RoundDone]) -> None:
        self.rounds += len(rounds)


class Session:
    """One document that is typed in, and the completer for it."""

    def __init__(
        self,
        engine: Engine,
        text: str,
        *,
        settings: EditorSettings | None = None,
        uri: str = URI,
        language: str = "python",
        snippets: Snippets | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings or EditorSettings()
        self.documents = Documents()
        self.documents.encoding = "utf-32"
        self.counts = Counts()
        self.clock = Clock()
        self.uri = uri
        self.completer = Completer(
            engine,
            documents=self.documents,
            settings=lambda: self.settings,
            snippets=snippets,
            learning=self.counts,
            clock=self.clock,
        )
        before, _, after = text.partition("▮")
        self.cursor = len(before)
        opened = Opened(uri=uri, language=language, version=1, text=before + after)
        self.documents.open(opened)

    @property
    def text(self) -> str:
        document = self.documents.get(self.uri)
        assert document is not None
        return document.text

    @property
    def around(self) -> str:
        return f"{self.text[: self.cursor]}▮{self.text[self.cursor :]}"

    def replace(self, start: int, end: int, text: str, cursor: int | None = None) -> None:
        """Change the document as an editor does, and tell the completer."""
        document = self.documents.get(self.uri)
        assert document is not None
        edit = document.replace(start, end, text)
        document.version += 1
        self.cursor = start + len(text) if cursor is None else cursor
        snapshot = document.snapshot(start + len(text))
        self.completer.changed(snapshot, (edit,))

    def type(self, text: str) -> None:
        for character in text:
            self.clock.now += 0.15
            self.replace(self.cursor, self.cursor, character)

    def delete(self, count: int = 1) -> None:
        self.replace(self.cursor - count, self.cursor, "")

    def accept(self, suggestion: Suggestion) -> None:
        self.replace(suggestion.start, suggestion.end, suggestion.text)

    def wanted(self, *, explicit: bool = False, selected: Selected | None = None) -> Wanted:
        snapshot = self.documents.snapshot(self.uri, self.cursor)
        assert snapshot is not None
        return Wanted(snapshot=snapshot, explicit=explicit, selected=selected)

    async def ask(self, *, explicit: bool = False) -> list[Suggestion] | None:
        return await self.completer.complete(self.wanted(explicit=explicit))

    async def texts(self, *, explicit: bool = False) -> list[str]:
        return [one.text for one in await self.ask(explicit=explicit) or []]

    async def settle(self) -> None:
        """Let what goes on in the background come to rest."""
        for _ in range(200):
            await asyncio.sleep(0)


class Snippets:
    """Snippets as they are given, and files that are to be left alone."""

    def __init__(self, *given: Snippet, refused: str = "") -> None:
        self.given = given
        self.refused = refused
        self.asked = 0

    def allowed(self, path: object) -> bool:
        return not self.refused or self.refused not in str(path)

    async def related(self, snapshot: Snapshot, budget_chars: int) -> tuple[Snippet, ...]:
        self.asked += 1
        return self.given
