"""One message of the transcript: what the user asked, an answer, or a notice of the chat itself.

Owns how each of them looks and what an entry of the transcript remembers when its widget is gone.
Everything is shown as plain text or as `AnswerView`; markup in it is never interpreted. Must not
know the transcript around it or the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.message import Message

from engine.protocol import Role, Snippet
from tui.answer_view import AnswerView
from tui.code_view import CodeChosen, CodeVerb
from tui.line_pane import LinePane
from tui.markdown_rows import TAB_CELLS, Row
from tui.safe_text import visible

Kind = Literal["user", "assistant", "information", "warning", "error"]
NOTICES: tuple[Kind, ...] = ("information", "warning", "error")
_LEADS: dict[Kind, str] = {"user": "❯ ", "information": "· ", "warning": "! ", "error": "✗ "}
_STATES = {"partial": "stopped here", "failed": "failed here"}
_LONGEST_ROW = 1500


class ShownMessage(Protocol):
    """What the transcript needs of a kept message."""

    @property
    def id(self) -> int: ...
    @property
    def role(self) -> Role: ...
    @property
    def content(self) -> str: ...
    @property
    def snippets(self) -> tuple[Snippet, ...]: ...
    @property
    def state(self) -> str: ...
    @property
    def kinds(self) -> bytes: ...


@dataclass(slots=True, kw_only=True)
class Entry:
    """A message, whether or not it has a widget just now."""

    kind: Kind
    text: str
    message_id: int | None = None
    """Its id in the history; None for a notice."""
    paths: tuple[str, ...] = ()
    """Files that went with it."""
    kinds: bytes = b""
    state: str = "whole"
    live: bool = False
    """The answer is still being written."""

    @classmethod
    def of(cls, message: ShownMessage) -> Entry:
        """The entry of a kept message; a system message is shown as a notice."""
        kind: Kind = "information" if message.role == "system" else message.role
        return cls(
            kind=kind,
            text=message.content,
            message_id=message.id,
            paths=tuple(snippet.path for snippet in message.snippets),
            kinds=message.kinds,
            state=message.state,
        )


class MessageView(Vertical):
    """An entry on the screen."""

    DEFAULT_CSS = """
    MessageView {
        height: auto;
        border-left: blank;
        padding: 0 1 0 0;
        & > .message-text { margin: 0 0 1 0; }
        & > .message-text > .line-pane--prefix { color: $text-accent; }
        & > .message-foot { margin: 0 0 1 0; text-style: dim; }
    }
    MessageView.-user > .message-text { text-style: bold; }
    MessageView.-information > .message-text { color: $foreground 60%; }
    MessageView.-warning > .message-text { color: $text-warning; }
    MessageView.-warning > .message-text > .line-pane--prefix { color: $text-warning; }
    MessageView.-error > .message-text { color: $text-error; }
    MessageView.-error > .message-text > .line-pane--prefix { color: $text-error; }
    """

    class Picked(Message):
        """The user clicked on a message."""

        def __init__(self, view: MessageView) -> None:
            super().__init__()
            self.view = view

    class CodePicked(Message):
        """The user wants something done with a code block of a message."""

        def __init__(self, view: MessageView, verb: CodeVerb, line: int) -> None:
            super().__init__()
            self.view = view
            self.verb = verb
            self.line = line
            """1-based line of the block's fence in the message."""

    def __init__(self, entry: Entry, *, provenance: bool = False) -> None:
        super().__init__(classes=f"-{entry.kind}")
        self.entry = entry
        self.answer = (
            AnswerView(entry.text, entry.kinds, provenance=provenance)
            if entry.kind == "assistant"
            else None
        )

    def compose(self) -> ComposeResult:
        """The text, and below it what else is to be said of it."""
        if self.answer is not None:
            yield self.answer
        else:
            pane = LinePane(classes="message-text")
            pane.extend(_rows(self.entry))
            yield pane
        if self.entry.state in _STATES and not self.entry.live:
            foot = LinePane(classes="message-foot")
            foot.extend([Row(body=Content(_STATES[self.entry.state]), first="… ")])
            yield foot

    async def on_mount(self) -> None:
        """An answer that is not being written is over."""
        if self.answer is not None and not self.entry.live:
            await self.answer.finish()

    def on_click(self, event: Click) -> None:
        """Tell the transcript."""
        self.post_message(self.Picked(self))

    @on(CodeChosen)
    def _code_chosen(self, event: CodeChosen) -> None:
        event.stop()
        self.post_message(self.CodePicked(self, event.verb, event.line))

    def remember(self) -> None:
        """Take into the entry what only the widget knew."""
        if self.answer is not None:
            self.entry.text = self.answer.source
            self.entry.kinds = self.answer.kinds


def _rows(entry: Entry) -> Sequence[Row]:
    """The lines of a text that is not markdown, and the files that went with it."""
    lead = _LEADS[entry.kind]
    rows: list[Row] = []
    for line in entry.text.split("\n"):
        for start in range(0, max(1, len(line)), _LONGEST_ROW):
            piece = line[start : start + _LONGEST_ROW].removesuffix("\r")
            shown = visible(piece).expandtabs(TAB_CELLS)
            prefix = " " * len(lead) if rows else lead
            rows.append(
                Row(
                    body=Content(shown),
                    first=prefix,
                    rest=" " * len(lead),
                    raw=piece,
                    glued=start > 0,
                )
            )
    rows += [
        Row(
            body=Content.styled(visible(path), "not bold dim"),
            first=" " * len(lead) + "+ ",
            rest=" " * len(lead) + "  ",
        )
        for path in entry.paths
    ]
    return rows
