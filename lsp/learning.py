"""Learns from what becomes of suggestions, on this machine and in numbers only.

Owns which suggestions are in the air, in which documents, and which accepted ones are looked at
again after `LATER_S`. What was accepted is told by the documents themselves (`offer`). Texts stay
in memory; what is written is counts and times, and code only where the user asked for it.

Invariant: it never fails towards who tells it, and never waits; every suggestion is counted once,
however often it was sent again while one typed through it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from engine.protocol import RoundDone
from lsp.document import Edit, Snapshot
from lsp.edit_distance import share_kept
from lsp.learning_store import LearningStore
from lsp.offer import Ended, Offer, Shown, Source
from lsp.settings import EditorSettings

LATER_S = (30, 120, 600)
MOST_OFFERS = 64
MOST_KEPT = 256
_MARGIN = 400
"""Characters around an accepted text in which it is looked for."""


class _Kept:
    """An accepted text, followed through later changes of its document."""

    __slots__ = ("accepted_at", "end", "key", "left", "start", "text")

    def __init__(self, key: str, ended: Ended, now: float) -> None:
        self.key = key
        self.text = ended.text
        self.start = ended.start
        self.end = ended.start + len(ended.text)
        self.accepted_at = now
        self.left = list(LATER_S)

    def move(self, edit: Edit) -> None:
        """Go along with a change."""
        grown = len(edit.text) - (edit.end - edit.start)
        if edit.end <= self.start:
            self.start += grown
            self.end += grown
        elif edit.start < self.end:
            self.start = min(self.start, edit.start)
            self.end = max(self.end, edit.end) + grown


class _Past(Struct, frozen=True, kw_only=True):
    """An offer that ended, for a client that says more about it later."""

    key: str
    offer: Offer
    ended: Ended


class Learning:
    """Counts for one session. Everything is called on the event loop."""

    def __init__(
        self,
        path: Path,
        settings: Callable[[], EditorSettings] = EditorSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
    ) -> None:
        self._store = LearningStore(path)
        self._settings = settings
        self._clock = clock
        self._today = today
        self._offers: dict[str, Offer] = {}
        self._texts: dict[str, str] = {}
        """Documents with anything to follow, as they are now."""
        self._kept: dict[str, list[_Kept]] = {}
        self._past: deque[_Past] = deque(maxlen=16)
        self._session = os.urandom(6).hex()
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    # What the completer tells

    def shown(self, snapshot: Snapshot, suggestions: Sequence[Shown], latency_ms: float) -> None:
        """An answer with suggestions, laid out on `snapshot`, is sent; alternatives come as one."""
        if not suggestions:
            self.nothing(latency_ms)
            return
        self._answered(suggestions[0].source, latency_ms)
        now, uri = self._clock(), snapshot.uri
        offer = self._offers.get(uri)
        if offer is not None:
            if offer.continued_by(snapshot, suggestions):
                return
            self._end(uri, offer.leave(now))
        if len(self._offers) >= MOST_OFFERS:
            oldest = next(iter(self._offers))
            self._end(oldest, self._offers[oldest].leave(now))
        self._offers[uri] = Offer(snapshot, suggestions, now)
        self._texts[uri] = snapshot.text

    def nothing(self, latency_ms: float) -> None:
        """A wish was answered with nothing."""
        self._answered(None, latency_ms)

    def cancelled(self, tokens_after: int) -> None:
        """A request was cancelled, and the engine computed so many tokens after that."""
        self._store.add("cancels", {"at": self._today(), "tokens_after": tokens_after})

    def decoded(self, rounds: Sequence[RoundDone]) -> None:
        """These rounds were decoded for one request."""
        for route in dict.fromkeys(one.route for one in rounds):
            own = [one for one in rounds if one.route == route]
            self._store.add(
                "decoded",
                {
                    "at": self._today(),
                    "route": route,
                    "rounds": len(own),
                    "drafted": sum(one.drafted for one in own),
                    "tested": sum(one.tested for one in own),
                    "accepted": sum(one.accepted for one in own),
                },
            )

    def accepted(self, id: str) -> None:  # noqa: A002 - the word of the protocol
        """A client says so; the change itself may come before or after."""
        for offer in self._offers.values():
            if offer.knows(id):
                offer.confirm(id)
                return
        for past in self._past:
            if past.offer.knows(id) and past.ended.outcome not in ("accepted", "partial"):
                self._correct(past, past.offer.corrected(id))
                return

    # What happens to documents

    def opened(self, snapshot: Snapshot) -> None:
        """A document was opened, or opened anew, as something else perhaps."""
        self._forget(snapshot.uri)

    def changed(self, snapshot: Snapshot, edits: tuple[Edit, ...]) -> None:
        """A document became `snapshot`."""
        uri = snapshot.uri
        if uri not in self._texts:
            return
        self._look_at_kept(uri)
        for kept in self._kept.get(uri, ()):
            for edit in edits:
                kept.move(edit)
        self._texts[uri] = snapshot.text
        offer = self._offers.get(uri)
        if offer is not None:
            ended = offer.look(snapshot.text, edits, self._clock())
            if ended is not None:
                self._end(uri, ended)
        self._drop_text(uri)

    def closed(self, uri: str) -> None:
        """A document was closed."""
        self._forget(uri)

    def folders_changed(self, folders: tuple[Path, ...]) -> None:
        """Of no matter here."""

    async def close(self) -> None:
        """Count what is still in the air, and write what is left."""
        for uri in tuple(self._texts):
            self._forget(uri)
        if self._timer is not None:
            self._timer.cancel()
        await self._store.close()

    def look_again(self) -> None:
        """Look at accepted texts whose time has come; called by a timer, and before each change."""
        self._timer = None
        for uri in tuple(self._kept):
            self._look_at_kept(uri)
            self._drop_text(uri)
        self._set_timer()

    def _correct(self, past: _Past, ended: Ended) -> None:
        self._past.remove(past)
        self._past.append(_Past(key=past.key, offer=past.offer, ended=ended))
        self._store.update(past.key, lambda: _outcome(ended))

    def _answered(self, source: Source | None, latency_ms: float) -> None:
        self._store.add(
            "answers", {"at": self._today(), "source": source, "latency_ms": latency_ms}
        )

    def _end(self, uri: str, ended: Ended) -> None:
        offer = self._offers.pop(uri)
        key = f"{self._session}-{next(self._numbers)}"
        text = offer.first.text
        self._store.add(
            "suggestions",
            {
                "key": key,
                "at": self._today(),
                "language": offer.language,
                "source": offer.first.source,
                "chars": len(text),
                "lines": len(text.splitlines()),
                "seconds": self._clock() - offer.began,
                "code": text if self._settings().log_code else None,
                **_outcome(ended),
            },
        )
        offer.release()
        self._past.append(_Past(key=key, offer=offer, ended=ended))
        if ended.text and sum(map(len, self._kept.values())) < MOST_KEPT:
            self._kept.setdefault(uri, []).append(_Kept(key, ended, self._clock()))
            self._set_timer()

    def _look_at_kept(self, uri: str) -> None:
        text, now = self._texts.get(uri, ""), self._clock()
        for kept in self._kept.get(uri, ()):
            while kept.left and now - kept.accepted_at >= kept.left[0]:
                seconds = kept.left.pop(0)
                there = text[max(kept.start - _MARGIN, 0) : kept.end + _MARGIN]
                self._store.update(kept.key, _share(seconds, kept.text, there))
        if uri in self._kept:
            self._kept[uri] = [kept for kept in self._kept[uri] if kept.left]
            if not self._kept[uri]:
                del self._kept[uri]

    def _forget(self, uri: str) -> None:
        """A document is gone: what was in the air has come to nothing, what is due is counted."""
        offer = self._offers.get(uri)
        if offer is not None:
            self._end(uri, offer.leave(self._clock()))
        self._look_at_kept(uri)
        self._kept.pop(uri, None)
        self._drop_text(uri)

    def _drop_text(self, uri: str) -> None:
        if uri not in self._offers and uri not in self._kept:
            self._texts.pop(uri, None)

    def _set_timer(self) -> None:
        due = [kept.accepted_at + kept.left[0] for kept in self._all_kept() if kept.left]
        if due and self._timer is None:
            wait = max(min(due) - self._clock(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(wait, self.look_again)

    def _all_kept(self) -> Iterator[_Kept]:
        return itertools.chain.from_iterable(self._kept.values())


def _outcome(ended: Ended) -> dict[str, object]:
    return {
        "outcome": ended.outcome,
        "accepted_chars": ended.accepted_chars,
        "typed_chars": ended.typed_chars,
    }


def _share(seconds: int, wanted: str, there: str) -> Callable[[], dict[str, object]]:
    return lambda: {f"kept_{seconds}": share_kept(wanted, there)}
