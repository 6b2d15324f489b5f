"""The text area of the input: keys, pastes and placeholders, one line or many.

Owns editing: which keys send and which break the line, the placeholders' way through edits, undo
and redo, and what a terminal sends that is no typing. It must not know files, commands, history or
the engine: keys that are for more than the text are its owner's.

Invariant: `whole_text` is what was typed and pasted, character by character, whatever was done to
it in between; the cursor is never inside a placeholder.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, cast

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditResult, Location, Selection

from tui import pastes
from tui.pastes import Draft, Span, Spans
from tui.terminal_keys import JOINERS, NEWLINE_KEYS, MouseReports, teach_alt_enter

# Textual's own, less those that belong to the whole chat (ctrl+k, ctrl+c, f6, f7).
_BINDINGS = (
    *(
        binding
        for binding in TextArea.BINDINGS
        if isinstance(binding, Binding)
        and binding.key not in ("ctrl+k", "ctrl+c,super+c", "f6", "f7")
    ),
    Binding("ctrl+o", "expand_paste", "Show pasted text", show=False),
)
ACTIONS = {key: binding.action for binding in _BINDINGS for key in binding.key.split(",")}


class _PlacedEdit(Edit):
    """An edit that takes the placeholders along, forwards and back."""

    paste: int | None = None
    """The paste that the inserted text stands for."""
    before: Spans = ()

    def do(self, text_area: TextArea, record_selection: bool = True) -> EditResult:
        area = cast("PromptArea", text_area)
        start, end = area.place_of(self.top), area.place_of(self.bottom)
        self.before = area.spans
        result = super().do(text_area, record_selection)
        spans = pastes.moved(self.before, start, end, len(self.text))
        if self.paste is not None:
            new = Span(start=start, end=start + len(self.text), paste=self.paste)
            spans = tuple(sorted((*spans, new), key=lambda span: span.start))
        area.spans = spans
        return result

    def undo(self, text_area: TextArea) -> EditResult:
        result = super().undo(text_area)
        cast("PromptArea", text_area).spans = self.before
        return result


class Owner(Protocol):
    """Who the text area belongs to. It is called and not messaged, for keys that were typed ahead
    must not overtake what the key before them does."""

    async def take_key(self, key: str) -> bool:
        """Do what `key` is for, if it is for more than the text; False leaves it to the text."""
        ...

    def at_edge(self, step: int) -> None:
        """The cursor was to go above the first line (-1) or below the last (+1)."""
        ...

    def at_start(self) -> None:
        """Something before the start of the text was to be deleted."""
        ...


class PromptArea(TextArea, inherit_bindings=False):
    """A text area whose large pastes are single pieces."""

    DEFAULT_CSS = """
    PromptArea {
        height: auto;
        max-height: 10;
        & .text-area--paste { color: $text-accent; text-style: italic; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"text-area--paste"}
    BINDINGS: ClassVar[list[BindingType]] = list(_BINDINGS)

    def __init__(self, owner: Owner, *, placeholder: str = "") -> None:
        self._owner = owner
        self.spans: Spans = ()
        self.pastes: dict[int, str] = {}
        self._reports = MouseReports()
        super().__init__(placeholder=placeholder, highlight_cursor_line=False)

    def on_mount(self) -> None:
        teach_alt_enter()

    @property
    def whole_text(self) -> str:
        """What was typed and pasted, placeholders replaced by what they stand for."""
        return pastes.expand(self.text, self.spans, self.pastes)

    @property
    def typed_text(self) -> str:
        """The text as shown, placeholders blanked out."""
        return pastes.typed(self.text, self.spans)

    @property
    def selected_text(self) -> str:
        """What is selected, placeholders in it expanded."""
        start, end = sorted(map(self.place_of, self.selection))
        part = pastes.within(self.spans, start, end)
        return pastes.expand(self.text[start:end], part, self.pastes)

    def place_of(self, location: Location) -> int:
        """A place in the text, from row and column."""
        row, column = min(location, self.document.end)
        return sum(len(line) + 1 for line in self.document.lines[:row]) + column

    def location_at(self, place: int) -> Location:
        """Row and column of a place in the text."""
        row = self.text.count("\n", 0, place)
        return row, place - (self.text.rfind("\n", 0, place) + 1)

    @property
    def draft(self) -> Draft:
        """All there is, placeholders as such."""
        return Draft(text=self.text, spans=self.spans, pastes=dict(self.pastes))

    def load(self, what: str | Draft) -> None:
        """Put a text or a draft in place of all there is, cursor at its end; nothing of before can
        be undone. A text that can't be shown as it is comes as one placeholder."""
        if isinstance(what, str):
            what = pastes.as_draft(what)
        self.load_text(what.text)
        self.spans, self.pastes = what.spans, dict(what.pastes)
        self.move_cursor(self.document.end)

    def load_text(self, text: str) -> None:
        self.spans = ()
        super().load_text(text)

    def edit(self, edit: Edit) -> EditResult:
        return self._place(edit, None)

    def insert_paste(self, text: str) -> None:
        """Take a paste in: as it is when short, else as a placeholder. The same paste again, right
        behind its placeholder, shows it in full."""
        text = pastes.clean(text)
        if not text:
            return
        cursor = self.place_of(self.cursor_location)
        same = [
            span for span in self.spans if span.end == cursor and self.pastes[span.paste] == text
        ]
        if same and self.selection.is_empty and pastes.is_plain(text):
            self._expand(same[0])
        elif pastes.is_large(text):
            self._insert_placeholder(text)
        else:
            self.replace(text, *self.selection, maintain_selection_offset=False)
        self.scroll_cursor_visible()

    def action_expand_paste(self) -> None:
        """Show in full the paste beside the cursor, or else every one."""
        cursor = self.place_of(self.cursor_location)
        plain = [span for span in self.spans if pastes.is_plain(self.pastes[span.paste])]
        beside = [span for span in plain if cursor in (span.start, span.end)]
        for span in reversed(beside or plain):
            self._expand(span)

    def action_paste(self) -> None:
        self.insert_paste(self.app.clipboard)

    def action_cut(self) -> None:
        if self.selection.is_empty:
            self.action_select_line()
        self.app.copy_to_clipboard(self.selected_text)
        self._delete_via_keyboard(*self.selection)

    def action_delete_left(self) -> None:
        if self.selection == Selection.cursor((0, 0)):
            self._owner.at_start()
        super().action_delete_left()

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.navigator.is_first_wrapped_line(self.cursor_location):
            self._owner.at_edge(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and self.navigator.is_last_wrapped_line(self.cursor_location):
            self._owner.at_edge(1)
        else:
            super().action_cursor_down(select)

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        if self.spans:
            begin = self.place_of((line_index, 0))
            style = self.get_component_rich_style("text-area--paste", partial=True)
            for span in pastes.within(self.spans, begin, begin + len(line)):
                line.stylize(style, span.start, span.end)
        return line

    def watch_selection(self, before: Selection, now: Selection) -> None:
        """Step over placeholders: they have no inside."""
        cursor, came_from = self.place_of(now.end), self.place_of(before.end)
        for span in self.spans:
            if span.start < cursor < span.end:
                edge = self.location_at(span.start if came_from > cursor else span.end)
                self.selection = Selection(edge if now.is_empty else now.start, edge)

    async def _on_key(self, event: events.Key) -> None:
        if await self._owner.take_key(event.key) or await self._take_key(event):
            event.stop()
            event.prevent_default()

    async def _take_key(self, event: events.Key) -> bool:
        """Do what the key is bound to. Textual would run that only after the keys behind it."""
        character = event.character or ""
        if event.key in NEWLINE_KEYS:
            self._replace_via_keyboard("\n", *self.selection)
        elif character in JOINERS:
            self._replace_via_keyboard(character, *self.selection)
        elif action := ACTIONS.get(event.key):
            await self.run_action(action)
        else:
            return self._ended_mouse_report(character, event.time)
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if not self.read_only:
            self.insert_paste(event.text)

    def _ended_mouse_report(self, character: str, at_s: float) -> bool:
        """Whether `character` ended a mouse report that was taken for typing; what of it was
        inserted is then taken out again."""
        report = self._reports.ended(character, at_s)
        row, column = self.cursor_location
        if report and self.document.lines[row][:column].endswith(report[:-1]):
            self._delete_via_keyboard((row, column - len(report) + 1), (row, column))
        return bool(report)

    def _place(self, edit: Edit, paste: int | None) -> EditResult:
        start, end = pastes.grown(self.spans, self.place_of(edit.top), self.place_of(edit.bottom))
        placed = _PlacedEdit(
            edit.text,
            self.location_at(start),
            self.location_at(end),
            edit.maintain_selection_offset,
        )
        placed.paste = paste
        return super().edit(placed)

    def _insert_placeholder(self, text: str) -> None:
        number = max(self.pastes, default=0) + 1
        self.pastes[number] = text
        self._place(Edit(pastes.label(number, text), *self.selection, False), number)

    def _expand(self, span: Span) -> None:
        self.replace(
            self.pastes[span.paste],
            self.location_at(span.start),
            self.location_at(span.end),
            maintain_selection_offset=False,
        )
