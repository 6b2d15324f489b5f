"""Code in colour: lines of a language as styled text, a few at once or a long text bit by bit.

Owns the choice of the lexer and the cutting of its tokens into lines. Never guesses a language:
code without one stays plain, as guessing reads all of the code again at each change. Knows no
widget; the lexers are imported when the first code is shown.

Invariant: the text of the lines is what was given; only styles are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from textual.content import Content, Span

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]


@lru_cache(maxsize=32)
def lexer_for(language: str) -> Lexer | None:
    """The lexer of a language by its usual names; None for no or an unknown one."""
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=True)
    except ClassNotFound:
        return None


def styled(lines: Sequence[str], language: str) -> list[Content]:
    """All the lines in colour. The lines hold neither line ends nor carriage returns."""
    return list(styled_lines(lines, language))


def styled_lines(lines: Sequence[str], language: str) -> Iterator[Content]:
    """The lines in colour, each as soon as the lexer is through with it.

    A lexer that loses its way leaves the remaining lines plain.
    """
    lexer = lexer_for(language)
    given = 0
    if lexer is not None:
        for text, spans in _lexed(lexer, "\n".join(lines)):
            if given == len(lines) or text != lines[given]:
                break
            given += 1
            yield Content(text, spans)
    for line in lines[given:]:
        yield Content(line)


def _lexed(lexer: Lexer, code: str) -> Iterator[tuple[str, list[Span]]]:
    parts: list[str] = []
    spans: list[Span] = []
    at = 0
    for kind, token in lexer.get_tokens(code):
        style = _style_of(kind)
        for number, part in enumerate(token.split("\n")):
            if number:
                yield "".join(parts), spans
                parts, spans, at = [], [], 0
            if part:
                parts.append(part)
                if style:
                    spans.append(Span(at, at + len(part), style))
                at += len(part)


@lru_cache(maxsize=256)
def _style_of(kind: Any) -> str:
    """The style of a token's kind, or of the nearest more general one that has a style."""
    from textual.highlight import HighlightTheme

    while kind is not None:
        if style := HighlightTheme.STYLES.get(kind):
            return style
        kind = kind.parent
    return ""
