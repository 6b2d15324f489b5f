"""Fitting an insertion to what is behind the cursor: nothing said twice, no bracket too many.

Weighs a few candidates (as it is, cut before what is there already, or put in the place of the
closing brackets that an editor added) by how far from balanced each leaves the code around the
cursor. Knows nothing of how the insertion came about.

Invariant: no candidate is chosen that leaves the code less balanced than nothing would, except by
brackets that the insertion opens at a line's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from lsp.languages import Language
from lsp.shape_place import Place
from lsp.shape_scan import Lexed, scan
from lsp.shape_style import depth

_OUTER = "{" * 32
"""Stands for what may be open before a window that does not begin with the file."""


class Fitted(Struct, frozen=True, kw_only=True):
    """An insertion and how much of what is behind the cursor it takes the place of."""

    text: str
    covers: int = 0
    """Characters of the cursor's line, from the cursor on."""


def fitted(text: str, place: Place) -> Fitted:
    """The best way to put the text at the place; with an empty text if there is none."""
    weighed = place.inside == "code" and not place.language.prose
    if not text.strip():
        return Fitted(text="")
    if place.at_line_end:
        loose = place.language.loose_brackets
        kept = _without_strays(text, place) if weighed and not loose else text
        return Fitted(text=kept.rstrip())
    if not weighed:
        return Fitted(text=_in_words(text, place))
    if place.closers_only and "\n" in text:
        return _around_closers(text, place)
    return _on_line(text, place)


def overlaps(text: str, tail: str) -> Iterator[int]:
    """Lengths of what the text ends and the tail begins with alike, the longest first.

    A blank that the tail begins with may be missing in the text, as it is where the line before
    the cursor ends with one.
    """
    for length in range(min(len(text), len(tail)), 0, -1):
        if text.endswith(tail[:length]):
            yield length
    words = tail.lstrip(" \t")
    if words and len(words) < len(tail) and text.endswith(words):
        yield len(words)


def _in_words(text: str, place: Place) -> str:
    """Less the words that are behind the cursor already."""
    tail = place.tail
    for length in overlaps(text, tail):
        if length >= len(tail.strip()) or length >= 3 or not tail[:length].isalnum():
            return text[: len(text) - length]
    return text


def _on_line(text: str, place: Place) -> Fitted:
    """With code behind the cursor on its line."""
    balance = _Balance(place)
    best: Fitted | None = None
    lowest = balance.cost("", 0)
    for candidate in _candidates(text, place):
        cost = balance.cost(candidate.text, candidate.covers)
        if cost < lowest or (cost == lowest and best is None):
            best, lowest = candidate, cost
    if best is None or not best.text.strip():
        return Fitted(text="")
    return best


def _candidates(text: str, place: Place) -> Iterator[Fitted]:
    """In order of preference among equals."""
    tail = place.tail
    bare = tail.rstrip()
    stripped = text.rstrip()
    for length in overlaps(stripped, bare):
        yield Fitted(text=stripped[: len(stripped) - length])
        if length >= len(bare.strip()) and not place.closers_only:
            return
    if place.closers_only:
        for covers in range(len(bare), 0, -1):
            # Editors show a replacement only if it has what it replaces in it, in order.
            if bare[covers - 1 : covers].strip() and _contains(stripped, bare[:covers]):
                yield Fitted(text=stripped, covers=covers)
    keeps_blank = bare[:1].isalnum() or bare[:1] in "_$\"'}"
    yield Fitted(text=text if keeps_blank else stripped)
    state = scan(place.line, place.language)
    for stray in scan(text, place.language, state).stray:
        yield Fitted(text=text[:stray].rstrip())


def _around_closers(text: str, place: Place) -> Fitted:
    """A block between brackets that both stand on the cursor's line."""
    tail = place.tail.rstrip()
    kept = text.rstrip()
    for length in overlaps(kept, tail):
        if length == len(tail) or "\n" in kept[: len(kept) - length].rstrip(" \t")[-1:]:
            kept = kept[: len(kept) - length].rstrip()
            break
    if not kept.strip() or not place.opens:
        first = kept.strip("\n").partition("\n")[0]
        return _on_line(first, place) if first.strip() and not place.opens else Fitted(text="")
    kept = _balanced_lines(_without_strays(kept, place).rstrip(), place)
    header = place.line[: len(place.line) - len(place.line.lstrip())]
    return Fitted(text=f"{kept}\n{header}") if kept.strip() else Fitted(text="")


def _balanced_lines(text: str, place: Place) -> str:
    """The first lines that leave nothing open for what is behind them to close wrongly."""
    balance = _Balance(place)
    lowest = balance.cost("\n", 0)
    lines = text.split("\n")
    while lines and balance.cost("\n".join([*lines, ""]), 0) > lowest:
        lines.pop()
    return "\n".join(lines)


def _without_strays(text: str, place: Place) -> str:
    """Less the closing brackets, and what follows them, that would close nothing."""
    balance = _Balance(place)
    strays = [*scan(text, place.language, balance.start).stray]
    if not strays:
        return text
    if not place.from_start and strays[0] == 0 and not _may_close(place):
        return ""
    allowed = balance.faults("")
    kept = text
    while strays and balance.faults(kept) > allowed:
        kept = text[: strays.pop()].rstrip()
    return kept


def _may_close(place: Place) -> bool:
    """Whether a closing bracket at the cursor would stand left of what it closes."""
    return bool(place.line.strip()) or place.opens or depth(place.previous) > depth(place.line)


def _contains(text: str, wanted: str) -> bool:
    """Whether the characters of `wanted` stand in the text in that order."""
    rest = iter(text)
    return all(character in rest for character in wanted if character.strip())


@lru_cache(maxsize=4)
def _state_at_cursor(before: str, language: Language, from_start: bool) -> Lexed:
    state = scan(before, language, Lexed(stack="" if from_start else _OUTER))
    return Lexed(stack=state.stack, quote=state.quote, comment=state.comment)


class _Balance:
    """Brackets of the code around the cursor, with one insertion or another."""

    def __init__(self, place: Place) -> None:
        self._language = place.language
        self._after = place.after
        self.start = _state_at_cursor(place.before, place.language, place.from_start)

    def _end(self, text: str, covers: int = 0) -> Lexed:
        middle = scan(text, self._language, self.start)
        return scan(self._after[covers:], self._language, middle)

    def cost(self, text: str, covers: int) -> int:
        """How far from balanced all of it is. What opens at the line's end may stay open."""
        rest = self._after[covers:].partition("\n")[0]
        opens = text.rstrip()[-1:] in ("(", "[", "{") and not rest.strip()
        return self._end(text, covers).cost - (1 if opens else 0)

    def faults(self, text: str) -> int:
        """Brackets that close nothing."""
        return self._end(text).faults
