"""Pasted text that a few words stand for: where the placeholders are, and what they expand to.

Owns the rules: what is taken out of a paste, when it is collapsed, how the placeholder reads, and
how placeholders move when the text around them changes. Pure; knows no widget and no key. Places
are offsets into the text as shown, counted in characters.

Invariant: a placeholder is a place, not a spelling: the same words typed by hand stay those words,
and `expand` gives back exactly what was typed and pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

MANY_LINES = 10
MANY_CHARACTERS = 800

_LINE_ENDS = re.compile("\r\n?")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[@-Z\\\\^_])")
_NOT_FOR_A_LINE = re.compile("[\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]")
"""Would break a line where the text area sees none, or reorder the screen: shown by a placeholder
only, and sent as they are."""


class Span(Struct, frozen=True, kw_only=True):
    """A placeholder: characters `start` to `end`, standing for a paste."""

    start: int
    end: int
    paste: int


Spans = tuple[Span, ...]


class Draft(Struct, frozen=True, kw_only=True):
    """A message that is not sent yet, as it stands in the input."""

    text: str
    spans: Spans = ()
    pastes: Mapping[int, str] = {}


def clean(text: str) -> str:
    """A paste without what no message should hold: control characters and colour codes.

    Terminals send line ends as returns; they become line feeds. Everything else is kept.
    """
    text = _ESCAPES.sub("", _LINE_ENDS.sub("\n", text))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def is_plain(text: str) -> bool:
    """Whether the text can be shown in the input, character by character, as it is."""
    return _NOT_FOR_A_LINE.search(text) is None and clean(text) == text


def is_large(text: str) -> bool:
    """Whether a paste is better shown by a placeholder."""
    return len(text) >= MANY_CHARACTERS or line_count(text) >= MANY_LINES or not is_plain(text)


def line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def label(number: int, text: str) -> str:
    """What stands in the input for a paste."""
    lines = line_count(text)
    size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
    return f"[Pasted text #{number}, {size}]"


def as_draft(text: str) -> Draft:
    """A text to be edited; one that can't be shown as it is as a single placeholder."""
    if is_plain(text):
        return Draft(text=text)
    shown = label(1, text)
    whole = Span(start=0, end=len(shown), paste=1)
    return Draft(text=shown, spans=(whole,), pastes={1: text})


def joined(drafts: Iterable[Draft]) -> Draft:
    """Several drafts as one, a blank line between them; empty ones are left out."""
    text, spans, held = "", list[Span](), dict[int, str]()
    for draft in drafts:
        if not draft.text:
            continue
        text += "\n\n" * bool(text)
        places = {old: len(held) + n for n, old in enumerate(draft.pastes, start=1)}
        spans += [
            Span(start=len(text) + s.start, end=len(text) + s.end, paste=places[s.paste])
            for s in draft.spans
        ]
        held |= {places[old]: paste for old, paste in draft.pastes.items()}
        text += draft.text
    return Draft(text=text, spans=tuple(spans), pastes=held)


def grown(spans: Spans, start: int, end: int) -> tuple[int, int]:
    """The range that an edit of `start` to `end` really has: no placeholder is edited in part.

    What would be inserted inside one goes behind it.
    """
    touched = [span for span in spans if span.start < end and start < span.end]
    if start == end:
        return (touched[0].end, touched[0].end) if touched else (start, end)
    return min([start, *(s.start for s in touched)]), max([end, *(s.end for s in touched)])


def moved(spans: Spans, start: int, end: int, length: int) -> Spans:
    """The placeholders after `start` to `end` was replaced by `length` characters."""
    shift = length - (end - start)
    before = [span for span in spans if span.end <= start]
    behind = [
        Span(start=span.start + shift, end=span.end + shift, paste=span.paste)
        for span in spans
        if span.start >= end
    ]
    return (*before, *behind)


def within(spans: Spans, start: int, end: int) -> Spans:
    """The placeholders wholly in a part of the text, as places in that part."""
    return tuple(
        Span(start=span.start - start, end=span.end - start, paste=span.paste)
        for span in spans
        if start <= span.start and span.end <= end
    )


def expand(text: str, spans: Spans, pastes: Mapping[int, str]) -> str:
    """The text with every placeholder replaced by what it stands for."""
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], pastes[span.paste]]
        at = span.end
    return "".join([*parts, text[at:]])


def typed(text: str, spans: Spans) -> str:
    """The text with placeholders blanked, places unchanged: what was typed, as for mentions."""
    for span in spans:
        text = text[: span.start] + " " * (span.end - span.start) + text[span.end :]
    return text
