"""Whether a plain run of the same request says the same: the words of the verdict.

Pure: two texts in, one sentence out, and what to run for the second. It must not know the screen.
The comparison is of characters, exactly; a text that was cut short is compared as far as it goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import RequestError
from tui.provenance import Provenance

if TYPE_CHECKING:
    from engine.protocol import GenerateRequest
    from tui.conversation import Asked
    from tui.history import Message

SPARE_TOKENS = 4
"""A rerun goes this far beyond a stopped answer, whose last characters may have been held back."""
AROUND = 24
"""Characters shown on either side of the first difference."""


class Checked(Struct, frozen=True, kw_only=True):
    """The part of an answer that a plain rerun is compared with."""

    text: str
    whole: bool
    """False for an answer that was stopped or cut: the rerun may then go on behind its end."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What a check found."""

    identical: bool
    at: int
    """Characters that agree from the beginning."""
    sentence: str


def rerun(
    answer: Message, asked: Asked, request: GenerateRequest
) -> tuple[Checked, GenerateRequest]:
    """What of an answer the plain `request` is to repeat, and the request made to end there.

    Raises `RequestError` for an answer without text.
    """
    given = answer.content[len(asked.head) :]
    if not given:
        raise RequestError("not_checkable", "that answer has no text", "Ask for it again.")
    whole = answer.state == "whole"
    if not whole:
        tokens = _tokens_of(answer.kinds) - _tokens_of(asked.head_kinds) + SPARE_TOKENS
        request = replace(request, sampling=replace(request.sampling, max_tokens=tokens))
    return Checked(text=given, whole=whole), request


def compare(checked: Checked, plain: str, *, exact: bool) -> Verdict:
    """Compare an answer with its plain rerun.

    `exact` is what the engine claims on this device: the same text, or only the same law.
    """
    given, whole = checked.text, checked.whole
    at = _agreeing(given, plain)
    same = given == plain if whole else at == len(given)
    if same:
        sentence = f"check: {_stopped(checked)}identical, all {len(given):,} characters"
        return Verdict(identical=True, at=at, sentence=sentence)
    line = given.count("\n", 0, at) + 1
    sentence = (
        f"check: {_stopped(checked)}differs first at character {at + 1:,}, line {line}: "
        f"the answer has {_shown(given, at)}, plain decoding {_shown(plain, at)}"
    )
    if not exact:
        sentence += ". On this device near-ties may round differently: the same law, not every bit"
    return Verdict(identical=False, at=at, sentence=sentence)


def _tokens_of(kinds: bytes) -> int:
    return Provenance.decode(kinds).counts.total()


def _stopped(checked: Checked) -> str:
    if checked.whole:
        return ""
    return "the answer did not come to its end, so the tokens so far were compared: "


def _agreeing(left: str, right: str) -> int:
    """Length of the common beginning; by halves, so that long answers cost little."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _shown(text: str, at: int) -> str:
    if at >= len(text):
        return "its end"
    return repr(text[at : at + AROUND])
