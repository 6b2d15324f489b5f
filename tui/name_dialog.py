"""Asks for one line of text, such as the name of a file; gives back None when it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

if TYPE_CHECKING:
    from textual.app import ComposeResult


class NameDialog(ModalScreen[str | None]):
    """One question, one line for the answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close")]
    DEFAULT_CSS = """
    NameDialog { align: center middle; background: $background 60%; }
    NameDialog > Vertical {
        width: 64; max-width: 100%; height: auto;
        padding: 0 1; border: round $primary; background: $surface;
    }
    NameDialog Static { height: auto; }
    NameDialog Input { &, &:focus { border: none; height: 1; background: $boost; margin: 1 0; } }
    NameDialog .keys { color: $text-muted; }
    """

    def __init__(self, question: str, proposal: str = "") -> None:
        super().__init__()
        self._question = question
        self._proposal = proposal

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Input(self._proposal)
            yield Static("enter accepts · esc cancels", markup=False, classes="keys")

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_leave(self) -> None:
        """Close without an answer."""
        self.dismiss(None)
