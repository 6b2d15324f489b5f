"""Markdown as rows of styled text: what a block looks like, whatever the width of the screen.

Owns the look of paragraphs, headings, lists, quotes, tables and code inside them. Knows no widget
and no width: a row says where it may be broken, the pane breaks it. Raw HTML and reference
definitions are text like any other, so nothing the model wrote is ever swallowed, and the target
of a link stands beside it.

Invariant: a row depends only on its own block (for a table, on the columns it shares), so blocks
that were parsed apart look as if they had been parsed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content, Span

from tui import highlighting
from tui.safe_text import visible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

BULLETS = "•◦▪"
QUOTE_BAR = "▌ "
TAB_CELLS = 4
CODE_STYLE = "$text-accent"
HEADINGS = {
    "h1": "bold underline $text-primary",
    "h2": "bold $text-primary",
    "h3": "bold italic $text-primary",
}
_LESSER_HEADING = "italic $text-primary"
_LED_TO = ("bullet_list", "ordered_list", "fence")
_INLINE = {"em": "italic", "strong": "bold", "s": "strike", "link": "underline"}


class Columns:
    """What the rows of one table share: how wide each column is so far."""

    def __init__(self, widths: Sequence[int] = (), right: Sequence[bool] = ()) -> None:
        self.widths = list(widths)
        self.right = tuple(right)
        """Which columns are aligned to the right."""

    def widen(self, cells: Sequence[Content]) -> None:
        """Take a row's cells into account."""
        self.widths += [0] * (len(cells) - len(self.widths))
        for index, cell in enumerate(cells):
            self.widths[index] = max(self.widths[index], cell.cell_length)

    @property
    def total(self) -> int:
        """Cells of a whole aligned row, separators included."""
        return sum(self.widths) + 3 * max(0, len(self.widths) - 1)


class Row(Struct, frozen=True, kw_only=True):
    """One row of text, broken into several lines where the pane is too narrow for it."""

    body: Content
    first: str = ""
    """Stands before the first line: a bullet, the bar of a quote."""
    rest: str = ""
    """Stands before the lines that the row is broken into after that."""
    fold: bool = False
    """May be broken anywhere, as code; otherwise between words."""
    fill: str = ""
    """Repeated over the whole width, in place of a body."""
    columns: Columns | None = None
    cells: tuple[Content, ...] = ()
    raw: str | None = None
    """What copying gives, where that isn't the body's text."""
    glued: bool = False
    """Copied without a line end before it: the row before it is the same line of the source."""
    silent: bool = False
    """Belongs to the screen, not to the text: neither selected nor copied."""


GAP = Row(body=Content(""))


class Resume(Struct, frozen=True, kw_only=True):
    """What the text before a piece of markdown tells about the piece's first block."""

    stub: str = ""
    """Lines to parse ahead of the piece, so that it is read inside the containers it stands in."""
    ordinal: int | None = None
    """Number of the first item, when the piece goes on with an ordered list."""
    columns: Columns | None = None
    """Of the table that the piece goes on with."""
    joined: bool = False
    """The piece goes on with the block before it: no gap between."""

    @property
    def stub_lines(self) -> int:
        """How many lines are not the piece's own."""
        return self.stub.count("\n")

    def apart(self) -> Resume:
        """The same, for rows that are shown for a moment and must not widen the columns."""
        columns = None if self.columns is None else Columns(self.columns.widths, self.columns.right)
        return replace(self, columns=columns)


FRESH = Resume()


