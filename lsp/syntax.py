"""What a grammar says: where the cursor stands, and whether a completion would break the code.

Parses a window of the document around the cursor, cut where top-level things begin, and parses
again only what an insertion changes. A language without a grammar, or one whose grammar the machine
lacks, is answered with "don't know". Knows nothing of models.

Invariant: a completion is said to break the syntax only if no way to go on from it leaves as few
errors as the best way to go on without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from lsp.grammar import parser_of, window
from lsp.languages import Language, language_of
from lsp.shape_scan import CLOSERS, Lexed, plain_newlines, scan

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

_WORD = "cursor_"
"""Stands for what is not written yet."""
_CODE_IN_STRING = ("interpolation", "template_substitution", "expansion", "command_substitution")
_BLOCK = re.compile(
    r"(?:^|_)(?:block|body|body_statement|compound_statement|declaration_list|do_group|then)$"
)
_CLOSER_OF = {opener: closer for closer, opener in CLOSERS.items()}


class Spot(Struct, frozen=True, kw_only=True):
    """What the grammar says of the cursor."""

    inside: Literal["code", "string", "comment"]
    empty: bool | None = None
    """Whether it stands in a block that has no statement yet; None if in no block."""
    header: str = ""
    """The lines that open that block."""
    unsure: bool = False
    """The code around the cursor does not parse."""


def spot_at(language: Language, before: str, after: str) -> Spot | None:
    """What the cursor between two texts is in; None without a grammar that knows.

    The texts have `\\n` line ends; `before` ends at the cursor.
    """
    parser = None if language.name == "json" else parser_of(language)
    near = window(before, after)
    if parser is None or near is None:
        return None
    before, after = near
    gap = _gap(before, after, language)
    statement = _WORD + _rest_of_statement(before + gap, after, language)
    source = (before + gap + statement + after).encode()
    cursor = len(before.encode())
    tree = parser.parse(source)
    start = cursor + len(gap)
    leaf = tree.root_node.descendant_for_byte_range(start, start + len(_WORD))
    if leaf is None:
        return None
    opener = tree.root_node.descendant_for_byte_range(cursor - 1, cursor) if gap else None
    inside = _inside(opener if opener is not None and "\n" in gap else leaf)
    if inside != "code":
        return Spot(inside=inside)
    unsure = any(node.is_error for node in _ancestors(leaf))
    block = next((node for node in _ancestors(leaf) if _BLOCK.search(node.type)), None)
    if block is None or block.parent is None:
        return Spot(inside="code", unsure=unsure)
    own = next((node for node in block.named_children if _holds(node, start)), None)
    if own is not None and own.start_byte < start:
        # The cursor is inside a statement that began above: in its brackets, not in the block.
        return Spot(inside="code", unsure=unsure)
    empty = not any(_is_statement(node, start) for node in block.named_children)
    if block.has_error and not empty:
        # What follows may have been drawn into the block by the error.
        return Spot(inside="code", unsure=unsure)
    return Spot(inside="code", empty=empty, header=_header(block, source, language), unsure=unsure)


def breaks_syntax(language: str, before: str, insertion: str, after: str) -> bool:
    """Whether code that was right, or could still become so, no longer can with the insertion.

    Only for languages whose grammar is known to judge well; False for all others.
    """
    row = language_of(language)
    parser = parser_of(row) if row.gated and insertion.strip() else None
    near = window(before, after)
    if parser is None or near is None or scan(near[0], row).comment:
        return False
    insertion = plain_newlines(insertion)
    gate = _Gate(parser, row, *near)
    found = gate.fewest_errors(insertion)
    return found > 0 and found > gate.fewest_errors("")


class _Gate:
    """Counts errors for texts put in one place, parsing again only what they change."""

    def __init__(self, parser: Parser, language: Language, before: str, after: str) -> None:
        self._parser, self._language = parser, language
        self._after = after
        self._head, self._rest = before.encode(), after.encode()
        above, _, self._line = before.rpartition("\n")
        self._above = scan(above, language)
        self._tree: Tree | None = None
        self._parsed = (b"", b"")

    def fewest_errors(self, insertion: str) -> int:
        """Errors of the text with the insertion and the best of a few ways to go on from it."""
        fewest = self._errors(insertion)
        for more in self._ways_on(insertion):
            if not fewest:
                break
            fewest = min(fewest, self._errors(insertion + more, self._ending(insertion + more)))
        return fewest

    def _ways_on(self, insertion: str) -> Iterator[str]:
        """What an unfinished line or block may still be waiting for."""
        line = self._line + insertion
        start = Lexed() if self._above.comment else Lexed(quote=self._above.quote)
        state = scan("\n" + line, self._language, start)
        close = state.quote.strip("\n") + _closing(state)
        words = ["", _WORD, f" {_WORD}"] if line[-1:].isalnum() else ["", _WORD]
        for word in words:
            for end in self._ends(line, close):
                yield word + end
        yield f"{_WORD}: {_WORD}{close}"

    def _ends(self, line: str, close: str) -> list[str]:
        """Ways to end what is open on a line: closed, and with the body that a header wants."""
        if self._language.blocks != "colon":
            return ["", close, f"{close} {{}}", f": {_WORD}{close}"]
        last = line.rpartition("\n")[2]
        indent = last[: len(last) - len(last.lstrip())]
        body = f"\n{indent}    {_WORD}"
        if last.lstrip().startswith("@"):
            return ["", f"{close}\n{indent}def {_WORD}():{body}"]
        return ["", close, f"{close}{body}", f"{close}:{body}"]

    def _ending(self, insertion: str) -> str:
        """Closes, behind everything, what is open there: a file written from top to bottom."""
        state = scan("\n" + self._line + insertion + self._after, self._language, self._above)
        return "" if state.quote else "\n" + _closing(state)

    def _errors(self, insertion: str, ending: str = "") -> int:
        text, end = insertion.encode(), ending.encode()
        source = self._head + text + self._rest + end
        if self._tree is None:
            self._tree = self._parser.parse(source)
        else:
            self._edit(self._tree, text, end)
            self._tree = self._parser.parse(source, self._tree)
        self._parsed = text, end
        return _count_errors(self._tree.root_node)

    def _edit(self, tree: Tree, text: bytes, end: bytes) -> None:
        """Tell the tree that insertion and ending have become others, the later one first."""
        old_text, old_end = self._parsed
        _replace(tree, self._head + old_text + self._rest, old_end, end)
        _replace(tree, self._head, old_text, text)


def _closing(state: Lexed) -> str:
    return "".join(_CLOSER_OF[opener] for opener in reversed(state.stack))


def _replace(tree: Tree, head: bytes, old: bytes, new: bytes) -> None:
    tree.edit(
        start_byte=len(head),
        old_end_byte=len(head) + len(old),
        new_end_byte=len(head) + len(new),
        start_point=_point(head),
        old_end_point=_point(head + old),
        new_end_point=_point(head + new),
    )


def _point(text: bytes) -> tuple[int, int]:
    """Row and column, in bytes, of a text's end."""
    return text.count(b"\n"), len(text) - text.rfind(b"\n") - 1


