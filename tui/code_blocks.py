"""The fenced code blocks of a markdown text, with their exact code and the file they speak of.

Owns where a block begins and ends, by CommonMark's rules (both fence characters, longer fences,
lists and quotes, a fence that is never closed). Knows no file system and no screen.

Invariant: the code is the text between the fences character for character, less the indentation
of the container it stands in: line ends, NULs and a missing last line end stay as they were.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from tui import path_hints

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_BLANK_LINES_BETWEEN = 2
"""How many empty lines may part a block from the line that names its file."""


class CodeBlock(Struct, frozen=True, kw_only=True):
    """One fenced block of an answer."""

    index: int
    """0-based, in the order of the text."""
    language: str
    """First word of the info string, or the suffix of the path it consists of; may be empty."""
    code: str
    info: str
    target: str | None
    """The path the block says it belongs to, as it was written; not checked."""
    line: int
    """1-based line of the opening fence."""
    closed: bool = True
    """False when the text ended before the closing fence: the code may be cut off."""


def code_blocks(markdown: str) -> tuple[CodeBlock, ...]:
    """Every fenced block of the text, in order."""
    lines = _LINES.findall(markdown)
    blocks: list[CodeBlock] = []
    for token in _parser().parse(markdown):
        if token.type != "fence" or token.map is None:
            continue
        start, end = token.map
        inner = _inner_lines(token.content)
        code = "".join(map(_exact, inner, lines[start + 1 :]))
        info = token.info.strip()
        language, target = path_hints.from_info(info)
        target = target or _named_before(lines[:start]) or path_hints.from_code(language, code)
        blocks.append(
            CodeBlock(
                index=len(blocks),
                language=language,
                code=code,
                info=info,
                target=target,
                line=start + 1,
                closed=end - start - 1 > len(inner),
            )
        )
    return tuple(blocks)


@cache
def _parser() -> MarkdownIt:
    """The block rules of the widget that shows the answer; what lines hold does not matter."""
    from markdown_it import MarkdownIt  # not before the first paint

    # What the transcript shows (`markdown_rows.parser`): neither HTML nor link definitions.
    rules = MarkdownIt("commonmark", {"html": False}).enable("table")
    return rules.disable(["inline", "reference"])


def _inner_lines(content: str) -> list[str]:
    """The parser's own lines, each with its line feed if it has one."""
    return [line for line in re.split(r"(?<=\n)", content) if line]


def _exact(parsed: str, source: str) -> str:
    """The part of a source line that the parser gave as `parsed`, as it stands in the source.

    The parser turns every line end into a line feed and NUL into a replacement character.
    """
    text = parsed.removesuffix("\n")
    body = source.rstrip("\r\n")
    ending = source[len(body) :]
    if body.replace("\0", "\ufffd").endswith(text):
        text = body[len(body) - len(text) :]
    return text + ending


def _named_before(lines: list[str]) -> str | None:
    for line in reversed(lines[-_BLANK_LINES_BETWEEN - 1 :]):
        if line.strip():
            return path_hints.from_line(line)
    return None
