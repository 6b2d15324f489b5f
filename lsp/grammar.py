"""Grammars: the parser of a language, loaded when it is first needed, and what to hand to it.

The only module that imports tree-sitter. A grammar that the machine lacks is told once, in the log,
and then treated as one that does not exist. Knows nothing of cursors or completions.

Invariant: what is handed to a parser is at most a few times the window, however large the file.
"""

from __future__ import annotations

import importlib
import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from lsp.languages import Language
from lsp.shape_scan import plain_newlines

if TYPE_CHECKING:
    from tree_sitter import Parser

_log = logging.getLogger(__name__)


BEFORE_CHARS = 24_000
AFTER_CHARS = 8_000

_TOP_LEVEL = re.compile(
    r"\n(?=@\w|(?:async )?def \w|class \w+ ?[(:{<]|(?:export|import|package|use|pub|impl) |"
    r"from [\w.]+ import|(?:async )?function\b|(?:const|let|var) \w+ ?[=:]|(?:type|enum) \w+ ?[={]|"
    r"interface \w+ ?[{<]|(?:public|static|struct|func|fn|namespace|module) \w|#include|"
    r"[A-Za-z_]\w* = |if __name__)"
)
"""Where a top-level thing begins, and not a line of a long string or comment."""


def parser_of(language: Language) -> Parser | None:
    """The parser of a language; None if there is no grammar for it."""
    return _parser(*language.grammar) if language.grammar else None


def window(before: str, after: str) -> tuple[str, str] | None:
    """The part of the texts that is parsed, cut where something at the left margin begins.

    None if nothing does for so long that a cut would tear apart what belongs together.
    """
    if len(before) > BEFORE_CHARS:
        start = len(before) - BEFORE_CHARS
        match = _TOP_LEVEL.search(before, start, len(before) - BEFORE_CHARS // 3)
        if match is None:
            starts = list(_TOP_LEVEL.finditer(before, max(0, start - BEFORE_CHARS), start))
            match = starts[-1] if starts else None
        if match is None and len(before) > 2 * BEFORE_CHARS:
            return None
        before = before[match.end() :] if match else before
    if len(after) > AFTER_CHARS:
        match = _TOP_LEVEL.search(after, AFTER_CHARS // 2, 4 * AFTER_CHARS)
        if match is None and len(after) > 4 * AFTER_CHARS:
            return None
        after = after[: match.start()] if match else after
    return plain_newlines(before), plain_newlines(after)


@lru_cache(maxsize=32)
def _parser(module: str, function: str) -> Parser | None:
    """A parser of a grammar; None if the machine lacks it. Told once, in the log."""
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = getattr(importlib.import_module(module), function)()
    except ImportError as error:
        _log.warning("No grammar from %s: %s. Indentation alone decides there.", module, error)
        return None
    parser: Parser = tree_sitter.Parser(tree_sitter.Language(grammar))
    return parser
