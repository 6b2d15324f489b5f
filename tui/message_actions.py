"""What can be done with a message: the list that enter opens.

Owns which actions a message has and how they are named. Decides nothing: it returns what was
chosen.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList

from tui.code_blocks import CodeBlock, code_blocks
from tui.code_view import CodeVerb
from tui.message_view import Entry
from tui.safe_text import visible

Verb = Literal["copy", "edit", "regenerate", "continue", "branch"] | CodeVerb

_WORDS: dict[Verb, str] = {
    "copy": "Copy the text",
    "edit": "Edit and ask again",
    "regenerate": "Answer again",
    "continue": "Continue the answer",
    "branch": "Go on from here",
    "copy_code": "Copy",
    "save_code": "Save to a file",
    "apply_code": "Apply to",
}
_OF_KIND: dict[str, tuple[Verb, ...]] = {
    "user": ("copy", "edit", "regenerate", "branch"),
    "assistant": ("copy", "regenerate", "continue", "branch"),
}


class Choice(Struct, frozen=True, kw_only=True):
    """One action on one message."""

    verb: Verb
    block: CodeBlock | None = None
    """For what is done with a code block."""

    @property
    def title(self) -> str:
        """How the list names it."""
        if self.block is None:
            return _WORDS[self.verb]
        lines = self.block.code.count("\n")
        name = f"code {self.block.index + 1} · {self.block.language or 'no language'}"
        where = f" {self.block.target}" if self.verb == "apply_code" and self.block.target else ""
        word = _WORDS[self.verb] + (where or " a file" * (self.verb == "apply_code"))
        return visible(f"{word} · {name} · {lines} line{'s' * (lines != 1)}")


def choices(entry: Entry) -> list[Choice]:
    """Everything that can be done with a message."""
    found = [Choice(verb=verb) for verb in _OF_KIND.get(entry.kind, ("copy",))]
    if entry.kind == "assistant":
        for block in code_blocks(entry.text):
            verbs: tuple[CodeVerb, ...] = ("copy_code", "save_code", "apply_code")
            found += [Choice(verb=verb, block=block) for verb in verbs]
    return found


class MessageActions(ModalScreen[Choice | None]):
    """The list of what can be done."""

    DEFAULT_CSS = """
    MessageActions { align: center middle; }
    MessageActions > OptionList {
        width: 60; max-width: 90%; height: auto; max-height: 80%; border: round $accent;
    }
    MessageActions > OptionList:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Close")]

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self._choices = choices(entry)

    def compose(self) -> ComposeResult:
        """The list."""
        yield OptionList(*(choice.title for choice in self._choices), markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return what was chosen."""
        self.dismiss(self._choices[event.option_index])
