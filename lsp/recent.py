"""Answers that were had before, found again while they are typed through.

Keyed by what stands before the cursor and behind it, so that an answer is never shown where the
text around it is another. It owns what is kept of each document and for how long; it knows no
engine, no client and no clock.

Invariant: what is recalled for a place, put behind what was typed there since, is what was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from lsp.offer import Source
from lsp.shape_scan import plain_newlines

if TYPE_CHECKING:
    from lsp.document import Snapshot

KEY_BEFORE = 4_096
KEY_AFTER = 1_024
"""Characters on either side of the cursor that must be the same."""
MOST_ANSWERS = 128
MOST_UNFINISHED = 8
_ADDED = frozenset(")]}>\"'`")
"""What editors put behind the cursor by themselves while one types."""
_MOST_ADDED = 4


class Fill(Struct, frozen=True, kw_only=True):
    """A text for the cursor."""

    text: str
    covers: int = 0
    """Characters of the cursor's line, from the cursor on, whose place it takes."""


class Spot(Struct, frozen=True, kw_only=True):
    """A cursor and the text around it."""

    uri: str
    offset: int
    before: str
    after: str
    """Ends with a NUL where the document does."""
    cells: str = ""
    """The end of a notebook's earlier cells."""


class Recalled(Struct, frozen=True, kw_only=True):
    """What is known of a place."""

    fills: tuple[Fill, ...] = ()
    """The best first; none says that there is nothing to show."""
    source: Source
    """Where the answer came from when it was kept."""
    added: str = ""
    """What an editor put behind the cursor since, which the fills don't reckon with."""
    all_known: bool = False
    """The fills are all the alternatives that were to be had."""


class _Kept(Struct, frozen=True, kw_only=True):
    spot: Spot
    fills: tuple[Fill, ...]
    source: Source
    all_known: bool


class _Unfinished(Struct, frozen=True, kw_only=True):
    spot: Spot
    raw: str


def spot_of(snapshot: Snapshot) -> Spot:
    """The place of a snapshot's cursor."""
    return Spot(
        uri=snapshot.uri,
        offset=snapshot.offset,
        before=snapshot.text[max(0, snapshot.offset - KEY_BEFORE) : snapshot.offset],
        after=_after(snapshot),
        cells=snapshot.before[-KEY_BEFORE:],
    )


def typed_since(spot: Spot, snapshot: Snapshot) -> str | None:
    """What was typed between a spot and the snapshot's cursor; None if that isn't all that changed
    before the cursor."""
    if snapshot.uri != spot.uri or snapshot.offset < spot.offset:
        return None
    if snapshot.before[-KEY_BEFORE:] != spot.cells:
        return None
    if snapshot.offset - spot.offset > KEY_BEFORE:
        return None
    begin = spot.offset - len(spot.before)
    if not snapshot.text.startswith(spot.before, begin):
        return None
    return snapshot.text[spot.offset : snapshot.offset]


class Recent:
    """The answers of late, of all documents."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._kept: list[_Kept] = []
        """The newest first."""
        self._unfinished: list[_Unfinished] = []

    def __len__(self) -> int:
        """Answers that are kept."""
        return len(self._kept)

    def keep(
        self,
        snapshot: Snapshot,
        fills: Sequence[Fill],
        source: Source,
        *,
        all_known: bool = False,
    ) -> None:
        """Keep the answer for a place, in place of an older one; no fills for "nothing"."""
        spot = spot_of(snapshot)
        one = _Kept(spot=spot, fills=tuple(fills), source=source, all_known=all_known)
        others = [other for other in self._kept if other.spot != spot]
        self._kept = [one, *others][: self._most]

    def recall(self, snapshot: Snapshot) -> Recalled | None:
        """What to show at a place; None if it isn't known."""
        after = _after(snapshot)
        for kept in self._kept:
            typed = typed_since(kept.spot, snapshot)
            if typed is None:
                continue
            found = _recalled(kept, typed, after)
            if found is not None:
                return found
        return None

    def keep_unfinished(self, snapshot: Snapshot, raw: str) -> None:
        """Keep what the model had written at a place when it was stopped."""
        if raw:
            one = _Unfinished(spot=spot_of(snapshot), raw=raw)
            others = [other for other in self._unfinished if other.spot != one.spot]
            self._unfinished = [one, *others][:MOST_UNFINISHED]

    def unfinished(self, snapshot: Snapshot) -> str:
        """What the model has written already for a place, as it wrote it; empty for nothing."""
        after = _after(snapshot)
        for one in self._unfinished:
            typed = typed_since(one.spot, snapshot)
            if typed is None or _added(one.spot.after, after) is None:
                continue
            typed = plain_newlines(typed)
            if one.raw.startswith(typed) and len(one.raw) > len(typed):
                return one.raw[len(typed) :]
        return ""

    def forget(self, uri: str) -> None:
        """Forget a document."""
        self._kept = [one for one in self._kept if one.spot.uri != uri]
        self._unfinished = [one for one in self._unfinished if one.spot.uri != uri]


def _recalled(kept: _Kept, typed: str, after: str) -> Recalled | None:
    if not kept.fills:
        known = not typed and after == kept.spot.after
        return Recalled(source=kept.source, all_known=kept.all_known) if known else None
    added = _added(kept.spot.after, after)
    fills = tuple(_rests(kept, typed, after, added))
    if not fills:
        return None
    return Recalled(
        fills=fills,
        source=kept.source,
        added=added or "",
        all_known=kept.all_known and not typed,
    )


def _rests(kept: _Kept, typed: str, after: str, added: str | None) -> Iterator[Fill]:
    """What is left of each fill that begins with what was typed."""
    for fill in kept.fills:
        if not fill.text.startswith(typed) or not fill.text[len(typed) :].strip():
            continue
        rest = fill.text[len(typed) :]
        if added is not None:
            yield Fill(text=rest, covers=fill.covers)
            continue
        for gone in range(1, fill.covers + 1):
            # Brackets that were to be replaced, and were typed over.
            if _same(kept.spot.after[gone:], after):
                yield Fill(text=rest, covers=fill.covers - gone)
                break


def _after(snapshot: Snapshot) -> str:
    window = snapshot.text[snapshot.offset : snapshot.offset + KEY_AFTER]
    return window if len(window) == KEY_AFTER else window + "\0"


def _added(before: str, now: str) -> str | None:
    """What stands behind the cursor now before what stood there; None if that has changed."""
    for count in range(_MOST_ADDED + 1):
        if not _ADDED.issuperset(now[:count]):
            return None
        if _same(before, now[count:]):
            return now[:count]
    return None


def _same(one: str, other: str) -> bool:
    """Whether two windows, of which either may be cut short, are of the same text."""
    least = min(len(one), len(other))
    if least < KEY_AFTER - _MOST_ADDED and len(one) != len(other):
        return False
    return one[:least] == other[:least]
