"""Where a wish is about, and where its answer belongs in the document as it is by then.

Pure. An entry that the editor's popup has selected is laid into the document first, because only
what goes on from it can be shown. An answer to a document that has moved on is cut to what is still
to be typed, or dropped.

Invariant: a suggestion, put in the place of its range, gives the text that the answer was made for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lsp.offer import Shown, Source
from lsp.recent import Fill

if TYPE_CHECKING:
    from lsp.document import Snapshot

Suggestion = Shown

LONGEST_WORD = 32
_BEGUN = re.compile(r"(?<!\w)[^\W\d]\w*\Z")
_WORD_GOES_ON = re.compile(r"\w")


class Selected(Struct, frozen=True, kw_only=True):
    """The entry that is selected in the editor's popup: `text` in the place of what is there."""

    start: int
    end: int
    text: str


class Wanted(Struct, frozen=True, kw_only=True):
    """One wish for grey text."""

    snapshot: Snapshot
    explicit: bool = False
    """The user asked for it; else typing did."""
    selected: Selected | None = None


class Placed(Struct, frozen=True, kw_only=True):
    """A wish with its popup's entry laid into the document."""

    base: Snapshot
    """The document as the client has it."""
    snapshot: Snapshot
    """What the answer is to be made for."""
    start: int
    end: int
    lead: str = ""
    """Text of the popup's entry, which stands between `start` and the answer."""


def placed(wanted: Wanted) -> Placed:
    """The place that a wish is about."""
    base, selected = wanted.snapshot, wanted.selected
    if selected is None or not selected.text:
        return Placed(base=base, snapshot=base, start=base.offset, end=base.offset)
    text = base.text[: selected.start] + selected.text + base.text[selected.end :]
    offset = selected.start + len(selected.text)
    return Placed(
        base=base,
        snapshot=replace(base, text=text, offset=offset),
        start=selected.start,
        end=selected.end,
        lead=selected.text,
    )


def inserted(text: str, offset: int, now: str) -> str | None:
    """What was put into a text at an offset to make it what it is now; None if more has changed."""
    end = offset + len(now) - len(text)
    if end < offset or now[:offset] != text[:offset] or now[end:] != text[offset:]:
        return None
    return now[offset:end]


def begun_word(snapshot: Snapshot) -> str:
    """The word whose end the cursor is at; empty for none, for a number, and inside one."""
    if _WORD_GOES_ON.match(snapshot.text, snapshot.offset):
        return ""
    start = max(0, snapshot.offset - LONGEST_WORD - 1)
    found = _BEGUN.search(snapshot.text[start : snapshot.offset])
    return found.group() if found and len(found.group()) <= LONGEST_WORD else ""


def without_word(snapshot: Snapshot, word: str) -> Snapshot:
    """The document before the word that ends at the cursor was typed."""
    start = snapshot.offset - len(word)
    text = snapshot.text[:start] + snapshot.text[snapshot.offset :]
    return replace(snapshot, text=text, offset=start)


def accepted(snapshot: Snapshot, fill: Fill) -> Snapshot:
    """The document after a fill was accepted, looked at from its end."""
    offset = snapshot.offset
    text = snapshot.text[:offset] + fill.text + snapshot.text[offset + fill.covers :]
    return replace(snapshot, text=text, offset=offset + len(fill.text))


def laid_out(
    place: Placed, fills: Sequence[Fill], now: str, source: Source, ids: Iterator[str]
) -> list[Suggestion]:
    """The fills as suggestions for the text as it is now; those that no longer fit are left out.

    Their ids end in their source, which a client can't learn otherwise.
    """
    if now == place.base.text:
        return [
            Suggestion(
                id=f"{next(ids)}-{source}",
                start=place.start,
                end=place.end + fill.covers,
                text=place.lead + fill.text,
                source=source,
            )
            for fill in fills
        ]
    typed = None if place.lead else inserted(place.base.text, place.start, now)
    if typed is None:
        return []
    at = place.start + len(typed)
    rests = [
        Fill(text=fill.text[len(typed) :], covers=fill.covers)
        for fill in fills
        if fill.text.startswith(typed) and fill.text[len(typed) :].strip()
    ]
    return [
        Suggestion(
            id=f"{next(ids)}-{source}",
            start=at,
            end=at + rest.covers,
            text=rest.text,
            source=source,
        )
        for rest in rests
    ]


def numbered(prefix: str) -> Iterator[str]:
    """Ids that are unlike those of any other session."""
    return (f"{prefix}-{number}" for number in itertools.count(1))
