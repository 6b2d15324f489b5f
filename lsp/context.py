"""From a document and a place in it to what the model is asked.

Pure. Owns how much of the document and of other files a prompt holds and where its windows begin.
A fill is laid out as prefix, suffix, middle: with each key that is typed the suffix moves on behind
the prefix and has to be read anew, so the suffix is short where reading is slow, and what stands
before the cursor begins at a place that moves seldom, and then far.

Invariant: the prompt's prefix ends and its suffix begins at the cursor, with `\\n` for line ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import FillPrompt, Snippet
from lsp.shape_scan import plain_newlines

if TYPE_CHECKING:
    from lsp.document import Snapshot

CHARS_PER_TOKEN = 3.3
"""Of code; low, so that a budget is not overrun."""
COLD_S = 2.0
"""How long a prompt may take to read that shares nothing with the one before."""
KEY_S = 0.12
"""How long the suffix may take to read, which is read with every key."""
ASKED_COLD_S = 4.0
ASKED_SUFFIX_S = 0.8
"""The same two where somebody asked and waits."""
PROMPT_TOKENS = (800, 1_400, 2_400)
SUFFIX_TOKENS = (48, 80, 128, 256)
_PREFIX_SHARE = 0.55
_SNIPPET_SHARE = 0.35
_LEAST_PREFIX = 0.5
"""Part of the window that is kept when its beginning moves."""
_HEAD = 80
_BOM = "\ufeff"


class Budget(Struct, frozen=True, kw_only=True):
    """Longest parts of a prompt, in characters."""

    prefix: int
    suffix: int
    snippets: int


class Frame(Struct, frozen=True, kw_only=True):
    """Where the window before the cursor begins."""

    start: int
    """Offset in the notebook's earlier cells followed by the document."""
    head: str = ""
    """The first characters from there on; empty where it is the document's beginning."""


def budget_for(prefill_tokens_per_s: float | None) -> Budget:
    """What a machine can read in time; the middle of the ranges while its speed is not known."""
    if prefill_tokens_per_s is None:
        return _budget(PROMPT_TOKENS[1], SUFFIX_TOKENS[1])
    return _budget(
        _step(PROMPT_TOKENS, prefill_tokens_per_s * COLD_S),
        _step(SUFFIX_TOKENS, prefill_tokens_per_s * KEY_S),
    )


def patient(budget: Budget, prefill_tokens_per_s: float | None) -> Budget:
    """The same for who asked and waits: the document may take longer to read, since it is read once
    and not with every key."""
    total, suffix = PROMPT_TOKENS[1], SUFFIX_TOKENS[-1]
    if prefill_tokens_per_s is not None:
        total = _step(PROMPT_TOKENS, prefill_tokens_per_s * ASKED_COLD_S)
        suffix = _step(SUFFIX_TOKENS, prefill_tokens_per_s * ASKED_SUFFIX_S)
    waits = _budget(total, suffix)
    return replace(
        budget,
        prefix=max(waits.prefix, budget.prefix),
        suffix=max(waits.suffix, budget.suffix),
    )


def frame_for(snapshot: Snapshot, budget: Budget, last: Frame | None = None) -> Frame:
    """Where the window is to begin: where it did `last`, while that is near enough."""
    text, end = _whole(snapshot)
    if last is not None:
        kept = _found(text, end, last)
        if kept is not None and _is_near(end - kept, kept, budget):
            return Frame(start=kept, head=last.head)
    if end <= budget.prefix:
        return Frame(start=0)
    start = _line_start(text, end - round(budget.prefix * _LEAST_PREFIX), end)
    return Frame(start=start, head=text[start : start + _HEAD])


def prompt_for(
    snapshot: Snapshot, frame: Frame, budget: Budget, snippets: tuple[Snippet, ...] = ()
) -> FillPrompt:
    """The prompt for the snapshot's cursor."""
    text, end = _whole(snapshot)
    return FillPrompt(
        prefix=plain_newlines(text[frame.start : end]).removeprefix(_BOM),
        suffix=plain_newlines(_tail(text, end, budget.suffix)),
        path=snapshot.name or None,
        language=snapshot.language or None,
        snippets=snippets,
    )


def _whole(snapshot: Snapshot) -> tuple[str, int]:
    """The document behind the cells before it, and where the cursor is in that."""
    if not snapshot.before:
        return snapshot.text, snapshot.offset
    return snapshot.before + snapshot.text, len(snapshot.before) + snapshot.offset


def _found(text: str, end: int, last: Frame) -> int | None:
    """Where the text is now that the window began with; None if it is gone."""
    if text.startswith(last.head, last.start) and last.start <= end:
        return last.start
    # Lines came or went above it.
    at = text.rfind(last.head, 0, end) if len(last.head) == _HEAD else -1
    return at if at >= 0 else None


def _is_near(before: int, start: int, budget: Budget) -> bool:
    """Whether a window of so many characters is neither too long nor too short."""
    return before <= budget.prefix and (start == 0 or before >= budget.prefix // 8)


def _line_start(text: str, at: int, end: int) -> int:
    """The first line that begins behind a place; the place itself within a very long line."""
    newline = text.find("\n", at, end)
    return newline + 1 if newline >= 0 else at


def _tail(text: str, end: int, most: int) -> str:
    """What follows the cursor, in whole lines if there are any that fit."""
    window = text[end : end + most]
    if end + most >= len(text):
        return window
    cut = window.rfind("\n")
    return window[: cut + 1] if cut >= most // 2 else window


def _budget(total: int, suffix: int) -> Budget:
    """Parts of a prompt, from the tokens of all of it and of its suffix."""
    chars = total * CHARS_PER_TOKEN
    return Budget(
        prefix=round(chars * _PREFIX_SHARE),
        suffix=round(suffix * CHARS_PER_TOKEN),
        snippets=round(chars * _SNIPPET_SHARE),
    )


def _step(steps: tuple[int, ...], wanted: float) -> int:
    return max((step for step in steps if step <= wanted), default=steps[0])
