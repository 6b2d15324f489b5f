"""The state of completions in a word, a sentence and a few figures, for a client's status line.

Pure: what the engine says of itself, what was counted here and what the user set, in; what is told
as `sspecAssist/status`, out. Nothing is ever silent: each state has a sentence, and one that the
user can change says how. It knows nothing of clients.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.protocol import EngineStatus, Failed, LoadProgress
from lsp.tally import Tally

METHOD = "sspecAssist/status"
FIGURES = ("alpha", "times_plain", "plain_tokens_per_s")
"""Fields that change all the time."""

State = Literal["loading", "ready", "paused", "asleep", "failed", "away", "off"]


class Status(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client is told."""

    state: State
    text: str
    """One sentence for people."""
    model: str = ""
    alpha: float | None = None
    """Accepted ÷ tested drafts of the completions of late."""
    times_plain: float | None = None
    """Their speed ÷ that of plain decoding, both measured on this machine."""
    paused: bool = False
    """A completion that was asked for waits for another request."""
    plain_tokens_per_s: float | None = None
    notice: str = ""


OFF = Status(state="off", text="Completions are switched off in the settings.")


def status_of(engine: EngineStatus, tally: Tally) -> Status:
    """What to tell of an engine that is there."""
    waiting = not tally.awaited.isdisjoint((*engine.queued, *engine.paused))
    paused = engine.state == "ready" and waiting
    state: State = "paused" if paused else engine.state
    alpha, times = tally.alpha, tally.times_plain(engine.plain_tokens_per_s)
    return Status(
        state=state,
        text=_sentence(state, engine),
        model=engine.model,
        alpha=None if alpha is None else round(alpha, 2),
        times_plain=None if times is None else round(times, 2),
        paused=paused,
        plain_tokens_per_s=_rounded(engine.plain_tokens_per_s),
        notice=engine.notice,
    )


def away(failure: Failed) -> Status:
    """What to tell when the engine's process can't be reached or started."""
    return Status(state="away", text=sentence_of(failure))


def sentence_of(failure: Failed) -> str:
    """A failure in words, with its remedy."""
    message = failure.message.rstrip(".")
    told = f"{message[:1].upper()}{message[1:]}."
    return f"{told} {failure.hint}" if failure.hint else told


def progress_text(load: LoadProgress | None) -> str:
    """How far a load is, in words."""
    if load is None:
        return "starting"
    if load.total <= 0:
        return load.stage
    return f"{load.stage}: {100 * load.done // load.total} %"


def _sentence(state: State, engine: EngineStatus) -> str:
    if state == "failed" and engine.failure is not None:
        return sentence_of(engine.failure)
    device = f" on {engine.device}" if engine.device else ""
    return {
        "loading": f"{engine.model} is loading: {progress_text(engine.load)}.",
        "ready": f"{engine.model} is ready{device}.",
        "paused": f"{engine.model} is busy with another request.",
        "asleep": f"{engine.model} is not in memory; the next completion loads it.",
        "failed": f"{engine.model} could not be loaded.",
    }[state]


def _rounded(speed: float | None) -> float | None:
    return None if speed is None else round(speed, 1)
