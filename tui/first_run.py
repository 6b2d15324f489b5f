"""The catalogue: which models can be had, how large each is and under which licence.

Shown when no model is here yet, and by `/model`. Owns the choosing and gives back a name; fetching
and loading is the engine's work, and how far that is shows on the chat's own line. Nothing is
fetched without having been chosen here or on the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tui.engine_line import size_text
from tui.safe_text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from engine.protocol import ModelInfo

WELCOME = (
    "No model is here yet. Choose one to fetch; it is kept, and every answer is made on this "
    "machine."
)
CHOOSE = "Choose the model to answer with."


class CatalogueScreen(ModalScreen[str | None]):
    """Gives back the name, path or hub id of the chosen model; None when nothing was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Close")]
    DEFAULT_CSS = """
    CatalogueScreen { align: center middle; background: $background 60%; }
    CatalogueScreen > Vertical {
        width: 72; max-width: 100%; height: auto; max-height: 100%;
        padding: 0 1; border: round $primary; background: $surface;
    }
    CatalogueScreen Static { height: auto; }
    CatalogueScreen OptionList {
        height: auto; max-height: 1fr; margin: 1 0; padding: 0;
        &, &:focus { border: none; }
    }
    CatalogueScreen Input { &, &:focus { border: none; height: 1; background: $boost; } }
    CatalogueScreen .keys { color: $text-muted; }
    CatalogueScreen.-short OptionList { margin: 0; }
    """

    def __init__(self, models: Sequence[ModelInfo], current: str, *, first: bool) -> None:
        super().__init__()
        self._models = tuple(models)
        self._current = current
        self._first = first

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(WELCOME if self._first else CHOOSE, markup=False)
            yield OptionList(*(Option(self._row(model)) for model in self._models))
            yield Input(placeholder="or a folder, a .gguf file, a hub id (org/name)")
            yield Static("enter chooses · tab moves · esc closes", markup=False, classes="keys")

    def on_mount(self) -> None:
        """Put the cursor on the model in use."""
        options = self.query_one(OptionList)
        names = [model.name for model in self._models]
        options.highlighted = names.index(self._current) if self._current in names else 0
        options.focus()

    def _row(self, model: ModelInfo) -> Content:
        state = "here" if model.here else "to be fetched"
        if model.name == self._current:
            state = f"{state} · chosen by the settings" if self._first else f"{state} · in use"
        facts = f"{size_text(model.size_bytes)} · {model.licence} · {state}"
        return Content(visible(model.name)).stylize("bold") + Content(visible(f"\n  {facts}"))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._models[event.option_index].name)

    @on(Input.Submitted)
    def _written(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        """Close without a choice."""
        self.dismiss(None)
