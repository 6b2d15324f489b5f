"""How a document is indented: with what, how deep, and in which steps.

Read off the lines around the cursor, never off the whole file. Knows no language's rules but what
one level is where a document shows none.

Invariant: `depth` of a line is the same whether its indentation is written in tabs or in spaces.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from lsp.languages import Language

TAB_WIDTH = 4
_LINES_BEFORE, _LINES_AFTER = 400, 200
_LONGEST_STEP = 8
_SELDOM = 0.15
"""Share of the most common step below which another one is an accident."""


class Style(Struct, frozen=True, kw_only=True):
    """How the lines around the cursor are indented."""

    kind: Literal["tabs", "spaces", "unknown"] = "unknown"
    unit: str = "    "
    """One level: a tab or some spaces."""
    steps: tuple[int, ...] = ()
    """Columns by which lines often stand deeper than the line before them."""


def depth(line: str) -> int:
    """Columns of indentation."""
    stripped = line.lstrip(" \t")
    return len(line[: len(line) - len(stripped)].expandtabs(TAB_WIDTH))


def style_of(before: str, after: str, language: Language) -> Style:
    """How the text around the cursor is indented."""
    lines = [*before.split("\n")[-_LINES_BEFORE:-1], *after.split("\n")[1:_LINES_AFTER]]
    tabs = sum(line.startswith("\t") for line in lines)
    spaced = [line for line in lines if line.startswith("  ") and line.strip()]
    if tabs > 4 * len(spaced) or (language.unit == "\t" and not spaced):
        return Style(kind="tabs", unit="\t")
    if len(spaced) <= 4 * tabs:
        return Style(unit=language.unit)
    # A comment's continuation (` * …`) stands one column off and says nothing.
    depths = [depth(line) for line in lines if line.strip() and not line.lstrip().startswith("*")]
    counts = Counter(b - a for a, b in pairwise(depths) if 2 <= b - a <= _LONGEST_STEP)
    if not counts:
        return Style(kind="spaces", unit=" " * min(map(depth, spaced)))
    unit, most = counts.most_common(1)[0]
    often = tuple(step for step, count in counts.items() if count > max(1, _SELDOM * most))
    return Style(kind="spaces", unit=" " * unit, steps=often)
