"""When not to complete at all: decided before anything is computed or asked.

Looks at the settings, the document's name and the text right around the cursor, in time that does
not grow with the file. Knows no engine and no model.

Invariant: a file of secrets is never completed in, whatever the settings say or the user asks.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Literal
from urllib.parse import unquote

from engine.project_files.secrets import secret_reason
from lsp.document import Snapshot
from lsp.languages import canonical, language_of
from lsp.settings import EditorSettings

SkipReason = Literal[
    "a file of secrets",
    "completions are off",
    "the language is off",
    "nothing to go by",
    "inside a word",
    "before a word",
    "after a finished statement",
    "a very long line",
]

MIN_CHARS = 4
"""Characters that are not blank, on either side of the cursor, below which a model only guesses."""
LONG_LINE_CHARS = 1_000
LONGEST_LINE_CHARS = 4_000
_NEAR_CHARS = 2_000
_OFF_UNLESS_ASKED = frozenset({"log", "csv", "scminput", "output", "search-result", "diff"})
_WORD = re.compile(r"\w")


def skip_reason(
    snapshot: Snapshot, settings: EditorSettings, *, explicit: bool = False
) -> SkipReason | None:
    """Why there is to be no completion here; None if there may be one."""
    if secret_reason(_name(snapshot)) is not None:
        return "a file of secrets"
    if not settings.enabled:
        return "completions are off"
    if not language_on(snapshot, settings, explicit):
        return "the language is off"
    return _by_text(snapshot, explicit)


def _name(snapshot: Snapshot) -> PurePath:
    if snapshot.path is not None:
        return snapshot.path
    # A buffer that was never saved may carry the name that it will be saved under.
    return PurePath(unquote(snapshot.uri.partition(":")[2] or snapshot.uri))


def language_on(snapshot: Snapshot, settings: EditorSettings, explicit: bool) -> bool:
    """Whether the settings want completions in such a document, by whatever name they call it."""
    name = language_of(snapshot.language, snapshot.path).name
    for said in (snapshot.language, name):
        if said in settings.languages:
            return settings.languages[said]
    for said, on in settings.languages.items():
        if said != "*" and canonical(said) == name:
            return on
    if name in _OFF_UNLESS_ASKED and not explicit:
        return False
    return settings.languages.get("*", True)


def _by_text(snapshot: Snapshot, explicit: bool) -> SkipReason | None:
    text, offset = snapshot.text, snapshot.offset
    before = text[max(0, offset - _NEAR_CHARS) : offset]
    after = text[offset : offset + _NEAR_CHARS]
    if not _WORD.search(before + after):
        return "nothing to go by"
    if not explicit and len("".join((before + after).split())) < MIN_CHARS:
        return "nothing to go by"
    length = _line_length(text, offset)
    if length > (LONGEST_LINE_CHARS if explicit else LONG_LINE_CHARS):
        return "a very long line"
    word_before, word_after = _is_word(before[-1:]), _is_word(after[:1])
    if word_before and word_after:
        return "inside a word"
    if explicit:
        return None
    if word_after:
        return "before a word"
    return "after a finished statement" if _is_finished(snapshot, before, after) else None


def _line_length(text: str, offset: int) -> int:
    """Characters of the cursor's line, counted no farther than matters."""
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset))
    ends = [end for mark in "\r\n" if (end := text.find(mark, offset)) >= 0]
    return min(ends, default=len(text)) - start - 1


def _is_finished(snapshot: Snapshot, before: str, after: str) -> bool:
    """Whether the line ends behind a `;`, after which only another line could follow."""
    rest = re.split(r"[\r\n]", after, maxsplit=1)[0]
    if rest.strip() or not before.endswith(";"):
        return False
    language = language_of(snapshot.language, snapshot.path)
    return language.blocks == "brace" and not language.prose


def _is_word(character: str) -> bool:
    return bool(character) and (character.isalnum() or character in "_$")