@cache
def parser() -> MarkdownIt:
    """The one dialect of the chat: CommonMark with tables and bare links, HTML being text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("gfm-like", {"html": False}).disable(["reference"])


def parse(markdown: str) -> list[SyntaxTreeNode]:
    """The top-level blocks of a text that `safe_text.visible` went over."""
    from markdown_it.tree import SyntaxTreeNode

    return list(SyntaxTreeNode(parser().parse(markdown)).children)


def block_rows(
    nodes: Iterable[SyntaxTreeNode], resume: Resume = FRESH, *, after: bool = False
) -> list[Row]:
    """The rows of top-level blocks, with a gap before each but the first; `after` other rows, the
    first has a gap as well, unless it goes on with what stands before."""
    rows: list[Row] = []
    for number, node in enumerate(nodes):
        goes_on = number == 0 and node.map is not None and node.map[0] == 0
        block = list(_block(node, resume if goes_on else FRESH, 0))
        if block and (rows or after) and not (goes_on and resume.joined):
            rows.append(GAP)
        rows += block
    return rows


def _block(node: SyntaxTreeNode, resume: Resume, depth: int) -> Iterator[Row]:
    if node.type in ("bullet_list", "ordered_list"):
        yield from _list(node, resume, depth)
    elif node.type == "blockquote":
        yield from _prefixed(_children(node, resume, depth), QUOTE_BAR, QUOTE_BAR)
    elif node.type in ("fence", "code_block"):
        yield from code_rows(node.content.removesuffix("\n").split("\n"), language_of(node.info))
    elif node.type == "table":
        yield from _table(node, resume.columns)
    elif node.type == "hr":
        yield Row(body=Content(""), fill="─")
    elif node.type == "heading":
        style = HEADINGS.get(node.tag, _LESSER_HEADING)
        for row in _paragraph(node):
            yield replace(row, body=row.body.stylize(style))
    else:
        yield from _paragraph(node)


def _children(node: SyntaxTreeNode, resume: Resume, depth: int) -> Iterator[Row]:
    """The rows inside a container; what belongs to the stub is left out."""
    last = ""
    for child in node.children:
        start = 0 if child.map is None else child.map[0]
        if start < resume.stub_lines and child.type == "heading":
            continue
        # A list or code belongs to the paragraph that leads to it.
        if last and not (last == "paragraph" and child.type in _LED_TO):
            yield GAP
        yield from _block(child, resume, depth)
        last = child.type


def _list(node: SyntaxTreeNode, resume: Resume, depth: int) -> Iterator[Row]:
    ordered = node.type == "ordered_list"
    number = int(node.attrs.get("start", 1)) if ordered else 0
    if depth == 0 and resume.ordinal is not None:
        number = resume.ordinal
    for item in node.children:
        bullet = f"{number}. " if ordered else BULLETS[min(depth, len(BULLETS) - 1)] + " "
        number += 1
        space = " " * len(bullet)
        begun = item.map is not None and item.map[0] < resume.stub_lines
        rows = list(_children(item, resume, depth + 1))
        if not begun:
            rows = rows or [GAP]
        yield from _prefixed(rows, space if begun else bullet, space)


def _prefixed(rows: Iterable[Row], first: str, rest: str) -> Iterator[Row]:
    for row in rows:
        yield replace(row, first=first + row.first, rest=rest + row.rest)
        first = rest


def _paragraph(node: SyntaxTreeNode) -> Iterator[Row]:
    for child in node.children:
        for line in inline(child.children or []).split("\n", allow_blank=True):
            yield Row(body=line)


def language_of(info: str) -> str:
    """The language that an info string names; empty for none."""
    return info.split(maxsplit=1)[0].strip("{}.") if info.strip() else ""


def code_rows(lines: Sequence[str], language: str) -> list[Row]:
    """Lines of code, coloured if the language is known; all of them are read, so keep them few."""
    shown = [visible(line).expandtabs(TAB_CELLS) for line in lines]
    return [
        Row(body=body, fold=True, raw=None if body.plain == line else line)
        for body, line in zip(highlighting.styled(shown, language), lines, strict=True)
    ]


def _table(node: SyntaxTreeNode, columns: Columns | None) -> Iterator[Row]:
    goes_on = columns is not None
    columns = columns or Columns(
        right=[_is_right(cell) for cell in node.children[0].children[0].children]
    )
    for part in node.children:
        if part.type == "thead" and goes_on:
            continue
        for line in part.children:
            cells = tuple(inline(_inner(cell)) for cell in line.children)
            if part.type == "thead":
                cells = tuple(cell.stylize("bold") for cell in cells)
            columns.widen(cells)
            yield Row(body=Content(" │ ").join(cells), columns=columns, cells=cells)
        if part.type == "thead":
            yield Row(body=Content(""), fill="─", columns=columns)


def _is_right(cell: SyntaxTreeNode) -> bool:
    return "right" in str(cell.attrs.get("style", ""))


def _inner(cell: SyntaxTreeNode) -> list[SyntaxTreeNode]:
    return [grandchild for child in cell.children for grandchild in child.children or []]


def inline(nodes: Sequence[SyntaxTreeNode]) -> Content:
    """Emphasis, code spans and links as styled text, on one line but for hard breaks."""
    line = _Line()
    for node in nodes:
        line.add(node)
    return Content("".join(line.parts), line.spans)


class _Line:
    """Inline markdown on its way to styled text."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.spans: list[Span] = []
        self._length = 0

    def add(self, node: SyntaxTreeNode) -> None:
        """Append a node and what is in it."""
        start = self._length
        if node.type == "softbreak":
            self._write(" ")
        elif node.type == "hardbreak":
            self._write("\n")
        elif node.type == "code_inline":
            self._write(node.content)
            self.spans.append(Span(start, self._length, CODE_STYLE))
        elif node.type == "image":
            self._write(f"[image: {node.content}] ({node.attrs.get('src', '')})")
        elif node.type in _INLINE:
            self._add_styled(node)
        else:
            self._write(node.content.replace("\n", " "))

    def _add_styled(self, node: SyntaxTreeNode) -> None:
        start, first = self._length, len(self.parts)
        for child in node.children:
            self.add(child)
        if self._length > start:
            self.spans.append(Span(start, self._length, _INLINE[node.type]))
        if node.type == "link":
            shown = "".join(self.parts[first:])
            self._write(_target(str(node.attrs.get("href", "")), shown))

    def _write(self, text: str) -> None:
        self.parts.append(text)
        self._length += len(text)


def _target(href: str, shown: str) -> str:
    """Where a link leads, unless it is what the link says anyway."""
    plain = href.removeprefix("mailto:").removeprefix("http://").removeprefix("https://")
    return "" if shown and plain.rstrip("/") in (shown, shown.partition("://")[2]) else f" ({href})"
