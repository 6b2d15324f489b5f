"""What the engine is doing for this chat, as a word and its reason.

Owns the choice among the words (`speculating`, `plain`, `paused`, `queued`, `reading`, `loading`,
`asleep`, `failed`, `ready` …) and their wording; a pure function of `MeterState`. It must not know
widgets; `tone` is a hint for a colour that says nothing the word does not say.

Invariant: every state has exactly one word, and a word other than `ready`, `speculating` and
`starting` has a reason wherever the engine gave one.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import EngineStatus, Failed, FinishReason, LoadProgress, RoundDone, Steering
from tui.gauges import duration, percent, size
from tui.meter_state import MeterState
from tui.safe_text import visible

Tone = Literal["good", "notice", "bad", "busy", "calm"]

_ENDINGS: dict[FinishReason, str] = {
    "length": "cut at the token limit",
    "context": "cut because the context is full",
    "cancelled": "stopped",
}


_PINNED = "pinned by the user"


class ModeWord(Struct, frozen=True, kw_only=True):
    """One word, why it is so, and how grave it is."""

    word: str
    reason: str = ""
    tone: Tone = "calm"
    joint: str = ": "
    pin: str = ""
    """What the user has pinned, for as long as it is."""

    @property
    def pinned(self) -> str:
        """What stands between the word and its reason."""
        return self.pin and f" · {self.pin}"

    @property
    def rest(self) -> str:
        """What follows the word in its line."""
        return f"{self.joint}{self.reason}" if self.reason else ""

    @property
    def text(self) -> str:
        """Both in one line."""
        return self.word + self.pinned + self.rest


def mode_word(state: MeterState) -> ModeWord:
    """The word for `state`."""
    word = _of_answer(state) or _of_engine(state) or _of_rest(state)
    pin = pinned_text(state.steering)
    # The engine's own word for it says the same once more.
    reason = "" if pin and word.reason.endswith(_PINNED) else word.reason
    return replace(word, reason=one_line(reason), pin=pin)


def pinned_text(steering: Steering) -> str:
    """The route and the k that the user has pinned; empty if none is."""
    route = "" if steering.route == "auto" else steering.route
    k = "" if steering.k is None else f"k {steering.k}"
    pins = " ⏐ ".join(filter(None, (route, k)))
    return pins and f"{pins} pinned"


def one_line(text: str) -> str:
    """Foreign text in one line, with nothing in it that a terminal obeys."""
    return " ".join(visible(text).split())


def load_share(status: EngineStatus | None) -> float | None:
    """How much of the load's present stage is done; None if nothing is loaded or it can't tell."""
    if status is None or status.state != "loading" or status.load is None:
        return None
    # A stage that has nothing to count is told with a total of 0 or 1.
    load = status.load
    return min(1.0, load.done / load.total) if load.total > 1 else None


def failure_text(failure: Failed) -> str:
    """What happened and what to do next."""
    message = failure.message.rstrip()
    if failure.hint and not message.endswith((".", "!", "?")):
        message += "."
    return f"{message} {failure.hint}".strip()


def _of_answer(state: MeterState) -> ModeWord | None:
    """While an answer is made."""
    match state.phase:
        case "queued":
            ahead = f"{state.ahead} ahead" if state.ahead else "next in line"
            return ModeWord(word="queued", reason=ahead, tone="notice")
        case "paused":
            by = state.pause.by if state.pause else "another request"
            return ModeWord(word="paused", reason=f"for {by}", tone="notice", joint=" ")
        case "reading":
            return _pause_just_over(state) or _reading(state)
        case "decoding":
            return _pause_just_over(state) or _decoding(state, state.rounds[-1])
        case _:
            return None


def _pause_just_over(state: MeterState) -> ModeWord | None:
    pause = state.pause
    if pause is None or pause.ms is None or pause.after_rounds != state.answer.rounds:
        return None
    told = f"{duration(pause.ms)} for {pause.by}"
    return ModeWord(word="paused", reason=told, tone="notice", joint=" ")


def _reading(state: MeterState) -> ModeWord:
    answer = state.answer
    parts = [f"{answer.prompt_tokens - answer.cached_tokens:,} tokens of the prompt"]
    if answer.cached_tokens:
        parts.append(f"{answer.cached_tokens:,} kept")
    if state.evicted_tokens:
        parts.append(f"{state.evicted_tokens:,} were pushed out since")
    return ModeWord(word="reading", reason=", ".join(parts), tone="busy")


def _decoding(state: MeterState, latest: RoundDone) -> ModeWord:
    if latest.mode == "plain":
        return ModeWord(word="plain", reason=_with_pauses(state, latest.reason), tone="notice")
    # The route's own estimate is told in the details; here it would stand beside the measured α.
    own = latest.reason.startswith(f"{latest.route}: α")
    reason = latest.route if own or not latest.reason else f"{latest.route}, {latest.reason}"
    return ModeWord(word="speculating", reason=_with_pauses(state, reason), tone="good")


def _with_pauses(state: MeterState, reason: str) -> str:
    answer, pause = state.answer, state.pause
    if not answer.pauses or pause is None:
        return reason
    times = "" if answer.pauses == 1 else f"{answer.pauses} × "
    told = f"paused {times}{duration(answer.paused_ms)} for {pause.by}"
    return f"{reason} ({told})" if reason else told


def _of_engine(state: MeterState) -> ModeWord | None:
    """While no answer is made, or none can be."""
    status = state.status
    if status is None:
        return ModeWord(word="starting", tone="busy") if state.phase != "failed" else None
    match status.state:
        case "loading":
            return _loading(status.load, load_share(status))
        case "failed":
            failure = status.failure
            told = failure_text(failure) if failure else "the model could not be loaded"
            return ModeWord(word="failed", reason=told, tone="bad")
        case "asleep" if state.phase == "waiting":
            return ModeWord(word="waking", reason="the model is loaded first", tone="busy")
        case "asleep":
            return ModeWord(word="asleep", reason="the next message wakes it")
        case _:
            return None


def _loading(load: LoadProgress | None, share: float | None) -> ModeWord:
    stage = load.stage if load else ""
    if load is None or share is None:
        return ModeWord(word="loading", reason=stage, tone="busy")
    told = f"{size(load.done)} of {size(load.total)}"
    return ModeWord(
        word=f"loading {percent(share)}", reason=f"{stage}, {told}" if stage else told, tone="busy"
    )


def _of_rest(state: MeterState) -> ModeWord:
    if state.phase == "failed":
        told = failure_text(state.failure) if state.failure else "the answer broke off"
        return ModeWord(word="failed", reason=told, tone="bad")
    if state.phase == "waiting":
        return ModeWord(word="asking", reason="the engine has not begun yet", tone="busy")
    if state.finish in _ENDINGS:
        return ModeWord(word="ready", reason=f"the answer was {_ENDINGS[state.finish]}")
    notice = state.status.notice if state.status else ""
    return ModeWord(word="ready", reason=notice)