def _count_errors(root: Node) -> int:
    """ERROR and MISSING nodes, looked for only where there are some."""
    found, waiting = 0, [root]
    while waiting:
        node = waiting.pop()
        if node.is_missing or node.is_error:
            found += 1
        elif node.has_error:
            waiting.extend(node.children)
    return found


def _gap(before: str, after: str, language: Language) -> str:
    """What to put between the cursor and a word so that the word stands in the block, if one opens:
    a line of its own behind a header, the indentation that a blank line still lacks."""
    above, _, line = before.rpartition("\n")
    if line.rstrip().endswith((":", "{")) and not after.partition("\n")[0].strip():
        return "\n" + line[: len(line) - len(line.lstrip())] + "    "
    if language.blocks != "colon" or line.strip():
        return ""
    previous = above.rstrip().rpartition("\n")[2]
    indent = previous[: len(previous) - len(previous.lstrip())]
    return indent[len(line) :] if indent.startswith(line) else ""


def _rest_of_statement(before: str, after: str, language: Language) -> str:
    """What makes a statement of a word, where one may stand."""
    if language.blocks != "brace" or after.partition("\n")[0].strip():
        return ""
    alone = not before.rpartition("\n")[2].strip()
    return "();" if alone and language.name == "csharp" else ";"


def _header(block: Node, source: bytes, language: Language) -> str:
    """The lines from the start of what has the block to where the block opens."""
    owner = block.parent or block
    last = block.prev_sibling if language.blocks == "colon" else None
    end = last.end_byte if last is not None else block.start_byte + 1
    line_end = source.find(b"\n", end)
    line_start = source.rfind(b"\n", 0, owner.start_byte) + 1
    return source[line_start : line_end if line_end >= 0 else None].decode()


def _inside(leaf: Node) -> Literal["code", "string", "comment"]:
    for node in _ancestors(leaf):
        if node.type in _CODE_IN_STRING:
            return "code"
        if "comment" in node.type:
            return "comment"
        if "string" in node.type or node.type in ("char_literal", "heredoc_body", "quoted_value"):
            return "string"
    return "code"


def _ancestors(node: Node) -> Iterator[Node]:
    found: Node | None = node
    while found is not None:
        yield found
        found = found.parent


def _holds(node: Node, cursor: int) -> bool:
    return node.start_byte <= cursor < node.end_byte


def _is_statement(node: Node, cursor: int) -> bool:
    """Whether a child of a block is more than a comment, a docstring or the cursor's own place."""
    if "comment" in node.type or _holds(node, cursor):
        return False
    return not (
        node.type == "expression_statement"
        and node.named_child_count == 1
        and node.named_children[0].type == "string"
    )
