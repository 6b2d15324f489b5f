"""The line above the input: what keeps the next answer waiting, in a sentence.

Owns the words for a load that can be given up, for an engine that failed, and for questions that
wait. It takes no space when there is nothing to say. It must not know the engine, only its status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from tui.mode_word import failure_text
from tui.safe_text import visible

if TYPE_CHECKING:
    from engine.protocol import EngineStatus

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """Bytes for people: `469 MiB`, `1.0 GiB`."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit < 3 else f"{value:.1f} {_UNITS[unit]}"


def engine_sentence(status: EngineStatus | None, waiting: int = 0) -> tuple[str, bool]:
    """What to say of the engine and of `waiting` questions, and whether it is a failure. How far a
    load is, the meter says."""
    parts: list[str] = []
    failed = False
    if status is not None and status.state == "loading":
        parts.append("esc gives the load up")
    elif status is not None and status.state == "failed":
        parts.append(failure_text(status.failure) if status.failure else "the model can't be used")
        failed = True
    if waiting:
        parts.insert(0, f"{waiting} {'question waits' if waiting == 1 else 'questions wait'}")
    return " · ".join(parts), failed


class EngineLine(Static):
    """Shows `engine_sentence`; hidden while that is empty."""

    DEFAULT_CSS = """
    EngineLine {
        display: none;
        height: auto;
        max-height: 4;
        padding: 0 1;
        color: $text-muted;
    }
    EngineLine.-shown { display: block; }
    EngineLine.-failed { color: $text-error; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, status: EngineStatus | None, waiting: int = 0, hint: str = "") -> None:
        """Say what there is to say; the hint if there is nothing else."""
        sentence, failed = engine_sentence(status, waiting)
        sentence = sentence or hint
        self.set_class(bool(sentence), "-shown")
        self.set_class(failed, "-failed")
        self.update(Content(visible(sentence)))
