"""One answer as it grows: its text, where its tokens came from, and their way into the history.

Owns the joining of what an earlier try left with what comes now. The events are taken in on the
event loop; `journal` and `finish` give back calls that hold a copy and may run in a thread. It must
not know the engine or the screen.

Invariant: the text is the head followed by the text of every delta taken, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tui.history_file import HistoryError
from tui.provenance import Provenance

if TYPE_CHECKING:
    from engine.protocol import TextDelta, Usage
    from tui.conversation import Asked
    from tui.history import History
    from tui.messages import Outcome

Write = Callable[[], None]


class AnswerRecord:
    """What one answer has become so far. Without a history it is kept nowhere."""

    def __init__(self, history: History | None, asked: Asked) -> None:
        self.answer = asked.answer
        self._history = history
        self._head = asked.head
        self._pieces: list[str] = []
        self._kinds = Provenance.decode(asked.head_kinds)
        self._kinds.pad(len(asked.head) - self._kinds.length)

    def take(self, delta: TextDelta) -> None:
        """Add what came."""
        self._pieces.append(delta.text)
        self._kinds.add(delta)

    def text(self, told: str | None = None) -> str:
        """The whole answer; `told` is the engine's own word on what came in this try."""
        return self._head + ("".join(self._pieces) if told is None else told)

    def journal(self) -> Write | None:
        """The call that keeps what is there now; may raise `EngineError`."""
        if self._history is None:
            return None
        return partial(self._history.journal, self.answer, self.text(), self._kinds.encode())

    def finish(self, outcome: Outcome, usage: Usage | None) -> Write | None:
        """The call that keeps the answer as it ended; may raise `EngineError`. Where the file takes
        no more, it is raised too, but the answer is in memory, to go along with what is asked next.
        """
        history = self._history
        if history is None:
            return None
        kinds = self._kinds.encode()
        keep = partial(history.finish, self.answer, outcome.text, outcome.state, usage, kinds)

        def write() -> None:
            try:
                keep()
            except HistoryError as error:
                if history.go_on_without_file(error):
                    keep()
                raise

        return write
