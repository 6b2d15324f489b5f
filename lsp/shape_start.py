"""Where the code begins in what a model wrote: behind talk, a fence, or the prefix said again.

Judges the model's first lines only. Nothing is cut here: a `Start` says what to leave out and how
the rest is to be read. Knows nothing of where it ends.

Invariant: once an answer is given it holds for every longer text that begins the same.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from lsp.shape_place import Place
from lsp.shape_style import depth
from lsp.shape_words import is_fence, is_talk

_MAX_ECHO_LINES = 12
_ECHO_CHARS = 2_000
_TALK_LINES = 3
"""Lines of talk after which no code is waited for."""


class Start(Struct, frozen=True, kw_only=True):
    """How to read the model's text."""

    index: int = 0
    """Characters before the code."""
    lead: str = ""
    """What to put before it: a line end that the model left out."""
    own_line: bool = False
    """The first line is written whole, with the indentation that the cursor's line has already."""
    shift: int = 0
    """Columns by which every line of its own stands too far left."""
    over: int = 0
    """Columns by which the first line would stand too far right."""
    fenced: bool = False
    refused: bool = False
    """There is nothing to show."""

    def body(self, text: str) -> str:
        """The code in a text that this is the start of."""
        return "" if self.refused else self.lead + text[self.index :]


REFUSED = Start(refused=True)


def start_of(text: str, place: Place, *, multiline: bool, final: bool) -> Start | None:
    """Where the code begins; None while the text is too short to tell and more may come."""
    at = _line_with_text(text, 0, final)
    if at is None:
        return REFUSED if final else None
    fence: int | None = None
    if not place.language.prose and place.inside == "code":
        fence = _behind_fence(text, at, final)
        if fence is None:
            return REFUSED if final else None
        if fence < 0:
            return REFUSED
    if fence:
        at = fence
    echo = _behind_echo(text, at, place, final)
    if echo is None:
        return None
    if echo > at:
        return _after_echo(text, echo, place, fenced=bool(fence), final=final)
    if fence:
        return _in_fence(text, at, place)
    return _plain(text, at, place, multiline)


def expected_depth(place: Place) -> int:
    """Columns at which a new line would stand at the cursor."""
    unit = len(place.style.unit.expandtabs(4))
    if place.opens:
        return depth(place.header) + unit
    return max(depth(place.line), depth(place.previous))


def _plain(text: str, at: int, place: Place, multiline: bool) -> Start:
    """The model answered with nothing but code."""
    skipped = "\n" in text[:at]
    if place.line.strip():
        if not skipped:
            return Start()
        may = place.opens or (multiline and place.at_line_end)
        return Start(index=at, lead="\n") if may else REFUSED
    cursor = len(place.line.expandtabs(4))
    first = text[at:].partition("\n")[0]
    if skipped:
        return Start(index=at, own_line=True) if depth(first) >= cursor else REFUSED
    over = cursor + depth(first) - max(expected_depth(place), cursor)
    exempt = place.language.blocks == "none" or place.inside != "code"
    return Start(over=0 if exempt else max(0, min(over, depth(first))))


def _in_fence(text: str, at: int, place: Place) -> Start:
    """The model answered with a block of Markdown, which knows nothing of the cursor's line."""
    first = depth(text[at:].partition("\n")[0])
    if not place.line.strip():
        shift = max(0, len(place.line.expandtabs(4)) - first)
        return Start(index=at, own_line=True, shift=shift, fenced=True)
    if place.opens:
        wanted = expected_depth(place) - first if first <= depth(place.header) else 0
        return Start(index=at, lead="\n", shift=wanted, fenced=True)
    code = len(text[at:]) - len(text[at:].lstrip(" \t"))
    return Start(index=at + code, fenced=True)


def _after_echo(text: str, at: int, place: Place, *, fenced: bool, final: bool) -> Start | None:
    if place.line.strip():
        return Start(index=at, fenced=fenced)
    line = _line_with_text(text, at, final)
    if line is None:
        return REFUSED if final else None
    own = depth(text[line:].partition("\n")[0])
    if own < len(place.line.expandtabs(4)):
        return REFUSED
    return Start(index=line, own_line=True, fenced=fenced)


def _line_with_text(text: str, at: int, final: bool) -> int | None:
    """Offset of the first whole line that is not blank, from a line's start on."""
    while (newline := text.find("\n", at)) >= 0:
        if text[at:newline].strip():
            return at
        at = newline + 1
    return at if final and text[at:].strip() else None


def _behind_fence(text: str, at: int, final: bool) -> int | None:
    """Offset behind an opening fence, with or without talk before it; 0 without one, −1 if there
    is talk and no code, None if that can't be told yet."""
    talked = 0
    line_at: int | None = at
    while line_at is not None:
        line, _, rest = text[line_at:].partition("\n")
        behind = len(text) - len(rest)
        if is_fence(line):
            return _line_with_text(text, behind, final)
        if not talked and not is_talk(line):
            return 0
        talked += 1
        if talked > _TALK_LINES:
            return -1
        line_at = _line_with_text(text, behind, final)
    return -1 if final else None


def _behind_echo(text: str, at: int, place: Place, final: bool) -> int | None:
    """Offset behind the lines before the cursor, if the model says them again; `at` if it doesn't,
    None if that can't be told yet."""
    given = text[at:]
    for form in _echoes(place.before[-_ECHO_CHARS:]):
        if given.startswith(form):
            return at + len(form)
        if not final and form.startswith(given):
            return None
    return at


@lru_cache(maxsize=8)
def _echoes(before: str) -> tuple[str, ...]:
    """What the model may say again, longest first: the last lines before the cursor."""
    lines = before.split("\n")
    above, line = lines[:-1][-_MAX_ECHO_LINES:], lines[-1]
    end = line if line.strip() else ""
    found: list[str] = []
    for count in range(len(above), -1, -1):
        said = above[len(above) - count :]
        if said and not said[0].strip():
            continue
        if not said and not _is_telling(line):
            continue
        if said and not re.search(r"\w\w", "".join(said)):
            continue
        form = "\n".join([*said, end])
        found += [form, _dedented(form)]
    return tuple(dict.fromkeys(found))


def _is_telling(line: str) -> bool:
    """Whether a line's beginning is long enough that nobody writes it twice in a row."""
    return len(line.strip()) >= 4 and re.search(r"\w\W+", line.strip() + line[-1:]) is not None


def _dedented(lines: str) -> str:
    """The lines with the first one at the left margin."""
    first = lines[: len(lines) - len(lines.lstrip(" \t"))]
    return "\n".join(line.removeprefix(first) for line in lines.split("\n"))
