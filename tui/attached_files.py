"""How the files of a message are shown, and those that came with a message loaded to be edited.

Owns the chips with their token counts, the sentences about files that don't go along, and which
files of an earlier message still belong to it. Reads nothing; all text it shows is plain.

Invariant: a file of a loaded message goes along again unless its mention, or it itself, was taken
away; one that is named in the text is sent as it is now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual.content import Content
from textual.widgets import Static

from engine.protocol import EngineError, PromptCost, Snippet
from tui.attachments import Gathered
from tui.mentions import mentions
from tui.safe_text import visible

Count = Callable[[tuple[Snippet, ...]], Awaitable[PromptCost]]
"""Measures the prompt that these files would go along with."""


class KeptFiles:
    """Files that came with a message that was loaded."""

    def __init__(self, text: str = "", snippets: Sequence[Snippet] = ()) -> None:
        named = _named(text)
        self._tied = tuple(one for one in snippets if one.path in named)
        self._loose = tuple(one for one in snippets if one.path not in named)

    def __bool__(self) -> bool:
        return bool(self._tied or self._loose)

    def beside(self, gathered: Gathered, text: str) -> tuple[Snippet, ...]:
        """All that goes along with `text`, given what was read for it."""
        fresh = {one.path for one in gathered.snippets}
        named = _named(text)
        kept = (*self._loose, *(one for one in self._tied if one.path in named))
        return (*(one for one in kept if one.path not in fresh), *gathered.snippets)

    def drop_last(self) -> bool:
        """Take away the last file that no mention stands for; False if there is none."""
        self._loose, dropped = self._loose[:-1], bool(self._loose)
        return dropped


def chips(
    snippets: Sequence[Snippet], cost: PromptCost | None = None, *, why_unknown: str = ""
) -> Content:
    """One chip a file with its tokens, then what the whole prompt would take."""
    if not snippets:
        return Content("")
    tokens = cost.snippet_tokens if cost else (None,) * len(snippets)
    shown = [
        Content.styled(f" {visible(one.path)} {_size(one, count)} ", "$text on $primary-muted")
        for one, count in zip(snippets, tokens, strict=True)
    ]
    if cost is not None:
        over = cost.total_tokens > cost.context_limit
        total = f"prompt {cost.total_tokens:,} of {cost.context_limit:,} tokens"
        shown.append(Content.styled(total, "bold $text-error" if over else "$text-muted"))
    elif why_unknown:
        shown.append(Content.styled(visible(why_unknown), "$text-muted"))
    return Content("  ").join(shown)


class FileChips(Static):
    """The chips of what goes along."""

    def __init__(self, count: Count | None) -> None:
        super().__init__(markup=False)
        self.snippets: tuple[Snippet, ...] = ()
        self._count = count

    async def weigh(self) -> None:
        """Show the files, and their tokens once they are counted."""
        snippets = self.snippets
        self.update(chips(snippets))
        if snippets and self._count is not None:
            try:
                self.update(chips(snippets, await self._count(snippets)))
            except EngineError as error:
                why = f"tokens not known: {error.message}"
                self.update(chips(snippets, why_unknown=why))


def problems(gathered: Gathered) -> Content:
    """A line for each file that does not go along, and for each mention that is no file."""
    lines = [Content(f"{one.message}. {one.hint}") for one in gathered.refused]
    lines += [
        Content.styled(f"{visible(one)}: no such file here, sent as plain words", "$text-muted")
        for one in gathered.unknown
    ]
    return Content("\n").join(lines)


def _size(snippet: Snippet, tokens: int | None) -> str:
    if tokens is not None:
        return f"{tokens:,} token{'s' if tokens != 1 else ''}"
    size = len(snippet.text.encode("utf-8", "replace"))
    return f"{size / 1000:,.1f} kB" if size >= 1000 else f"{size} B"


def _named(text: str) -> set[str]:
    """Paths of snippets that the mentions in `text` may stand for."""
    paths = set()
    for mention in mentions(text):
        for wanted in mention.readings:
            span = f":{wanted.lines[0]}-{wanted.lines[1]}" if wanted.lines else ""
            paths.add(wanted.path + span)
    return paths
