"""Where the cursor stands: the lines around it, the document's indentation, whether a block opens.

Everything that `lsp.shape` decides is decided from a `Place`, which is computed once for a request
from a window of the document, so that its cost does not grow with the file. Line ends in it are
`\\n`. Knows no model output.

Invariant: a `Place` of a document with `\\r\\n` line ends is that of the same document with `\\n`,
but for `newline`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from lsp.languages import Language, language_of
from lsp.shape_scan import CLOSERS, plain_newlines, scan
from lsp.shape_style import Style, depth, style_of

if TYPE_CHECKING:
    from lsp.document import Snapshot
    from lsp.syntax import Spot

BEFORE_CHARS = 24_000
AFTER_CHARS = 8_000

_TEXT = re.compile(r"[^ \t\n\f\v]")
_HEADER = re.compile(
    r"\s*(?:(?:async\s+)?"
    r"(?:def|class|if|elif|else|for|while|try|except|finally|with|match|case)\b|[)\]}]).*:\s*$"
)
_ELEMENT = re.compile(r"<([A-Za-z][\w.:-]*)(?:\s[^<>]*)?(?<!/)>\s*$")
_EMPTY_ELEMENTS = {
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"),
    *("track", "wbr"),
}

Inside = Literal["code", "string", "comment"]


class Place(Struct, frozen=True, kw_only=True):
    """The cursor's surroundings."""

    language: Language
    before: str
    """The window before the cursor, from a line's start."""
    after: str
    """The window behind the cursor, to a line's end."""
    newline: str
    from_start: bool = True
    """Nothing of the document stands before the window."""
    inside: Inside = "code"
    opens: bool = False
    """A block opens here that has no body yet."""
    header: str = ""
    """The line or lines that open it; empty if none does."""
    closed: bool = False
    """What is behind the cursor closes that block."""
    style: Style
    """How the lines around are indented."""

    @property
    def line(self) -> str:
        """The cursor's line before the cursor."""
        return self.before.rpartition("\n")[2]

    @property
    def tail(self) -> str:
        """The cursor's line behind the cursor."""
        return self.after.partition("\n")[0]

    @property
    def previous(self) -> str:
        """The nearest line above that is not blank."""
        return last_line(self.before.rpartition("\n")[0])

    @property
    def following(self) -> str:
        """The nearest line below that is not blank."""
        return first_line(self.after.partition("\n")[2])

    @property
    def at_line_end(self) -> bool:
        """Nothing but blanks behind the cursor on its line."""
        return not self.tail.strip()

    @property
    def closers_only(self) -> bool:
        """What is behind the cursor on its line was put there to close what is before it."""
        return bool(self.tail.strip()) and not self.tail.strip(" \t)]}>\"'`;,")


def place_of(snapshot: Snapshot, spot: Spot | None = None) -> Place:
    """The place of a snapshot's cursor. What no grammar told (`spot`) is read off the lines."""
    language = language_of(snapshot.language, snapshot.path)
    before, after = windows(snapshot)
    place = Place(
        language=language,
        before=before,
        after=after,
        newline=snapshot.newline,
        from_start=snapshot.offset <= BEFORE_CHARS,
        inside=_inside(before, language, spot),
        style=style_of(before, after, language),
    )
    header = _header(place, spot) if place.inside == "code" else ""
    if not header:
        return place
    return replace(place, opens=True, header=header, closed=_is_closed(place, header))


def windows(snapshot: Snapshot) -> tuple[str, str]:
    """The text around the cursor with `\\n` as line end, whole lines but for the cursor's."""
    text, offset = snapshot.text, snapshot.offset
    before = text[max(0, offset - BEFORE_CHARS) : offset]
    if offset > BEFORE_CHARS:
        before = before.partition("\n")[2] or before
    after = text[offset : offset + AFTER_CHARS]
    if len(text) > offset + AFTER_CHARS:
        after = after.rpartition("\n")[0] or after
    return plain_newlines(before), plain_newlines(after)


def first_line(text: str) -> str:
    """The first line that is not blank; empty if there is none."""
    match = _TEXT.search(text)
    if match is None:
        return ""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.start())
    return text[start : end if end >= 0 else None]


def last_line(text: str) -> str:
    """The last line that is not blank; empty if there is none."""
    return text.rstrip().rpartition("\n")[2]


def opens_block(line: str, language: Language) -> bool:
    """Whether a line is followed by lines that belong to it."""
    state = scan(line, language)
    if state.comment:
        marks = "|".join(map(re.escape, language.comments))
        line = re.split(rf"\s(?:{marks})", line)[0] if marks else ""
        state = scan(line, language)
    code = line.rstrip()
    if not code.strip() or state.quote:
        return False
    if language.blocks != "none" and code[-1] in "([{":
        return True
    if language.blocks == "colon":
        header = _HEADER.match(code) if language.name == "python" else code.endswith(":")
        return bool(header) and not state.stack
    if language.blocks == "word":
        words = re.findall(r"[\w>-]+", code)
        return bool(words) and (words[-1] in language.openers or _starts_block(words, language))
    if language.blocks == "tag":
        element = _ELEMENT.search(code)
        return element is not None and element.group(1).lower() not in _EMPTY_ELEMENTS
    return language.blocks == "brace" and code.endswith(("=>", "->")) and language.gated


def _starts_block(words: list[str], language: Language) -> bool:
    # One-line forms (`if x then y end`) open nothing.
    ends = set(language.closers)
    return language.name in ("ruby", "julia", "lua") and (
        words[0] in language.openers and not ends.intersection(words) and words[0] != "do"
    )


def _inside(before: str, language: Language, spot: Spot | None) -> Inside:
    if spot is not None and not spot.unsure:
        return spot.inside
    # Where the code does not parse, a quote far above may be one that only a grammar understands.
    text = before if spot is None else before.rpartition("\n")[2]
    state = scan(text, language)
    if not state.quote:
        return "code"
    return "comment" if state.comment else "string"


def _header(place: Place, spot: Spot | None) -> str:
    """What opens the block at the cursor; empty if nothing does."""
    known = spot.header if spot is not None else ""
    found = known if spot is not None and spot.empty else ""
    if place.closers_only:
        return place.line if opens_block(place.line, place.language) else ""
    if not place.at_line_end:
        return ""
    line = place.line if place.line.strip() else place.previous
    has_body = _has_body(line, place.following)
    if known and not found and known.rstrip().endswith(line.strip()):
        has_body = True
    if place.line.strip():
        opens = opens_block(line, place.language) and not has_body
        return found or line if opens or (found and _ends_header(line)) else ""
    if opens_block(line, place.language) and not has_body:
        return found or line
    return found


def _has_body(line: str, following: str) -> bool:
    """Whether what a line opens has something in it already."""
    if not following:
        return False
    if depth(following) == depth(line):
        # A list may stand under its bracket; a function without a body stands over another one.
        return line.rstrip()[-1:] in ("(", "[") and following.strip()[0] not in CLOSERS
    return depth(following) > depth(line)


def _ends_header(line: str) -> bool:
    return line.rstrip().endswith((":", "{"))


def _is_closed(place: Place, header: str) -> bool:
    """Whether what is behind the cursor ends the block that the header opens."""
    tail = place.tail.strip()
    if not tail:
        if depth(place.following) != depth(header):
            return False
        tail = place.following.strip()
    if place.language.blocks == "tag":
        return tail.startswith("</")
    word = re.match(r"\w*", tail)
    return tail[:1] in CLOSERS or bool(word and word.group() in place.language.closers)
