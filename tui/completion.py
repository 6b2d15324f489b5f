"""The popup of the input: what may be meant by a `/` at its start or by an `@` before the cursor.

Owns what is being completed, the index of files, the rows offered and which one is highlighted. It
must not change the input: whoever holds it puts the chosen row's `insert` in place of what was
typed.

Invariant: rows are plain text, matched letters apart; it never has the focus.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import ClassVar, Literal

from msgspec import Struct
from textual import work
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui.commands import SlashCommand, matching
from tui.file_index import FileIndex, Found
from tui.mentions import as_mention

ROWS = 8
STALE_S = 10.0
"""An index of files older than this is made anew when it is asked for."""
_COMMAND = re.compile(r"/[A-Za-z0-9_-]*\Z")
_PATH = re.compile(r'(?<![^\s(\[{<,;])@(?:"(?P<quoted>[^"\n]*)|(?P<bare>[^\s@"\'`<>|:]*))\Z')


class Typed(Struct, frozen=True, kw_only=True):
    """What stands before the cursor and could be completed."""

    kind: Literal["command", "path"]
    start: int
    """Where it begins, its `/` or `@` included; it ends at the cursor."""
    query: str


class Offer(Struct, frozen=True, kw_only=True):
    """One row of the popup."""

    insert: str
    """What takes the place of what was typed."""
    row: Content
    runs: bool = False
    """Choosing it with enter needs nothing more to be typed."""


def being_typed(text: str, cursor: int) -> Typed | None:
    """What the popup is for, given the text and the place of the cursor in it."""
    before = text[:cursor]
    if _COMMAND.match(before):
        return Typed(kind="command", start=0, query=before[1:])
    path = _PATH.search(before)
    if path is None:
        return None
    quoted, bare = path["quoted"], path["bare"]
    return Typed(kind="path", start=path.start(), query=bare if quoted is None else quoted)


def command_offers(commands: tuple[SlashCommand, ...]) -> list[Offer]:
    """Rows for commands: name and argument, then what each does."""
    heads = [f"/{command.name} {command.argument}".strip() for command in commands]
    width = max(map(len, heads), default=0)
    return [
        Offer(
            insert=f"/{command.name} ",
            row=Content.assemble(head.ljust(width), "  ", (command.help, "dim")),
            runs=not command.argument,
        )
        for command, head in zip(commands, heads, strict=True)
    ]


def file_offers(found: tuple[Found, ...]) -> list[Offer]:
    """Rows for files, the letters that were matched in bold."""
    offers = []
    for one in found:
        row = Content(one.path)
        for place in one.positions:
            row = row.stylize("bold $text-accent", place, place + 1)
        offers.append(Offer(insert=as_mention(one.path) + " ", row=row))
    return offers


class Completions(OptionList, can_focus=False):
    """The popup itself; hidden while there is nothing to offer."""

    DEFAULT_CSS = """
    Completions {
        display: none; height: auto; padding: 0 1; border: none;
        background: $boost; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = []

    class Filled(Message):
        """There are other rows now, or none."""

    def __init__(self, root: Path) -> None:
        super().__init__(markup=False)
        self.typed: Typed | None = None
        self._offered_for: Typed | None = None
        self._index = FileIndex(root)
        self._dismissed: Typed | None = None
        self._walking = False
        self._offers: list[Offer] = []

    def on_unmount(self) -> None:
        self._index.stop()

    @property
    def is_open(self) -> bool:
        return bool(self._offers)

    @property
    def chosen(self) -> Offer:
        """The highlighted row. Only while it is open."""
        return self._offers[self.highlighted or 0]

    def follow(self, typed: Typed | None) -> None:
        """Offer what `typed` may become. It stays closed where it was closed, until the cursor has
        been elsewhere."""
        if typed == self.typed:
            return
        self.typed = typed
        if typed is None or not _same_place(typed, self._dismissed):
            self._dismissed = None
        if typed is None or self._dismissed is not None:
            self._offer([])
        elif typed.kind == "command":
            self._offer(command_offers(matching(typed.query)))
        else:
            self._find_soon(typed)

    async def caught_up(self) -> None:
        """Wait until the rows are those for what is typed."""
        if self.is_open and self.typed is not None and self.typed != self._offered_for:
            await self._find(self.typed)

    def close(self) -> None:
        """Offer nothing more for what is being typed."""
        self.leave(self.typed)

    def leave(self, typed: Typed | None) -> None:
        """Offer nothing for `typed`, which the cursor now stands behind without anyone typing."""
        self.typed = self._dismissed = typed
        self._offer([])

    def step(self, by: int) -> None:
        """Highlight the next row (+1) or the one before (-1), round and round."""
        self.highlighted = ((self.highlighted or 0) + by) % len(self._offers)

    @work(group="find", exclusive=True)
    async def _find_soon(self, typed: Typed) -> None:
        await self._find(typed)

    async def _find(self, typed: Typed) -> None:
        if self._index.age_s > STALE_S and not self._walking:
            self._walk()
        found = await asyncio.to_thread(self._index.search, typed.query, ROWS)
        if typed == self.typed and self._dismissed is None:
            self._offer(file_offers(found))

    @work(group="walk")
    async def _walk(self) -> None:
        self._walking = True
        try:
            await asyncio.to_thread(self._index.refresh)
        finally:
            self._walking = False
        if self.typed is not None and self.typed.kind == "path":
            await self._find(self.typed)

    def _offer(self, offers: list[Offer]) -> None:
        self._offers, self._offered_for = offers, self.typed
        self.clear_options()
        self.add_options(Option(offer.row) for offer in offers)
        self.highlighted = 0 if offers else None
        self.post_message(self.Filled())


def _same_place(typed: Typed, other: Typed | None) -> bool:
    return other is not None and (typed.kind, typed.start) == (other.kind, other.start)
