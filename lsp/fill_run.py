"""One request to the engine for one place in a document, from its first event to what may be shown.

It reads the stream into a `Trimmer` and leaves it as soon as nothing that may follow could be
shown; leaving is what cancels, within one round. Where the model was stopped before at this place,
it goes on from what was written then. Half a word before the cursor is seldom a token of the
model's, which then writes on as if it were a whole one; so it is asked for the whole word first,
and if it has another in mind, as the text stands. Owns what was measured of the request; knows no
memory and no client.

Invariant: `raw` is what the model has written for the place, all of it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    Engine,
    Event,
    Failed,
    FillPrompt,
    Finished,
    GenerateRequest,
    Paused,
    Priority,
    Queued,
    Resumed,
    RoundDone,
    RouteChoice,
    SamplingParams,
    Started,
    TextDelta,
)
from lsp.placing import without_word
from lsp.recent import Fill, Recent
from lsp.shape import Shape, Trimmer
from lsp.shape_place import windows
from lsp.syntax import breaks_syntax

if TYPE_CHECKING:
    from lsp.document import Snapshot

LEAST_TOKENS = 8
_CHARS_PER_TOKEN = 3
BREAKS_SYNTAX = "it would break the syntax"


class Ask(Struct, frozen=True, kw_only=True):
    """What is asked."""

    id: str
    snapshot: Snapshot
    shape: Shape
    prompt: FillPrompt
    written: str = ""
    """What the model has written here before."""
    begun: str = ""
    """The half word before the cursor, if the model is to be asked for the whole one."""
    priority: Priority = "fill"
    sampling: SamplingParams = SamplingParams()
    """Temperature, seed and the like; the length, and stops beside its own, are the shape's."""
    route: RouteChoice = "auto"
    k: int | None = None
    client: str = "editor"


class FillRun:
    """One request and what came of it."""

    def __init__(self, engine: Engine, ask: Ask, clock: Callable[[], float]) -> None:
        self.ask = ask
        self.raw = ""
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.failed: Failed | None = None
        self.rounds: list[RoundDone] = []
        self.first_text_s: float | None = None
        self.prefill_s: float | None = None
        """From the admission to the first token, less that token's own time."""
        self.left = False
        """The stream was left before its end."""
        self.other_word = ""
        """What the model wrote instead of the word that was begun."""
        self.held_up = False
        """Others go before it just now."""
        self._engine = engine
        self._clock = clock
        self._trimmer = Trimmer(ask.snapshot, ask.shape)
        self._asked_at = self._started_at = clock()
        self._awaited = ""
        """What is to come before anything that may be shown."""

    async def run(self) -> Fill | None:
        """What the model says for the place, fitted to it; None for nothing.

        When it is cancelled, `raw` has what was written until then.
        """
        if self._take(self.ask.written):
            return self._fitted()
        await self._read(self.ask.begun)
        if self._awaited and self.failed is None:
            await self._read("")
        return None if self.failed is not None else self._fitted()

    async def _read(self, begun: str) -> None:
        """Ask, with the begun word left to the model to write, and read the answer."""
        self._awaited = begun
        self.prefill_s = None
        async with self._engine.generate(self._request(begun)) as events:
            self.left = True
            async for event in events:
                if self._is_enough(event):
                    break

    def keep_in(self, recent: Recent) -> None:
        """Keep what was written so far, for whoever asks about this place again."""
        if self.ask.sampling.temperature == 0:
            recent.keep_unfinished(self.ask.snapshot, self.raw)
            self.keep_other_word(recent)

    def keep_other_word(self, recent: Recent) -> None:
        """Keep what the model has in mind instead of the word, so that the next key of the word
        asks for it no more."""
        begun = self.ask.begun
        if not begun.startswith(self.other_word):
            recent.keep_unfinished(without_word(self.ask.snapshot, begun), self.other_word)

    @property
    def seen_tokens(self) -> int:
        """Tokens of the sequence, the prompt's and the answer's, after the last round seen."""
        if self.rounds:
            return self.rounds[-1].context_tokens
        return 0 if self.started is None else self.started.prompt_tokens

    def _request(self, begun: str) -> GenerateRequest:
        ask = self.ask
        left = ask.shape.max_tokens
        if ask.written:
            left = max(LEAST_TOKENS, left - len(ask.written) // _CHARS_PER_TOKEN)
        prompt = ask.prompt
        return GenerateRequest(
            id=ask.id if begun == ask.begun else f"{ask.id}-as-it-stands",
            prompt=replace(prompt, prefix=prompt.prefix.removesuffix(begun) + ask.written),
            sampling=replace(
                ask.sampling,
                max_tokens=left,
                stop=(*ask.sampling.stop, *ask.shape.stop),
            ),
            priority=ask.priority,
            route=ask.route,
            k=ask.k,
            client=ask.client,
            conversation=ask.snapshot.uri or None,
        )

    def _is_enough(self, event: Event) -> bool:
        now = self._clock()
        if isinstance(event, Started):
            self.started, self._started_at, self.held_up = event, now, False
        elif isinstance(event, Paused | Queued | Resumed):
            self.held_up = not isinstance(event, Resumed)
        elif isinstance(event, RoundDone):
            if self.prefill_s is None:
                self.prefill_s = now - self._started_at - event.round_ms / 1000
            self.rounds.append(event)
        elif isinstance(event, TextDelta):
            if self.first_text_s is None:
                self.first_text_s = now - self._asked_at
            return self._hear(event.text)
        elif isinstance(event, Finished):
            self.finished, self.left = event, False
        elif isinstance(event, Failed):
            self.failed, self.left = event, False
        return False

    def _hear(self, text: str) -> bool:
        """Take what came, less the begun word; True once no more of it is wanted."""
        if not self._awaited:
            return self._take(text)
        self.other_word += text
        begun = self.ask.begun
        if self.other_word.startswith(begun):
            text, self.other_word, self._awaited = self.other_word[len(begun) :], "", ""
            return self._take(text)
        return not begun.startswith(self.other_word)

    def _take(self, text: str) -> bool:
        self.raw += text
        return bool(text) and self._trimmer.push(text)

    @property
    def was_cut(self) -> bool:
        """Whether a limit ended it in the middle of something."""
        return self.finished is not None and self.finished.reason in ("length", "context")

    def _fitted(self) -> Fill | None:
        return fitted(self._trimmer, self.ask.snapshot, cut=self.was_cut)


def fitted(trimmer: Trimmer, snapshot: Snapshot, *, cut: bool = False) -> Fill | None:
    """What a trimmer leaves of an answer; None for nothing. Syntax is not looked at."""
    text = trimmer.result(cut=cut)
    if not text.strip():
        return None
    start, end = trimmer.span(cut=cut)
    assert start == snapshot.offset, "fills begin at the cursor"
    return Fill(text=text, covers=end - start)


def refusal(fill: Fill, snapshot: Snapshot) -> str:
    """Why a fill had better not be shown; empty if it may be."""
    before, after = windows(snapshot)
    if breaks_syntax(snapshot.language, before, fill.text, after[fill.covers :]):
        return BREAKS_SYNTAX
    return ""
