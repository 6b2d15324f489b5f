"""What the tasks of the chat tell its screen: posted from `stream`, handled by the screen.

Owns the message types that cross from the engine's side to the widgets' side, nothing else. A
widget's own messages live with the widget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from textual.message import Message

from engine.protocol import Failed, Finished

if TYPE_CHECKING:
    from engine.protocol import EngineStatus, TextDelta
    from tui.meter_state import MeterState
    from tui.settings import LiveSettings


class Outcome(Struct, frozen=True, kw_only=True):
    """How an answer ended."""

    state: Literal["whole", "partial", "failed"]
    text: str
    """All of the answer, what an earlier try had left of it included."""
    finished: Finished | None = None
    failed: Failed | None = None
    unsaved: str = ""
    """Why the answer is not in the history, if it is not."""


class AnswerProgress(Message):
    """What came of an answer since the last such message; at most ten a second."""

    def __init__(self, answer: int, deltas: tuple[TextDelta, ...], meter: MeterState) -> None:
        super().__init__()
        self.answer = answer
        self.deltas = deltas
        self.meter = meter


class AnswerOver(Message):
    """An answer ended and is in the history."""

    def __init__(self, answer: int, outcome: Outcome, meter: MeterState) -> None:
        super().__init__()
        self.answer = answer
        self.outcome = outcome
        self.meter = meter


class EngineChanged(Message):
    """The engine says something new of itself."""

    def __init__(self, status: EngineStatus) -> None:
        super().__init__()
        self.status = status


class EngineGone(Message):
    """The engine can't be watched any more."""

    def __init__(self, failure: Failed) -> None:
        super().__init__()
        self.failure = failure


class SettingsChanged(Message):
    """The settings file changed while the chat runs; `settings` is None if it can't be used."""

    def __init__(self, settings: LiveSettings | None, said: str) -> None:
        super().__init__()
        self.settings = settings
        self.said = said
