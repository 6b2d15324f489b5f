"""The hot path: from a wish for grey text to what is shown. Read this first.

locate → guard → recent → debounce → request → collect → fit → remember. A newer wish for a document
takes the place of the older one, a change that no answer could fit ends it, and both reach the
engine within one round. What the model is asked is `asking`'s business, what is kept `recent`'s.

Invariant: what is shown goes on from the text as it is at that moment, or is not shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from engine.protocol import SharedEngine
from lsp.alternatives import alternatives, distinct
from lsp.asking import Asked, Asker, Learns, SnippetSource
from lsp.fill_run import fitted, refusal
from lsp.placing import (
    Placed,
    Selected,
    Suggestion,
    Wanted,
    inserted,
    laid_out,
    numbered,
    placed,
)
from lsp.prefetch import Prefetch
from lsp.readiness import Readiness
from lsp.recent import Fill, Recalled, Recent
from lsp.request_log import Record, line_of
from lsp.settings import EditorSettings
from lsp.shape import SkipReason, Trimmer, shape_for, skip_reason
from lsp.shape_scan import plain_newlines

if TYPE_CHECKING:
    from lsp.document import Document, Edit, Snapshot

__all__ = ["Completer", "Selected", "Suggestion", "Wanted"]

SUPERSEDED = "a newer wish took its place"
MOVED_ON = "the document went another way"
FINISHED: SkipReason = "after a finished statement"

log = logging.getLogger(__name__)


class Looks(Protocol):
    """Where the open documents are."""

    def get(self, uri: str) -> Document | None:
        """The document as it is now."""
        ...


class _Turn:
    """A wish on its way."""

    __slots__ = ("ended", "place", "record", "work")

    def __init__(self, place: Placed, record: Record) -> None:
        self.place = place
        self.record = record
        self.ended = ""
        """Why it was given up, if it was."""
        self.work: asyncio.Task[tuple[Fill, ...]] | None = None

    def end(self, reason: str, recent: Recent) -> None:
        """Give it up. What was written is kept now: the engine is left some moments later, when a
        newer wish may have asked it already."""
        self.ended = self.ended or reason
        if self.record.asked.run is not None:
            self.record.asked.run.keep_in(recent)
        if self.work is not None:
            self.work.cancel()


class Completer:
    """Completes for one session. Everything is called on the event loop."""

    def __init__(
        self,
        engine: SharedEngine,
        *,
        documents: Looks,
        settings: Callable[[], EditorSettings],
        snippets: SnippetSource | None = None,
        learning: Learns | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._settings = settings
        self._snippets = snippets
        self._learning = learning
        self._clock = clock
        self._ids = numbered(os.urandom(4).hex())
        self._recent = Recent()
        self._readiness = Readiness(engine, clock)
        self._asker = Asker(engine, self._recent, self._readiness, clock, self._ids)
        self._asker.snippets, self._asker.learning = snippets, learning
        self._prefetch = Prefetch(
            self._asker,
            self._recent,
            self._readiness,
            refused=lambda place: self._refused(place, explicit=False),
            settings=settings,
        )
        self._turns: dict[str, _Turn] = {}

    async def complete(self, wanted: Wanted) -> list[Suggestion] | None:
        """What to show, laid out on the document as it is on return: empty for nothing, None if a
        newer wish for the document took this one's place."""
        began, place = self._clock(), placed(wanted)
        asked = Asked(word_is_whole=bool(place.lead))
        record = Record(snapshot=place.snapshot, explicit=wanted.explicit, asked=asked)
        turn = self._take_turn(place, record)
        try:
            assert turn.work is not None
            record.fills = await turn.work
        except asyncio.CancelledError:
            record.reason = turn.ended or "the client cancelled it"
            if not turn.ended:
                raise
        finally:
            if self._turns.get(place.base.uri) is turn:
                del self._turns[place.base.uri]
            self._note(record, self._clock() - began)
        if turn.ended == SUPERSEDED:
            return None
        suggestions = self._laid_out(place, record)
        self._tell(place, suggestions, (self._clock() - began) * 1000)
        may_guess = not record.is_refused and not wanted.explicit and not place.lead
        if may_guess and not turn.ended:
            self._prefetch.begin(place.snapshot, record.fills[0] if record.fills else None)
        return suggestions

    def opened(self, snapshot: Snapshot) -> None:
        """A document was opened: nothing is known of it."""

    def changed(self, snapshot: Snapshot, edits: tuple[Edit, ...]) -> None:
        """A document became `snapshot`: end what can no longer come to anything."""
        self._asker.pace.key(self._clock())
        self._prefetch.changed(snapshot)
        turn = self._turns.get(snapshot.uri)
        if turn is None:
            return
        base, run = turn.place.base, turn.record.asked.run
        typed = None if turn.place.lead else inserted(base.text, base.offset, snapshot.text)
        written = "" if run is None else run.raw
        if typed is None or not _agree(plain_newlines(typed), written):
            turn.end(MOVED_ON, self._recent)

    def closed(self, uri: str) -> None:
        """A document was closed."""
        turn = self._turns.get(uri)
        if turn is not None:
            turn.end(MOVED_ON, self._recent)
        self._prefetch.stop(uri)
        self._recent.forget(uri)
        self._asker.forget(uri)

    def folders_changed(self, folders: tuple[Path, ...]) -> None:
        """Of no matter here."""

    async def close(self) -> None:
        """Stop everything that is under way."""
        for turn in tuple(self._turns.values()):
            turn.end(SUPERSEDED, self._recent)
        await self._prefetch.close()
        await self._asker.close()
        await self._readiness.close()

    def _take_turn(self, place: Placed, record: Record) -> _Turn:
        uri = place.base.uri
        before = self._turns.get(uri)
        if before is not None:
            before.end(SUPERSEDED, self._recent)
        turn = self._turns[uri] = _Turn(place, record)
        turn.work = asyncio.ensure_future(self._answer(place.snapshot, record))
        return turn

    async def _answer(self, place: Snapshot, record: Record) -> tuple[Fill, ...]:
        """The fills for a place, the best first; `record` is told where they came from."""
        record.reason = self._refused(place, explicit=record.explicit)
        if record.reason:
            # Behind a finished statement, the line below is worth a guess.
            record.is_refused = record.reason != FINISHED
            return ()
        known = self._known(place, record)
        if known is not None and (known.all_known or not record.explicit):
            return known.fills
        record.reason = await self._readiness.reason_not_to_ask()
        if record.reason:
            record.is_refused = True
            return ()
        await self._wait(record)
        if not record.explicit and await self._prefetch.arrived(place):
            known = self._known(place, record)
            if known is not None:
                record.source = "model"  # it had to be waited for
                return known.fills
        self._prefetch.stop()
        record.source = "model"
        return await self._asked(place, record, () if known is None else known.fills[:1])

    def _refused(self, place: Snapshot, *, explicit: bool) -> str:
        """Why there is to be no completion at a place; empty if there may be one."""
        reason = skip_reason(place, self._settings(), explicit=explicit)
        if reason is None and self._snippets is not None:
            return "" if self._snippets.allowed(place.path) else "the file is to be left alone"
        return reason or ""

    def _known(self, place: Snapshot, record: Record) -> Recalled | None:
        """What memory has for a place, fitted to what an editor has put behind the cursor since."""
        known = self._recent.recall(place)
        if known is None:
            return None
        record.source = "prefetch" if known.source == "prefetch" else "memory"
        if not known.added:
            return known
        shape = shape_for(place, self._settings(), record.explicit)
        fills = []
        for fill in known.fills:
            trimmer = Trimmer(place, shape)
            trimmer.push(plain_newlines(fill.text))
            again = fitted(trimmer, place)
            if again is not None and not refusal(again, place):
                fills.append(again)
        return replace(known, fills=tuple(fills)) if fills else None

    async def _wait(self, record: Record) -> None:
        record.wait_s = self._asker.pace.wait_s(
            self._clock(),
            setting_ms=self._settings().debounce_ms,
            explicit=record.explicit,
        )
        if record.wait_s > 0:
            await asyncio.sleep(record.wait_s)

    async def _asked(
        self, place: Snapshot, record: Record, known: tuple[Fill, ...]
    ) -> tuple[Fill, ...]:
        """What the model says; with `known` first where alternatives are wanted."""
        settings, explicit = self._settings(), record.explicit
        first = await self._asker.ask(place, settings, record.asked, explicit=explicit)
        record.reason = record.asked.reason
        if record.asked.failed:
            return known
        fills = distinct((*known, *((first,) if first else ())))
        if explicit and fills:
            fills = await alternatives(self._asker, place, settings, fills, self._clock)
        self._recent.keep(place, fills, "model", all_known=explicit)
        return fills

    def _laid_out(self, place: Placed, record: Record) -> list[Suggestion]:
        document = self._documents.get(place.base.uri)
        if document is None or not record.fills:
            return []
        return laid_out(place, record.fills, document.text, record.source, self._ids)

    def _tell(self, place: Placed, suggestions: Sequence[Suggestion], latency_ms: float) -> None:
        if self._learning is None:
            return
        document = self._documents.get(place.base.uri)
        if document is None or not suggestions:
            self._learning.nothing(latency_ms)
            return
        unchanged = document.text == place.base.text
        snapshot = place.base if unchanged else document.snapshot(suggestions[0].start)
        self._learning.shown(snapshot, suggestions, latency_ms)

    def _note(self, record: Record, seconds: float) -> None:
        if log.isEnabledFor(logging.INFO):
            plain = self._asker.pace.plain_tokens_per_s or self._readiness.plain_tokens_per_s
            code = self._settings().log_code
            log.info("%s", line_of(record, seconds, plain_tokens_per_s=plain, code=code))


def _agree(typed: str, written: str) -> bool:
    """Whether what was typed and what the model has written so far can still be the same."""
    return typed.startswith(written) or written.startswith(typed)
