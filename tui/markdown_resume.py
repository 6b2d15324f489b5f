"""How reading a growing markdown text goes on after its settled part.

Owns the two questions that need the tree of blocks: which blocks at the front are over, and what a
later reading has to be told of the containers that the front leaves open. Pure.

Invariant: reading the rest with what `Resume` tells gives the blocks that reading everything at
once would have given there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tui.markdown_rows import FRESH, Resume

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

_MARKERS = re.compile(r"(?:[ \t]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]{1,4}|$))+")
_TABLE_HEAD_LINES = 2


def settled_before(
    nodes: list[SyntaxTreeNode], text: str, resume: Resume
) -> tuple[int, list[SyntaxTreeNode], Resume]:
    """The line that the last open unit begins at, less the stub's; the blocks before it; and how
    to read on from there. A line of 0 or less says that nothing is over."""
    last = nodes[-1]
    known = resume if last is nodes[0] else FRESH
    if last.type in ("bullet_list", "ordered_list") and len(last.children) > 1:
        *over, unit = last.children
        ordinal = known.ordinal
        if last.type == "ordered_list":
            ordinal = int(last.attrs.get("start", 1)) if ordinal is None else ordinal
            ordinal += len(over)
        last.children = over
        return _line(unit) - resume.stub_lines, nodes, Resume(ordinal=ordinal, joined=True)
    if last.type == "table" and len(last.children) > 1 and len(last.children[1].children) > 1:
        *over, unit = last.children[1].children
        last.children[1].children = over
        head = text.split("\n")[_line(last) : _line(last) + _TABLE_HEAD_LINES]
        onward = Resume(stub="\n".join(head) + "\n", columns=known.columns, joined=True)
        return _line(unit) - resume.stub_lines, nodes, onward
    return _line(last) - resume.stub_lines, nodes[:-1], FRESH


def goes_on_after(nodes: list[SyntaxTreeNode], text: str, resume: Resume) -> Resume:
    """How to read on when the last block is cut before its end."""
    last = nodes[-1]
    if last.type == "table":
        return Resume(stub=resume.stub, columns=resume.columns, joined=True)
    if last.type not in ("bullet_list", "ordered_list"):
        return Resume(joined=True)
    ordinal = resume.ordinal if last is nodes[0] else None
    if last.type == "ordered_list" and ordinal is None:
        ordinal = int(last.attrs.get("start", 1))
    lines = text.split("\n")
    stub: dict[int, str] = {}
    node = last
    while node.children and node.type in ("bullet_list", "ordered_list", "list_item"):
        node = node.children[-1]
        if node.type == "list_item":
            markers = _MARKERS.match(lines[_line(node)])
            marked = markers[0] if markers else "-"
            stub[_line(node)] = marked + ("#" if marked[-1] in " \t" else " #")
        elif node.type == "fence" and _is_open(node):
            stub[_line(node)] = lines[_line(node)]
    return Resume(
        stub="".join(line + "\n" for _, line in sorted(stub.items())), ordinal=ordinal, joined=True
    )


def _is_open(fence: SyntaxTreeNode) -> bool:
    start, end = fence.map or (0, 0)
    return end - start - 1 <= fence.content.count("\n")


def _line(node: SyntaxTreeNode) -> int:
    return node.map[0] if node.map is not None else 0
