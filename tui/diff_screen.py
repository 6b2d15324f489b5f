"""The question before a file is written: what would change, and whether it shall.

Owns the preview's title, its keys and the moment from which a yes counts. Knows an `Edit`, writes
nothing: the answer is True or False, the caller applies.

Invariant: a key that was on its way when the preview appeared, or is held down, never confirms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from tui import diff_text
from tui.diff_view import DiffView
from tui.edits import Edit
from tui.safe_text import visible

if TYPE_CHECKING:
    from textual.app import ComposeResult

GRACE_SECONDS = 0.5
_KINDS = {"create": "New file", "replace": "Replace whole file", "patch": "Change"}
_KEYS = "y/enter apply · n/esc cancel · ↑ ↓"
_TOO_EARLY = "That key came too early to be an answer. Press it again."


class DiffScreen(ModalScreen[bool]):
    """Shows an edit; dismissed with whether to apply it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "apply", "Apply"),
        Binding("n,escape", "cancel", "Cancel"),
    ]
    DEFAULT_CSS = """
    DiffScreen { align: center middle; background: $background 60%; }
    DiffScreen > Vertical {
        width: 100%; max-width: 120; height: 100%; padding: 0 1;
        border: round $primary; background: $surface;
    }
    DiffScreen #title { height: auto; max-height: 3; }
    DiffScreen DiffView { height: 1fr; }
    DiffScreen #answers { height: 1; }
    DiffScreen #answers Button { width: auto; min-width: 10; margin: 0 1 0 0; }
    DiffScreen #hint { height: auto; max-height: 2; color: $text-muted; }
    """

    def __init__(
        self,
        edit: Edit,
        *,
        grace: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`grace` seconds must pass before a yes counts, by `clock`."""
        super().__init__()
        self.edit = edit
        self._rows = diff_text.rows(edit.diff)
        self._grace = grace
        self._clock = clock
        self._since = clock()

    def compose(self) -> ComposeResult:
        """Title, diff, answers, keys."""
        with Vertical():
            yield Static(self._title(), id="title", markup=False)
            yield DiffView(self._rows)
            with Horizontal(id="answers"):
                yield Button("Apply", variant="success", compact=True, id="apply")
                yield Button("Cancel", compact=True, id="cancel")
            yield Static(_KEYS, id="hint", markup=False)

    def _title(self) -> Content:
        added = sum(row.sign == "+" for row in self._rows)
        removed = sum(row.sign == "-" for row in self._rows)
        name = Content(visible(self.edit.name)).stylize("bold")
        return Content(f"{_KINDS[self.edit.kind]}: ") + name + Content(f"  +{added} −{removed}")

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Whenever the preview comes to the front the grace begins anew."""
        self._since = self._clock()
        self.query_one(DiffView).focus()

    @on(Button.Pressed, "#apply")
    def action_apply(self) -> None:
        """Yes, if it was meant for this question; a yes too early begins the grace anew."""
        now = self._clock()
        if now - self._since < self._grace:
            self._since = now
            self.query_one("#hint", Static).update(_TOO_EARLY)
            return
        self.dismiss(True)

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        """No, at any time."""
        self.dismiss(False)
