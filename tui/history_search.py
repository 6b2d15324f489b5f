"""What users type into a search box, made into something that always works.

Owns what text can be stored and looked for at all, the reading of a query and the excerpt around a
hit. Pure: it knows neither tables nor widgets.
A query is words with spaces between; nothing in it is an operator. A text is a hit if it contains
every word, as a part of a longer word too, whatever the case.

Invariant: no text a user can type makes `match_expression` one that FTS5 refuses.
"""

from __future__ import annotations

import re

from msgspec import Struct

_TRIGRAM = 3
_EXCERPT_BEFORE = 24
_EXCERPT_LENGTH = 96
_MOST_WORDS = 32


def storable(text: str) -> str:
    """The text as it can be encoded: lone surrogates become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Query(Struct, frozen=True, kw_only=True):
    """The words of a search. `exact` are those too short for the index: they are looked for in
    the text itself."""

    words: tuple[str, ...]
    indexed: tuple[str, ...]
    exact: tuple[str, ...]


def parse_query(text: str) -> Query:
    """Split what was typed into words; NUL, which ends a text for SQLite, counts as a space."""
    typed = storable(text).replace("\x00", " ")
    words = tuple(dict.fromkeys(typed.split()))[:_MOST_WORDS]
    indexed = tuple(word for word in words if len(word) >= _TRIGRAM)
    exact = tuple(word for word in words if len(word) < _TRIGRAM)
    return Query(words=words, indexed=indexed, exact=exact)


def match_expression(words: tuple[str, ...]) -> str:
    """Every word, each as a quoted string of FTS5, in which only the quote itself is special."""
    return " AND ".join('"' + word.replace('"', '""') + '"' for word in words)


def has_words(text: str, joined: str) -> bool:
    """Whether `text` contains each of the words in `joined`, which has line feeds between them."""
    folded = text.casefold()
    return all(word in folded for word in joined.casefold().split("\n"))


def excerpt(text: str, words: tuple[str, ...]) -> str:
    """About 96 characters of `text` around the first word found, on one line."""
    found = (re.search(re.escape(word), text, re.IGNORECASE) for word in words)
    start = min((match.start() for match in found if match), default=0)
    begin = max(0, start - _EXCERPT_BEFORE)
    cut = text[begin : begin + _EXCERPT_LENGTH]
    shown = " ".join(cut.split())
    before = "…" if begin > 0 else ""
    after = "…" if begin + _EXCERPT_LENGTH < len(text) else ""
    return f"{before}{shown}{after}"
