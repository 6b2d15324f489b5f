"""Indentation of an insertion: moved to where the cursor is, and written as the document writes it.

Works on the lines of an insertion whose end is known. Knows nothing of brackets or of what is
behind the cursor.

Invariant: an insertion that stands where it should and is indented as the document is comes back
unchanged.
"""

from __future__ import annotations

import re

from lsp.shape_place import Place
from lsp.shape_start import Start
from lsp.shape_style import TAB_WIDTH, depth

_LEADING = re.compile(r"[ \t]*")


def indented(body: str, place: Place, start: Start) -> str:
    """The insertion with every line where it belongs, in the document's own indentation."""
    lines = body.split("\n")
    blank_cursor = not place.line.strip()
    lines[1:] = _moved(lines[1:], start.shift)
    if blank_cursor and start.own_line:
        lines[0] = _joined(lines[0], place, start.shift)
    elif blank_cursor and start.over:
        lines = _less_indented(lines, place, start.over)
    if place.inside == "code":
        width = _text_width(lines, place)
        factor = _rescaling(lines, place)
        lines[1:] = [_restyled(line, place, width, factor) for line in lines[1:]]
        if blank_cursor and lines[0].strip():
            lines[0] = _restyled(lines[0], place, width, (1, 1))
    return "\n".join(lines)


def _moved(lines: list[str], columns: int) -> list[str]:
    return [" " * columns + line if line.strip() else line for line in lines] if columns else lines


def _joined(line: str, place: Place, shift: int) -> str:
    """A line written whole, less the indentation that stands before the cursor."""
    if line.startswith(place.line) and not shift:
        return line[len(place.line) :]
    extra = depth(line) + shift - len(place.line.expandtabs(TAB_WIDTH))
    return " " * max(0, extra) + line.lstrip(" \t")


def _less_indented(lines: list[str], place: Place, over: int) -> list[str]:
    """The first line moved left; the others too, if all of them stand as far right as it did."""
    first = " " * (depth(lines[0]) - over) + lines[0].lstrip(" \t")
    was = len(place.line.expandtabs(TAB_WIDTH)) + depth(lines[0])
    others = lines[1:]
    if all(depth(line) >= was for line in others if line.strip()):
        others = [" " * (depth(line) - over) + line.lstrip(" \t") for line in others]
    return [first, *others]


def _text_width(lines: list[str], place: Place) -> int:
    """How many spaces the model writes for one level, where the document has tabs."""
    if place.style.kind != "tabs":
        return TAB_WIDTH
    spaced = [line for line in lines[1:] if line.startswith(" ") and line.strip()]
    if not spaced:
        return TAB_WIDTH
    levels = len(_lead(place.header or place.line).expandtabs(TAB_WIDTH)) // TAB_WIDTH
    columns = depth(spaced[0])
    level = levels + (1 if place.opens else 0)
    if level and columns % level == 0 and columns // level in (2, 4, 8):
        return columns // level
    return TAB_WIDTH


def _rescaling(lines: list[str], place: Place) -> tuple[int, int]:
    """What to multiply and divide depths below the header by: the model's level and the
    document's, where a block was opened and its first line shows them to differ."""
    if place.style.kind != "spaces" or not place.opens or not place.line.strip():
        return 1, 1
    header, unit = depth(place.header), len(place.style.unit)
    below = [depth(line) - header for line in lines[1:] if line.strip()]
    if not below or below[0] <= 0 or below[0] not in (unit * 2, unit * 4, unit // 2, unit // 4):
        return 1, 1
    if below[0] in place.style.steps or any(columns % below[0] for columns in below):
        return 1, 1
    return unit, below[0]


def _restyled(line: str, place: Place, width: int, factor: tuple[int, int]) -> str:
    """A line with its indentation as the document has it."""
    lead = _lead(line)
    rest = line[len(lead) :]
    if not rest:
        return ""
    if place.style.kind == "tabs" and " " in lead:
        return _tabbed(lead, width) + rest
    if place.style.kind == "spaces" and "\t" in lead:
        lead = lead.replace("\t", place.style.unit)
    if place.style.kind == "spaces" and factor != (1, 1):
        header = depth(place.header)
        below = len(lead) - header
        if below > 0:
            lead = " " * (header + below * factor[0] // factor[1])
    return lead + rest


def _tabbed(lead: str, width: int) -> str:
    columns = len(lead.expandtabs(width))
    # A single column more is a comment's continuation, and a tab would not reach it.
    return "\t" * (columns // width) + " " * (columns % width)


def _lead(line: str) -> str:
    match = _LEADING.match(line)
    return match.group() if match else ""
