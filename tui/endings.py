"""How an answer or a check ended, in sentences for the transcript.

Pure: from an outcome to words. Every ending but the ordinary one is told, with what can be done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.checking import compare
from tui.mode_word import failure_text

if TYPE_CHECKING:
    from tui.checking import Checked
    from tui.message_view import Kind
    from tui.messages import Outcome


def of_answer(outcome: Outcome, max_tokens: int) -> list[tuple[str, Kind]]:
    """What is to be said of an answer that ended; nothing if it ended by itself and is kept."""
    said: list[tuple[str, Kind]] = []
    if outcome.failed is not None:
        said.append((failure_text(outcome.failed), "error"))
        if outcome.text:
            said.append(("/continue goes on from the text so far", "information"))
    elif outcome.finished is None or outcome.finished.reason == "cancelled":
        said.append(("stopped · /continue goes on, /regenerate answers again", "information"))
    elif outcome.finished.reason == "length":
        how = "/continue goes on, /max-tokens changes that"
        said.append((f"cut at {max_tokens:,} tokens · {how}", "warning"))
    elif outcome.finished.reason == "context":
        said.append(("cut: the context is full · /new begins afresh", "warning"))
    if outcome.unsaved:
        said.append((f"This answer is not in the history: {outcome.unsaved}", "error"))
    return said


def of_check(checked: Checked, outcome: Outcome, *, exact: bool) -> tuple[str, Kind]:
    """What a plain rerun showed."""
    if outcome.failed is not None:
        return f"check: not done. {failure_text(outcome.failed)}", "error"
    if outcome.finished is None or outcome.finished.reason == "cancelled":
        return "check: stopped before its end, so nothing can be said", "information"
    verdict = compare(checked, outcome.text, exact=exact)
    return verdict.sentence, "information" if verdict.identical else "warning"
