"""How near windows of other files are to the text around the cursor.

Pure. What two places have in common is their identifiers, whole and in parts, each worth more the
rarer it is among all candidates; then count the kind of file, whether the document imports it,
whether it is open and how long ago it changed.

Invariant: the order of equals is that of their paths and lines, so that the same question has the
same answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from msgspec import Struct

from lsp.windows import Window

_WORD = re.compile(r"[^\W\d]\w{2,}")
_PART = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])")
_KEYWORD_TEXT = """
    abstract and any args arguments array assert async await begin bool boolean break byte case
    catch chan char class const constexpr constructor continue crate debugger def default defer
    del delete dict do done double dyn each elif else elsif end ensure enum error except export
    extends extern false final finally float fn for foreach from func function get global go
    goto if impl implements import in include inline instanceof int interface is isinstance
    lambda len let list long loop map match mod module move mut namespace new nil none None not
    null object of operator or override package pass print private property protected pub public
    raise range ref require rescue return self set short signed sizeof static str string String
    struct super switch synchronized template then this throw throws trait true True False try
    tuple type typedef typeof undefined union unless unsafe unsigned until use using val var
    virtual void volatile when where while with yield
"""
_KEYWORDS = frozenset(_KEYWORD_TEXT.split())
"""Words of languages, which nearly any two files share."""
_IMPORT = re.compile(
    r"^\s*(?:from|import|use|mod|using|package|require|require_relative|include|load|source"
    r"|#\s*include|@import|export\b.*\bfrom|pub\s+mod|pub\s+use)\b(.*)"
    r"|^.*\brequire\((.*)\)"
    r"|^\s*\}\s*from\b(.*)"
    r"|^\s*(?:\w+\s+)?(\"[\w./~@-]+\");?\s*$",
)
_IMPORTS_WITHIN = 300
"""Lines of a file in which imports are looked for."""
_FAMILIES = (
    {".py", ".pyi", ".pyx", ".ipynb"},
    {".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte"},
    {".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".m", ".mm", ".cu"},
    {".java", ".kt", ".kts", ".scala", ".groovy", ".gradle"},
    {".html", ".htm", ".css", ".scss", ".less", ".jinja", ".j2"},
    {".md", ".mdx", ".rst", ".txt", ".adoc", ".tex"},
    {".sh", ".bash", ".zsh", ".fish"},
)
OTHER_FAMILY = 0.5
_IMPORTED = 1.35
_OPEN = 1.15
_RECENT = 0.3
"""Most that a change just now adds."""
_FADES_S = 900.0
_SHORTNESS = 0.75
"""How much a window pays for being longer than others, from 0 to 1."""


class Query(Struct, frozen=True, kw_only=True):
    """What is looked for."""

    words: frozenset[str]
    """Of the text around the cursor."""
    imports: frozenset[str]
    suffix: str = ""
    """Of the document's file name, with its dot."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A window of another file that might be shown."""

    name: str
    """The file, as the prompt will call it."""
    window: Window
    words: frozenset[str]
    age_s: float
    """Since the file changed."""
    is_open: bool = False


class Scored(Struct, frozen=True, kw_only=True):
    """A candidate and its worth; 1.0 would have all the identifiers that are looked for."""

    candidate: Candidate
    score: float


def identifiers(text: str) -> frozenset[str]:
    """Names in a text, and the parts of those that are made of several."""
    names = set(_WORD.findall(text))
    for name in tuple(names):
        parts = _PART.findall(name)
        if len(parts) > 1:
            names.update(part.lower() for part in parts if len(part) > 2)
    return frozenset(names - _KEYWORDS)


def imported_names(lines: Sequence[str]) -> frozenset[str]:
    """Whatever might be a module's or a file's name in the imports of a text, in lower case."""
    found: set[str] = set()
    for line in lines[:_IMPORTS_WITHIN]:
        match = _IMPORT.match(line[:400])
        if match:
            rest = next(group for group in match.groups() if group is not None)
            found.update(word.lower() for word in re.findall(r"\w+", rest))
    return frozenset(found)


def module_name(path: str) -> str:
    """What a file is imported as, in lower case."""
    *folders, name = re.split(r"[/\\]", path.lower())
    stem = name.partition(".")[0]
    return folders[-1] if folders and stem in ("__init__", "index", "mod") else stem


def kinship(suffix: str, other: str) -> float:
    """How much a file's kind makes of its worth, 1 for the document's own."""
    if suffix == other:
        return 1.0
    same = any(suffix in family and other in family for family in _FAMILIES)
    return 0.9 if same else OTHER_FAMILY


def ranked(query: Query, candidates: Sequence[Candidate]) -> list[Scored]:
    """The candidates that have anything in common with the query, best first."""
    weights = _weights(query.words, candidates)
    whole = sum(weights.values())
    if not whole:
        return []
    usual = sum(len(one.words) for one in candidates) / len(candidates)
    scored = []
    for one in candidates:
        shared = query.words & one.words
        if len(shared) < 2:
            continue
        length = 1 - _SHORTNESS + _SHORTNESS * len(one.words) / max(usual, 1.0)
        found = sum(weights[word] for word in shared) / whole
        worth = found / math.sqrt(max(length, 0.5)) * _standing(query, one)
        scored.append(Scored(candidate=one, score=worth))
    scored.sort(key=_order)
    return scored


def _weights(words: Iterable[str], candidates: Sequence[Candidate]) -> dict[str, float]:
    known = Counter(word for one in candidates for word in one.words)
    count = len(candidates)
    return {
        word: math.log(1 + (count - known[word] + 0.5) / (known[word] + 0.5))
        for word in words
        if known[word]
    }


def _standing(query: Query, one: Candidate) -> float:
    path = PurePath(one.name)
    worth = kinship(query.suffix, path.suffix.lower())
    worth *= 1 + _RECENT * math.exp(-max(one.age_s, 0.0) / _FADES_S)
    if module_name(one.name) in query.imports:
        worth *= _IMPORTED
    return worth * (_OPEN if one.is_open else 1.0)


def _order(one: Scored) -> tuple[float, str, int]:
    return (-one.score, one.candidate.name, one.candidate.window.first)
