"""Computes what will be wanted next while an answer is shown: after its accept, and after Enter.

It asks only an engine that has nothing else to do, keeps what comes in `recent`, and stops as soon
as the document goes another way or somebody really asks. Owns which document it is busy with.

Invariant: at most one guess is under way, and none for a document that has left its path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lsp.asking import Asked, Asker
from lsp.placing import accepted, inserted
from lsp.readiness import Readiness
from lsp.recent import Fill, Recent
from lsp.settings import EditorSettings
from lsp.shape import shape_for

if TYPE_CHECKING:
    from lsp.document import Snapshot

REST_S = 0.3
"""Where nothing is shown, one has to rest so long; else the engine would work with every key."""
LOOK_S = 0.02
"""How often somebody who waits for a guess looks whether others hold it up."""
STEPS = 2
"""The end of what is shown, and the line below if there is nothing more to show."""

log = logging.getLogger(__name__)


class _Path(Struct, frozen=True, kw_only=True):
    """From a document to what it will be, if the guess is right."""

    base: Snapshot
    first: Snapshot
    """Once what is shown was accepted."""
    goal: Snapshot
    """What is being computed for."""

    def holds(self, now: str) -> bool:
        """Whether a text is on the way."""
        if now in (self.base.text, self.first.text, self.goal.text):
            return True
        typed = inserted(self.base.text, self.base.offset, now)
        way = self.goal.text[self.base.offset : self.goal.offset]
        return typed is not None and way.startswith(typed)


class _Asking:
    """A place that the engine is asked about."""

    def __init__(self, place: Snapshot) -> None:
        self.place = place
        self.asked = Asked(priority="idle", word_is_whole=True)
        self.over = asyncio.Event()


class Prefetch:
    """The guess of one session."""

    def __init__(
        self,
        asker: Asker,
        recent: Recent,
        readiness: Readiness,
        refused: Callable[[Snapshot], str],
        settings: Callable[[], EditorSettings],
    ) -> None:
        """`refused` tells why a place is to be left alone, empty if it isn't."""
        self._asker = asker
        self._recent = recent
        self._readiness = readiness
        self._refused = refused
        self._settings = settings
        self._task: asyncio.Task[None] | None = None
        self._path: _Path | None = None
        self._asking: _Asking | None = None

    def begin(self, snapshot: Snapshot, fill: Fill | None) -> None:
        """Guess on from a place where `fill` is shown, or nothing."""
        first = snapshot if fill is None else accepted(snapshot, fill)
        if self._path is not None and _same(self._path.first, first):
            return  # it is under way, or done
        self.stop()
        self._path = _Path(base=snapshot, first=first, goal=first)
        wait_s = REST_S if fill is None else 0.0
        self._task = asyncio.get_running_loop().create_task(self._run(first, wait_s))

    def changed(self, snapshot: Snapshot) -> None:
        """A document became `snapshot`."""
        path = self._path
        if path is None or path.base.uri != snapshot.uri:
            return
        if not path.holds(snapshot.text):
            self.stop()

    def stop(self, uri: str | None = None) -> None:
        """Leave what is under way; of one document, or whatever it is."""
        if uri is not None and (self._path is None or self._path.base.uri != uri):
            return
        if self._asking is not None and self._asking.asked.run is not None:
            self._asking.asked.run.keep_in(self._recent)
        if self._task is not None:
            self._task.cancel()
        self._path = self._asking = None

    async def arrived(self, snapshot: Snapshot) -> bool:
        """Wait for the guess if it is about just this place; False if it isn't. One that others
        hold up is given up, since it is not idle any more: what it has is gone on from."""
        asking = self._asking
        if asking is None or not _same(asking.place, snapshot):
            return False
        while not asking.over.is_set():
            run = asking.asked.run
            if run is not None and run.held_up:
                self.stop()
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(asking.over.wait(), LOOK_S)
        return True

    async def close(self) -> None:
        """Stop for good."""
        task = self._task
        self.stop()
        if task is not None:
            await asyncio.wait({task})

    async def _run(self, place: Snapshot, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            for _ in range(STEPS):
                shown = await self._known(place)
                if shown is None:
                    self._path = None  # for another try
                if shown is None or shown:
                    return
                following = after_enter(place, self._settings())
                if following is None:
                    return
                place = following
                if self._path is not None:
                    self._path = replace(self._path, goal=place)
        except Exception:
            log.exception("a guess failed")

    async def _known(self, place: Snapshot) -> bool | None:
        """Whether there is anything to show at a place, asking if need be; None if unknown."""
        known = self._recent.recall(place)
        if known is not None:
            return bool(known.fills)
        settings = self._settings()
        if self._refused(place):
            return False
        if not await self._readiness.is_idle():
            return None
        asking = self._asking = _Asking(place)
        asked = asking.asked
        try:
            fill = await self._asker.ask(place, settings, asked)
            if not asked.failed:
                self._recent.keep(place, () if fill is None else (fill,), "prefetch")
        finally:
            asking.over.set()
            if self._asking is asking:
                self._asking = None
        return None if asked.failed else fill is not None


def _same(one: Snapshot, other: Snapshot) -> bool:
    return (one.uri, one.offset, one.text) == (other.uri, other.offset, other.text)


def after_enter(place: Snapshot, settings: EditorSettings) -> Snapshot | None:
    """The document after a new line was begun at the cursor, as editors indent it; None where that
    is not to be expected."""
    text, offset = place.text, place.offset
    rest = text[offset:].lstrip(" \t")
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    line = text[start:offset]
    if not line.strip() or (rest and rest[0] not in "\r\n"):
        return None
    shape = shape_for(place, settings, explicit=False)
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    if shape.place.opens:
        indent += shape.indent
    elif shape.place.language.blocks == "colon" and line.split()[0] in _LAST_WORDS:
        indent = indent.removesuffix(shape.indent)
    new = place.newline + indent
    return replace(place, text=text[:offset] + new + text[offset:], offset=offset + len(new))


_LAST_WORDS = frozenset({"return", "raise", "pass", "break", "continue"})
"""Editors take the line after these one level back."""
