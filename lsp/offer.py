"""One place where something was suggested, and what has become of it since.

Pure. Clients report no acceptance, so it is read off the document: its text is compared with what
it would be if the suggestion were accepted as a whole, in part, or typed out by hand. How a client
cuts its changes does not matter to that, but that several characters came at once tells a hand from
an acceptance.

Invariant: an offer ends once, with one outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from lsp.document import Edit, Snapshot

Source = Literal["model", "memory", "prefetch"]
Outcome = Literal["accepted", "partial", "typed", "rejected", "unseen"]

UNSEEN_S = 0.25
"""What was gone so soon, nobody has read."""
_CLOSERS = ")]}>\"'`"
_MOST_CLOSERS = 3


class Shown(Struct, frozen=True, kw_only=True):
    """A suggestion as it was sent: `text` in the place of the document from `start` to `end`."""

    id: str
    start: int
    end: int
    text: str
    source: Source


class Ended(Struct, frozen=True, kw_only=True):
    """How an offer ended."""

    outcome: Outcome
    accepted_chars: int = 0
    """Not counting what was typed by hand."""
    typed_chars: int = 0
    start: int = 0
    """Where in the document the accepted text begins, for the two outcomes that have one."""
    text: str = ""
    """The accepted text, as the document has it."""


class _Standing(Struct, frozen=True, kw_only=True):
    """How far a suggestion has got into the document."""

    shown: Shown
    text: str
    """The suggestion in the document's own line ends."""
    there: int
    """Characters of `text` that are in the document."""

    @property
    def whole(self) -> bool:
        return self.there == len(self.text)

    @property
    def rest(self) -> str:
        return self.text[self.there :]


class Offer:
    """The suggestions of one answer, or of several answers that say the same."""

    def __init__(self, snapshot: Snapshot, shown: Sequence[Shown], now: float) -> None:
        self.began = now
        self.first = shown[0]
        self.language = snapshot.language
        self.ids = {one.id for one in shown}
        self._accepted = self._typed = 0
        self._confirmed = ""
        self._last_accepted: _Standing | None = None
        self._standings: list[_Standing] = []
        self._begun = 0
        self._place(snapshot, shown)

    def continued_by(self, snapshot: Snapshot, shown: Sequence[Shown]) -> bool:
        """Take in a later answer if it goes on with what this one says, and tell whether it did."""
        later = Offer(snapshot, shown, self.began)
        same = any(
            old.rest
            and new.rest
            and (old.rest.startswith(new.rest) or new.rest.startswith(old.rest))
            for old in self._standings
            for new in later._standings
        )
        if same:
            self.ids |= later.ids
            self._place(snapshot, shown)
        return same

    def confirm(self, id: str) -> None:  # noqa: A002 - the word of the protocol
        """The client says that a suggestion is accepted; the change may be still to come."""
        self._confirmed = id

    def look(self, text: str, edits: Sequence[Edit], now: float) -> Ended | None:
        """Compare with the document as it has become; None while it may still come to anything."""
        standings = [
            standing
            for shown in self._shown
            if (standing := self._standing(shown, text)) is not None
        ]
        if not standings:
            return _moved(self.leave(now), edits)
        best = max(standings, key=lambda one: (one.shown.id == self._confirmed, one.there))
        before = self._standings[0].there
        if best.there < self._begun:
            return self.leave(now)
        at_once = best.shown.id == self._confirmed or any(map(_at_once, edits))
        grown = max(best.there - before, 0)
        self._accepted += grown if at_once else 0
        self._typed += 0 if at_once else grown
        if at_once and grown:
            self._last_accepted = best
        self._standings = [best, *(one for one in standings if one is not best)]
        if not best.whole:
            return None
        return self._ended(
            "accepted" if at_once else "partial" if self._accepted else "typed", best
        )

    def leave(self, now: float) -> Ended:
        """It can come to nothing more."""
        if self._accepted and self._last_accepted is not None:
            return self._ended("partial", self._last_accepted)
        seen = now - self.began >= UNSEEN_S
        return Ended(outcome="rejected" if seen else "unseen", typed_chars=self._typed)

    def corrected(self, id: str) -> Ended:  # noqa: A002
        """How it ended after all, a client having said that a suggestion was accepted."""
        shown = next(one for one in self._shown if one.id == id)
        return Ended(
            outcome="accepted",
            accepted_chars=max(len(shown.text) - self._begun - self._typed, 0),
            typed_chars=self._typed,
        )

    def release(self) -> None:
        """Hold no document any more; it has ended."""
        self._base = ""

    def knows(self, id: str) -> bool:  # noqa: A002
        """Whether a suggestion of this id is what it shows now."""
        return any(one.id == id for one in self._shown)

    def _place(self, snapshot: Snapshot, shown: Sequence[Shown]) -> None:
        self._shown = tuple(shown)
        self._base = snapshot.text
        self._cursor = snapshot.offset
        self._newline = snapshot.newline
        self._standings = [
            one for each in shown if (one := self._standing(each, snapshot.text)) is not None
        ]
        self._begun = self._standings[0].there if self._standings else 0

    def _standing(self, shown: Shown, text: str) -> _Standing | None:
        if text[: shown.start] != self._base[: shown.start]:
            return None
        for wanted in _in_line_ends(shown.text, self._newline):
            there = self._there(shown, wanted, text)
            if there is not None:
                return _Standing(shown=shown, text=wanted, there=there)
        return None

    def _there(self, shown: Shown, wanted: str, text: str) -> int | None:
        """How many characters of `wanted` are in the document where they were suggested."""
        if text[shown.start :] == wanted + self._base[shown.end :]:
            return len(wanted)
        for overtyped in range(_MOST_CLOSERS + 1):
            skipped = self._base[self._cursor : self._cursor + overtyped]
            if len(skipped) < overtyped or skipped.strip(_CLOSERS):
                return None
            rest = self._base[self._cursor + overtyped :]
            end = len(text) - len(rest)
            if end < shown.start or text[end:] != rest:
                continue
            there = _common(text[shown.start : end], wanted)
            closed = text[shown.start + there : end]
            if len(closed) <= _MOST_CLOSERS and not closed.strip(_CLOSERS):
                return there
        return None

    def _ended(self, outcome: Outcome, standing: _Standing) -> Ended:
        return Ended(
            outcome=outcome,
            accepted_chars=self._accepted,
            typed_chars=self._typed,
            start=standing.shown.start,
            text=standing.text[: standing.there],
        )


def _moved(ended: Ended, edits: Sequence[Edit]) -> Ended:
    """The same, its place being in a document that has just been changed."""
    start = ended.start
    for edit in edits:
        if edit.end <= start:
            start += len(edit.text) - (edit.end - edit.start)
    return replace(ended, start=start)


def _in_line_ends(text: str, newline: str) -> tuple[str, ...]:
    """A text as it may get into a document: clients put its own line ends in."""
    if "\n" not in text and "\r" not in text:
        return (text,)
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return tuple(dict.fromkeys((plain.replace("\n", newline), text, plain)))


def _at_once(edit: Edit) -> bool:
    """Whether more came than a key brings, a bracket with its other half being one key."""
    return len(edit.text.strip(" \t\r\n" + _CLOSERS)) > 1


def _common(text: str, other: str) -> int:
    count = 0
    for a, b in zip(text, other, strict=False):
        if a != b:
            break
        count += 1
    return count
