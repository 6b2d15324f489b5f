"""One answer on the screen while it is written and afterwards: markdown, or where its tokens came
from.

Owns the text of the answer exactly as the engine gave it, the record of its tokens, and the panes
that show them. What is over is never touched again; each update costs what it brings. Must not know
the engine, the history or the transcript around it.

Invariant: `source` is the engine's text, byte for byte, whatever is shown.
"""

from __future__ import annotations

from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from engine.protocol import TextDelta
from tui.code_view import CodeView
from tui.line_pane import LinePane
from tui.markdown_stream import Fence, MarkdownStream, Prose
from tui.provenance import Provenance
from tui.provenance_view import ProvenanceView


class ProsePane(LinePane):
    """Everything of an answer that is not a top-level code block."""

    DEFAULT_CSS = """
    ProsePane { margin: 0 0 1 0; }
    """

    def __init__(self, prose: Prose) -> None:
        super().__init__()
        self.prose = prose
        self._shown = 0

    def on_mount(self) -> None:
        """Show what is there already."""
        self.sync()

    def sync(self) -> None:
        """Show what the text has more than before."""
        fresh = self.prose.rows[self._shown :]
        self._shown += len(fresh)
        self.extend(fresh, self.prose.tail)


class AnswerView(Vertical):
    """The answer. Takes its text in deltas, or all at once."""

    DEFAULT_CSS = """
    AnswerView { height: auto; layout: stream; }
    AnswerView.-origin > ProsePane, AnswerView.-origin > CodeView { display: none; }
    """

    class Over(Message):
        """An answer is over."""

        def __init__(self, view: AnswerView) -> None:
            super().__init__()
            self.view = view

    def __init__(self, text: str = "", kinds: bytes = b"", *, provenance: bool = False) -> None:
        """Show `text` whose tokens' kinds are `kinds`, as `Provenance.encode` gave them.

        More may follow by `append`; an answer that is over must be told so by `finish`.
        """
        super().__init__()
        self.stream = MarkdownStream()
        self._provenance = Provenance.decode(kinds)
        self._provenance.pad(len(text) - self._provenance.length)
        self._parts = [text] if text else []
        self._shows_provenance = provenance
        self._panes: list[ProsePane | CodeView] = []
        self._origin: ProvenanceView | None = None
        self._finished = False
        self.stream.feed(text)

    @property
    def source(self) -> str:
        """The engine's text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def kinds(self) -> bytes:
        """The kinds of the tokens so far, for the history."""
        return self._provenance.encode()

    @property
    def shows_provenance(self) -> bool:
        """Whether the origin of the tokens is shown in place of the markdown."""
        return self._shows_provenance

    @property
    def work(self) -> int:
        """Characters parsed, coloured and measured so far: what this view has cost."""
        colored = sum(view.highlighted for view in self.query(CodeView))
        return self.stream.parsed + colored + sum(pane.measured for pane in self.query(LinePane))

    async def on_mount(self) -> None:
        """Show what is there already."""
        await self._sync()
        await self.set_provenance(self._shows_provenance)

    async def append(self, delta: TextDelta) -> None:
        """Show more of the answer."""
        if not (delta.text or delta.kinds):
            return
        self._parts.append(delta.text)
        self._provenance.add(delta)
        self.stream.feed(delta.text)
        await self._sync()

    async def finish(self, text: str | None = None) -> None:
        """The answer is over. `text` is the whole of it, should the deltas have told another."""
        if self._finished:
            return
        if text is not None and text != self.source:
            await self._start_over(text)
        self._finished = True
        self.stream.close()
        await self._sync()
        for pane in self._panes:
            if isinstance(pane, CodeView):
                pane.finish()
        self.post_message(self.Over(self))

    async def set_provenance(self, shown: bool) -> None:
        """Show where the tokens came from, or the markdown."""
        self._shows_provenance = shown
        if shown and self._origin is None and self.is_attached:
            self._origin = ProvenanceView()
            await self.mount(self._origin)
            self._origin.show(self.source, self._provenance, over=self._finished)
        elif not shown and self._origin is not None:
            origin, self._origin = self._origin, None
            await origin.remove()
        self.set_class(shown, "-origin")

    async def _start_over(self, text: str) -> None:
        """What was shown was not the answer: show the answer."""
        if text.startswith(self.source):
            rest = text[len(self.source) :]
            self._provenance.pad(len(rest))
            self.stream.feed(rest)
        else:
            self._provenance = Provenance()
            self._provenance.pad(len(text))
            self.stream = MarkdownStream()
            self.stream.feed(text)
            gone, self._panes = self._panes, []
            await self.remove_children(gone)
            if self._origin is not None:
                self._origin.clear()
        self._parts = [text]

    async def _sync(self) -> None:
        """Bring the panes up to the segments of the text. The last ones only can have changed."""
        segments = self.stream.segments
        while self._panes and not _shows(self._panes[-1], segments, len(self._panes) - 1):
            await self._panes.pop().remove()
        if self._panes:
            self._panes[-1].sync()
        fresh: list[ProsePane | CodeView] = [
            CodeView(segment) if isinstance(segment, Fence) else ProsePane(segment)
            for segment in segments[len(self._panes) :]
        ]
        if fresh:
            self._panes += fresh
            await self.mount_all(fresh)
        if self._origin is not None:
            self._origin.show(self.source, self._provenance, over=self._finished)


def _shows(pane: Widget, segments: list[Prose | Fence], index: int) -> bool:
    segment = segments[index] if index < len(segments) else None
    return getattr(pane, "fence", None) is segment or getattr(pane, "prose", None) is segment
