"""Whether what a server suggests is right for the document as its client has it. Pure.

Three faults are looked for, each by a rule that knows nothing of how suggestions are made: a stale
one does not go on from the text at the cursor, a leak shows a model's own tokens, a duplicate says
again what is behind the cursor already.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from msgspec import Struct

GRACE_S = 0.03
"""A suggestion may have been on its way while a key was pressed."""
_TOKEN = re.compile(
    r"<\|[\w▁/.-]+\|>|<｜[^<>｜\n]+｜>|</?(?:fim|file|repo)_\w+>|<(?:PRE|SUF|MID|EOT)>|\[/?INST\]"
)


class State(Struct, frozen=True, kw_only=True):
    """A document at one moment."""

    at: float
    text: str
    cursor: int


class Item(Struct, frozen=True, kw_only=True):
    """A suggestion: `text` in the place of what is between two offsets."""

    start: int
    end: int
    text: str


def is_stale(item: Item, states: Sequence[State], now: float) -> bool:
    """Whether it fits none of the states that the document was in just now; the newest is last."""
    fits = [_goes_on(item, states[-1])] if states else []
    for older, newer in itertools.pairwise(states):
        fits.append(newer.at > now - GRACE_S and _goes_on(item, older))
    return not any(fits)


def leaks(item: Item) -> bool:
    """Whether it shows a token of the model's own."""
    return _TOKEN.search(item.text) is not None


def duplicates(item: Item, state: State) -> bool:
    """Whether it ends with what the document goes on with."""
    behind = state.text[item.end :]
    tail = re.split(r"[\r\n]", behind, maxsplit=1)[0].strip()
    inserted = item.text.rstrip()
    if len(tail) > 1 and inserted.endswith(tail):
        return True
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", behind)[1:]]
    following = next((line for line in lines if line), "")
    last = re.split(r"\r\n|\r|\n", inserted)[-1].strip()
    # A line of brackets may well be followed by another one.
    return bool(re.search(r"\w\w\w", following)) and not tail and last == following


def _goes_on(item: Item, state: State) -> bool:
    if not item.start <= state.cursor <= item.end:
        return False
    between = state.text[item.start : item.end]
    if "\n" in between or "\r" in between:
        return False
    return item.text.startswith(state.text[item.start : state.cursor])
