"""The two small questions of the list of conversations: another title, and whether to delete.

Each is a dialogue that gives back an answer and does nothing itself. Deleting is never what enter
does by itself: the focus begins on the button that keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from tui.safe_text import visible

if TYPE_CHECKING:
    from textual.app import ComposeResult

_CSS = """
    {0} {{ align: center middle; background: $background 60%; }}
    {0} > Vertical {{
        width: 60; max-width: 100%; height: auto; max-height: 100%;
        padding: 0 1; border: round {1}; background: $surface;
    }}
    {0} Static {{ height: auto; max-height: 6; }}
    {0} Input {{ background: $boost; }}
    {0} Horizontal {{ height: 1; margin: 1 0 0 0; }}
    {0} Button {{ margin: 0 1 0 0; min-width: 0; padding: 0; }}
"""


class RenameDialog(ModalScreen[str | None]):
    """Gives back the new title; None when there is to be no other."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close")]
    DEFAULT_CSS = _CSS.format("RenameDialog", "$primary")

    def __init__(self, title: str) -> None:
        super().__init__()
        self._before = title

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Rename"
            box.border_subtitle = "enter renames · esc keeps"
            yield Input(visible(self._before), placeholder="title", compact=True)
            with Horizontal():
                yield Button("Rename", id="rename", compact=True, variant="primary")
                yield Button("Keep", id="keep", compact=True)

    def on_mount(self) -> None:
        """Have the title ready to be typed over."""
        self.query_one(Input).focus()

    @on(Input.Submitted)
    @on(Button.Pressed, "#rename")
    def _rename(self) -> None:
        self.dismiss(self.query_one(Input).value)

    @on(Button.Pressed, "#keep")
    def action_leave(self) -> None:
        """Close without another title."""
        self.dismiss(None)


class DeleteDialog(ModalScreen[bool]):
    """Gives back whether to delete."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "leave", "Keep"),
        Binding("y", "delete", "Delete"),
        Binding("left,up", "app.focus_previous", show=False),
        Binding("right,down", "app.focus_next", show=False),
    ]
    DEFAULT_CSS = _CSS.format("DeleteDialog", "$error")

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Delete"
            box.border_subtitle = "y deletes · esc keeps"
            yield Static(Content(visible(self._question)), markup=False)
            with Horizontal():
                yield Button("Keep", id="keep", compact=True)
                yield Button("Delete", id="delete", compact=True, variant="error")

    def on_mount(self) -> None:
        """Enter keeps, unless the focus was moved first."""
        self.query_one("#keep", Button).focus()

    @on(Button.Pressed, "#delete")
    def action_delete(self) -> None:
        """Close with a yes."""
        self.dismiss(True)

    @on(Button.Pressed, "#keep")
    def action_leave(self) -> None:
        """Close with a no."""
        self.dismiss(False)
