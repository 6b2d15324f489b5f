"""The ledger: shown when a message does not fit, so that the user chooses what is left out.

Owns the screen: every message and file with its tokens, what is marked to go, whether the rest
fits. The sums are `ledger_plan`'s. It sends and drops nothing: it ends with a `Choice`, or with
None when the message is not to be sent.

Invariant: nothing is marked when it opens, and it can't be left with a choice that does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Button, OptionList, Static
from textual.widgets.option_list import Option

from engine.protocol import PromptCost, Role
from tui.ledger_plan import Choice, excess, exchanges, plan, still_over
from tui.safe_text import visible

if TYPE_CHECKING:
    from textual.app import ComposeResult

TITLE_LENGTH = 200
OTHER_LINES = 10
"""The box without its rows: border, sums, buttons."""


class Entry(Struct, frozen=True, kw_only=True):
    """One turn of the prompt, in the order of the prompt's turns."""

    role: Role
    text: str


class LedgerScreen(ModalScreen[Choice | None]):
    """What the prompt is made of, and what of it may go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "mark_oldest", "Mark the oldest"),
        Binding("space", "mark", "Mark", show=False),
        Binding("s,ctrl+s", "send", "Send"),
        Binding("escape,c", "cancel", "Cancel"),
    ]
    DEFAULT_CSS = """
    LedgerScreen {
        align: center middle; background: $background 60%;
        & > Vertical {
            width: 90; max-width: 100%; height: auto; max-height: 100%;
            padding: 0 1; border: round $warning; background: $surface;
        }
        Static { height: auto; }
        OptionList {
            height: auto; border: none; padding: 0; scrollbar-size-vertical: 1;
            text-wrap: nowrap; text-overflow: ellipsis;
        }
        &.-short > Vertical { height: 100%; }
        &.-short OptionList { height: 1fr; }
        #ledger-rest.-fits { color: $text-success; }
        #ledger-rest.-over { color: $text-error; }
        Horizontal { height: auto; align-horizontal: right; }
        Button { margin: 0 0 0 1; min-width: 8; }
    }
    """

    def __init__(
        self, cost: PromptCost, turns: Sequence[Entry], files: Sequence[str], reserve: int
    ) -> None:
        """`turns` and `files` describe those of the prompt that `cost` was measured for; `reserve`
        is the longest answer, in tokens."""
        super().__init__()
        assert len(turns) == len(cost.turn_tokens), "a description for every turn"
        assert len(files) == len(cost.snippet_tokens), "a description for every file"
        self._cost = cost
        self._turns = turns
        self._files = files
        self._reserve = reserve
        self._roles = [turn.role for turn in turns]
        self._groups = exchanges(cost, self._roles)
        self._gone_groups = 0
        self._gone_files: frozenset[int] = frozenset()

    @property
    def choice(self) -> Choice:
        """What is marked."""
        turns = tuple(n for group in self._groups[: self._gone_groups] for n in group)
        return Choice(turns=turns, files=tuple(sorted(self._gone_files)))

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Too long to send"
            yield Static(self._sum(), markup=False)
            yield OptionList(*self._rows(), markup=False, compact=True)
            yield Static(id="ledger-rest", markup=False)
            with Horizontal():
                yield Button("Oldest (o)", id="oldest", compact=True)
                yield Button("Send (s)", id="send", variant="primary", compact=True)
                yield Button("Cancel", id="cancel", compact=True)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._refresh_rows()

    def on_resize(self, event: Resize) -> None:
        """Where not all fits, the rows scroll and the rest stays in sight."""
        self.set_class(
            len(self._turns) + len(self._files) + OTHER_LINES > event.size.height, "-short"
        )

    def action_mark_oldest(self) -> None:
        """Mark as many of the oldest exchanges as must go, given the files that go."""
        files = sorted(self._gone_files)
        needed = plan(self._cost, self._reserve, self._roles, files).turns
        self._gone_groups = sum(group[0] in needed for group in self._groups)
        self._refresh_rows()

    def action_mark(self) -> None:
        """Mark or unmark the row under the cursor. Messages go from the oldest on: marking one
        marks all before it, unmarking one all behind it."""
        row = self.query_one(OptionList).highlighted
        if row is not None:
            self._toggle(row)

    @on(OptionList.OptionSelected)
    def _row_chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._toggle(event.option_index)

    @on(Button.Pressed, "#oldest")
    def _oldest_pressed(self) -> None:
        self.action_mark_oldest()

    @on(Button.Pressed, "#send")
    def action_send(self) -> None:
        """Leave with what is marked, if the rest fits."""
        if still_over(self._cost, self._reserve, self.choice) <= 0:
            self.dismiss(self.choice)
        else:
            self.app.bell()

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)

    def _toggle(self, row: int) -> None:
        if row >= len(self._turns):
            self._gone_files ^= {row - len(self._turns)}
        else:
            group = next((n for n, turns in enumerate(self._groups) if row in turns), None)
            if group is None:
                self.app.bell()
                return
            self._gone_groups = group + 1 if group >= self._gone_groups else group
        self._refresh_rows()

    def _sum(self) -> str:
        cost = self._cost
        return (
            f"{cost.total_tokens:,} tokens and {self._reserve:,} for the answer: "
            f"{excess(cost, self._reserve):,} more than the {cost.context_limit:,} that fit. "
            "Space marks what to leave out."
        )

    def _rows(self) -> list[Option]:
        choice = self.choice
        may_go = {n for group in self._groups for n in group}
        width = len(f"{max((*self._cost.turn_tokens, *self._cost.snippet_tokens, 0)):,}")
        rows = []
        for n, (turn, tokens) in enumerate(zip(self._turns, self._cost.turn_tokens, strict=True)):
            mark = ("[x]" if n in choice.turns else "[ ]") if n in may_go else "   "
            text = visible(" ".join(turn.text[:TITLE_LENGTH].split()))
            row = Content(f"{mark} {tokens:>{width},}  {turn.role:<9}  {text}")
            rows.append(row if n in may_go else row.stylize("dim"))
        for n, (path, tokens) in enumerate(
            zip(self._files, self._cost.snippet_tokens, strict=True)
        ):
            mark = "[x]" if n in choice.files else "[ ]"
            rows.append(Content(f"{mark} {tokens:>{width},}  {'file':<9}  {visible(path)}"))
        return [Option(row) for row in rows]

    def _refresh_rows(self) -> None:
        listed = self.query_one(OptionList)
        for n, option in enumerate(self._rows()):
            listed.replace_option_prompt_at_index(n, option.prompt)
        over = still_over(self._cost, self._reserve, self.choice)
        turns = several(len(self.choice.turns), "message")
        marked = f"Left out: {turns}, {several(len(self.choice.files), 'file')}."
        verdict = f"{over:,} too many still." if over > 0 else f"Fits, {-over:,} to spare."
        everything = plan(self._cost, self._reserve, self._roles, range(len(self._files)))
        if everything.short_by:
            verdict += " The message alone is too long: shorten it, or lower /max-tokens."
        rest = self.query_one("#ledger-rest", Static)
        rest.update(f"{marked} {verdict}")
        rest.set_classes("-over" if over > 0 else "-fits")
        self.query_one("#send", Button).disabled = over > 0


def several(count: int, what: str) -> str:
    """The number with its noun."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
