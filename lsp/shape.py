"""What to ask the model for at a place, when to stop it, and what of its answer to show.

The three questions of the hot path: `skip_reason` before anything else, `shape_for` for the
request, `Trimmer` for the answer. Pure: a snapshot and the model's text in, a text out. It knows no
engine, no client and no clock; the parts live in `shape_*`, the grammar in `lsp.syntax`.

Invariant: the result depends only on the text pushed, not on the pieces it came in, and feeding a
result back changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from lsp.languages import language_of
from lsp.shape_indent import indented
from lsp.shape_place import Place, place_of
from lsp.shape_scan import plain_newlines
from lsp.shape_skip import SkipReason, skip_reason
from lsp.shape_start import Start, start_of
from lsp.shape_stop import end_of
from lsp.shape_suffix import Fitted, fitted
from lsp.shape_words import special_at, without_torn
from lsp.syntax import spot_at

if TYPE_CHECKING:
    from lsp.document import Snapshot
    from lsp.settings import EditorSettings

__all__ = ["Shape", "SkipReason", "Trimmer", "shape_for", "skip_reason"]

LINE_TOKENS = 64
"""A line that is longer is seldom right to its end."""

_LOOK_CHARS = 32
_ENDING = re.compile(r"[\n\r>\]]")


class Shape(Struct, frozen=True, kw_only=True):
    """What is wanted at one place."""

    multiline: bool
    max_tokens: int
    stop: tuple[str, ...] = ()
    """For the engine: texts that end the answer for certain."""
    indent: str = "    "
    """One level of indentation, as the document writes it."""
    place: Place


def shape_for(snapshot: Snapshot, settings: EditorSettings, explicit: bool) -> Shape:
    """What to ask for at the snapshot's cursor: one line, or the block that opens there."""
    language = language_of(snapshot.language, snapshot.path)
    place = place_of(snapshot, spot_at(language, snapshot.prefix, snapshot.suffix))
    multiline = _is_multiline(place, settings, explicit)
    # On a blank line the model may begin with a line end, which is no end.
    ends_with_line = not multiline and bool(place.line.strip())
    return Shape(
        multiline=multiline,
        max_tokens=settings.max_tokens if multiline else min(settings.max_tokens, LINE_TOKENS),
        stop=("\n",) if ends_with_line else (),
        indent=place.style.unit,
        place=place,
    )


class Trimmer:
    """Reads one answer as it comes and says what of it to show."""

    def __init__(self, snapshot: Snapshot, shape: Shape) -> None:
        self._snapshot, self._shape = snapshot, shape
        self._pieces: list[str] = []
        self._enough = False
        self._unread = 0
        self._fitted: dict[bool, Fitted] = {}

    def push(self, text: str) -> bool:
        """Take the next piece; True once nothing that may follow could be shown."""
        self._pieces.append(text)
        self._fitted.clear()
        self._unread += len(text)
        # Nothing but these can end an answer, save a loop within a line.
        if not self._enough and (self._unread >= _LOOK_CHARS or _ENDING.search(text)):
            self._unread = 0
            self._enough = _decided(self._text(), self._shape) is not None
        return self._enough

    def result(self, *, cut: bool = False) -> str:
        """What to put at the cursor, with the document's line ends; empty for nothing.

        `cut` says that the model was stopped by its token limit, so that what it wrote last may be
        half a word or half a line.
        """
        return self._fit(cut).text.replace("\n", self._shape.place.newline)

    def span(self, *, cut: bool = False) -> tuple[int, int]:
        """The offsets in the document that the result takes the place of, on one line."""
        start = self._snapshot.offset
        return start, start + self._fit(cut).covers

    def _text(self) -> str:
        # A carriage return at the end may be half a line end.
        return plain_newlines("".join(self._pieces).removesuffix("\r"))

    def _fit(self, cut: bool) -> Fitted:
        if cut not in self._fitted:
            self._fitted[cut] = _fit(self._text(), self._shape, cut)
        return self._fitted[cut]


def _is_multiline(place: Place, settings: EditorSettings, explicit: bool) -> bool:
    if settings.multiline == "never" or place.inside != "code":
        return False
    if place.opens:
        return True
    return place.at_line_end and (explicit or settings.multiline == "always")


def _decided(text: str, shape: Shape) -> str | None:
    """The code up to its end; None while more text could change it."""
    special = special_at(text, shape.place.language.markup)
    text = text[: special[0]] if special else text
    start = _start(text, shape, final=special is not None)
    if start is None:
        return None
    body = start.body(text)
    end = 0 if start.refused else end_of(body, shape.place, start, multiline=shape.multiline)
    if end is None:
        return body if special else None
    return body[:end]


def _fit(text: str, shape: Shape, cut: bool) -> Fitted:
    """What to show of an answer. Repeated, for what one trimming lays bare another may find."""
    best = _fit_once(text, shape, cut)
    for _ in range(8):
        again = _fit_once(best.text, shape, cut=False)
        if again == best:
            break
        best = again
    return best


def _fit_once(text: str, shape: Shape, cut: bool) -> Fitted:
    place = shape.place
    special = special_at(text, place.language.markup)
    text = text[: special[0]] if special else without_torn(text)
    start = _start(text, shape, final=True)
    if start is None or start.refused:
        return Fitted(text="")
    body = start.body(text)
    end = end_of(body, place, start, multiline=shape.multiline)
    if end is None and cut:
        body = _without_half(body)
    elif end is None:
        end = end_of(body + "\n", place, start, multiline=shape.multiline)
    body = body if end is None else body[:end]
    return fitted(_joined(indented(body, place, start), place), place)


def _start(text: str, shape: Shape, *, final: bool) -> Start | None:
    return start_of(text, shape.place, multiline=shape.multiline, final=final)


def _without_half(body: str) -> str:
    """Less the line, or the word of an only line, that a token limit may have cut in two."""
    above, newline, _ = body.rpartition("\n")
    return above if newline and above.strip() else re.sub(r"\w+$", "", body)


def _joined(body: str, place: Place) -> str:
    """Less what the end of the cursor's line says already: a blank, the word being written."""
    line = place.line
    if not line.strip() or body.startswith("\n"):
        return body
    if line[-1] in " \t":
        # More than one blank aligns something, and so may what follows.
        return body if place.inside != "code" or line[-2:].isspace() else body.lstrip(" \t")
    word = re.search(r"\w{2,}$", line)
    if word and len(body) > len(word.group()):
        begun = word.group()
        longer = re.match(rf"{re.escape(begun)}\w", body)
        return body[len(begun) :] if longer else body
    return body
