"""Asks the model for one place: context, prompt, request, and what was learned from it.

Between memory and engine. Owns each document's prompt window and the snippets that go with it,
which stay as they are while one types so that the engine need not read them anew, and the counting
of what was computed for nothing. What is shown, and when, is its callers' business.

Invariant: a request that is cancelled leaves what was written until then in `recent`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import (
    FillPrompt,
    Priority,
    RoundDone,
    SamplingParams,
    SharedEngine,
    Snippet,
)
from lsp.context import Budget, Frame, budget_for, frame_for, patient, prompt_for
from lsp.debounce import Pace
from lsp.fill_run import Ask, FillRun, refusal
from lsp.placing import begun_word, without_word
from lsp.readiness import Readiness
from lsp.recent import Fill, Recent
from lsp.settings import EditorSettings
from lsp.shape import shape_for

if TYPE_CHECKING:
    from lsp.document import Snapshot
    from lsp.offer import Shown

SNIPPETS_S = 15.0
"""So long after the last request, snippets may change."""
OVERRUN_LOOK_S = 0.03
MOST_FRAMES = 32


class SnippetSource(Protocol):
    """Who knows related text of the workspace."""

    def allowed(self, path: Path | None) -> bool:
        """Whether a file may be completed in and read."""
        ...

    async def related(self, snapshot: Snapshot, budget_chars: int) -> tuple[Snippet, ...]:
        """Text of other files, the most related last."""
        ...


class Learns(Protocol):
    """Who counts what becomes of suggestions."""

    def shown(self, snapshot: Snapshot, suggestions: Sequence[Shown], latency_ms: float) -> None:
        """An answer is sent."""
        ...

    def nothing(self, latency_ms: float) -> None:
        """A wish is answered with nothing."""
        ...

    def cancelled(self, tokens_after: int) -> None:
        """So many tokens were computed for a request after it was cancelled."""
        ...

    def decoded(self, rounds: Sequence[RoundDone]) -> None:
        """These rounds were decoded for one request."""
        ...


class _Context(Struct, frozen=True, kw_only=True):
    """What of a prompt stays from one request to the next."""

    frame: Frame
    budget: Budget
    snippets: tuple[Snippet, ...]
    settings: EditorSettings
    """In force when the snippets were chosen."""
    used_at: float


class Asked(Struct, kw_only=True):
    """What came of asking."""

    fill: Fill | None = None
    reason: str = ""
    """Why there is nothing to show."""
    run: FillRun | None = None
    priority: Priority = "fill"
    """`idle` for what nobody waits for."""
    word_is_whole: bool = False
    """The word before the cursor was chosen, not begun."""

    @property
    def failed(self) -> bool:
        """The engine could not answer."""
        return self.run is not None and self.run.failed is not None


class Asker:
    """Asks for one session."""

    def __init__(
        self,
        engine: SharedEngine,
        recent: Recent,
        readiness: Readiness,
        clock: Callable[[], float],
        ids: Iterator[str],
    ) -> None:
        self.pace = Pace()
        self.snippets: SnippetSource | None = None
        self.learning: Learns | None = None
        self._engine = engine
        self._recent = recent
        self._readiness = readiness
        self._clock = clock
        self._ids = ids
        self._contexts: dict[str, _Context] = {}
        self._last_uri = ""
        self._asking: dict[str, int] = {}
        self._counting: set[asyncio.Task[None]] = set()

    async def ask(
        self,
        snapshot: Snapshot,
        settings: EditorSettings,
        asked: Asked,
        *,
        explicit: bool = False,
        seed: int | None = None,
    ) -> Fill | None:
        """What the model has for a place: greedily, or drawn with a seed. None says why in `asked`,
        which has the run from its beginning on."""
        composed = await self._composed(snapshot, settings, explicit=explicit, seed=seed)
        ask = replace(
            composed,
            priority=asked.priority,
            begun="" if asked.word_is_whole else composed.begun,
        )
        run = asked.run = FillRun(self._engine, ask, self._clock)
        asked.fill, asked.reason = None, ""
        uri = snapshot.uri
        self._asking[uri] = self._asking.get(uri, 0) + 1
        try:
            fill = await run.run()
        except asyncio.CancelledError:
            run.keep_in(self._recent)
            self._count_overrun(uri, run)
            raise
        run.keep_other_word(self._recent)
        self._learn(run)
        if run.failed is not None:
            asked.reason = f"{run.failed.message} ({run.failed.code})"
            return None
        if fill is None:
            asked.reason = "the model has nothing for this place"
            return None
        asked.reason = refusal(fill, snapshot)
        asked.fill = None if asked.reason else fill
        return asked.fill

    async def _composed(
        self, snapshot: Snapshot, settings: EditorSettings, *, explicit: bool, seed: int | None
    ) -> Ask:
        drawn = SamplingParams()
        if seed is not None:
            drawn = SamplingParams(temperature=0.8, top_p=0.95, seed=seed)
        written = "" if seed is not None else self._recent.unfinished(snapshot)
        return Ask(
            id=next(self._ids),
            snapshot=snapshot,
            shape=shape_for(snapshot, settings, explicit),
            prompt=await self._prompt(snapshot, settings, explicit=explicit),
            written=written,
            begun="" if written else self._begun(snapshot),
            sampling=drawn,
        )

    def _begun(self, snapshot: Snapshot) -> str:
        """The word that is being written, unless what the model would write is known already."""
        begun = begun_word(snapshot)
        start = without_word(snapshot, begun)
        known = begun and (self._recent.recall(start) or self._recent.unfinished(start))
        return "" if known else begun

    def forget(self, uri: str) -> None:
        """A document was closed."""
        self._contexts.pop(uri, None)
        self._asking.pop(uri, None)

    async def close(self) -> None:
        """Give up what is being counted."""
        for task in tuple(self._counting):
            task.cancel()
        if self._counting:
            await asyncio.wait(self._counting)

    async def _prompt(
        self, snapshot: Snapshot, settings: EditorSettings, *, explicit: bool
    ) -> FillPrompt:
        now, uri, speed = self._clock(), snapshot.uri, self.pace.prefill_tokens_per_s
        last = self._contexts.get(uri)
        budget = last.budget if last is not None else budget_for(speed)
        shown = patient(budget, speed) if explicit else budget
        frame = frame_for(snapshot, shown, None if last is None else last.frame)
        stays = last is not None and frame == last.frame and uri == self._last_uri
        if not stays:
            # All of it is read anew, so that this is the time to change what it holds.
            budget = budget_for(speed)
            shown = patient(budget, speed) if explicit else budget
            frame = frame_for(snapshot, shown, frame)
        stays = stays and last is not None and last.settings == settings
        if last is not None and stays and last.snippets and now - last.used_at < SNIPPETS_S:
            snippets = last.snippets
        elif self.snippets is not None:
            snippets = await self.snippets.related(snapshot, budget.snippets)
        else:
            snippets = ()
        self._last_uri = uri
        # Put in anew, so that the least used one is the first; not before, for a wish may be given
        # up while snippets are looked for.
        self._contexts.pop(uri, None)
        self._contexts[uri] = _Context(
            frame=frame, budget=budget, snippets=snippets, settings=settings, used_at=now
        )
        while len(self._contexts) > MOST_FRAMES:
            del self._contexts[next(iter(self._contexts))]
        return prompt_for(snapshot, frame, shown, snippets)

    def _learn(self, run: FillRun) -> None:
        if run.failed is not None:
            self._readiness.failed()
            return
        self._readiness.worked()
        if run.first_text_s is not None:
            self.pace.answered(run.first_text_s)
        if run.started is not None and run.prefill_s is not None:
            fresh = run.started.prompt_tokens - run.started.cached_tokens
            self.pace.prefilled(fresh, run.prefill_s)
        if run.finished is not None and run.finished.usage.plain_tokens_per_s:
            self.pace.plain_tokens_per_s = run.finished.usage.plain_tokens_per_s
        if self.learning is not None and run.rounds:
            self.learning.decoded(run.rounds)

    def _count_overrun(self, uri: str, run: FillRun) -> None:
        if self.learning is None or run.started is None:
            return
        task = asyncio.get_running_loop().create_task(
            self._overrun(uri, self._asking.get(uri, 0), run.seen_tokens)
        )
        self._counting.add(task)
        task.add_done_callback(self._counting.discard)

    async def _overrun(self, uri: str, count: int, seen_tokens: int) -> None:
        """Look, once the engine has stopped, how much of the document's row was written after the
        last round that came home."""
        await asyncio.sleep(OVERRUN_LOOK_S)
        held = await self._readiness.held_tokens(uri)
        if held is None or self._asking.get(uri, 0) != count or self.learning is None:
            return  # the row has gone to another request
        # The last token of a sequence is not in the cache yet.
        self.learning.cancelled(max(0, held + 1 - seen_tokens))
