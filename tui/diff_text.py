"""Unified diffs as text, written from two versions of a file and read again for a screen.

Owns the notation: headers, hunks, three lines around each change, the mark of a missing last line
end. Knows no file and no colour.

Invariant: rows carry the true line numbers of both versions, and every line of the diff but the
file headers is one row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import unified_diff
from typing import Literal

from msgspec import Struct

from tui.text_file import Line, common_start

_AROUND = 3
_OPEN_END = "\n\\ No newline at end of file"
_HUNK = re.compile(r"^@@ -(\d+)((?:,\d+)?) \+(\d+)((?:,\d+)?) @@")

Sign = Literal["+", "-", " ", "@", "\\"]


class DiffRow(Struct, frozen=True, kw_only=True):
    """One line of a diff."""

    sign: Sign
    text: str
    old: int | None = None
    """1-based line in the old version, where it has one."""
    new: int | None = None


def write(name: str, old: Sequence[Line] | None, new: Sequence[Line]) -> str:
    """The unified diff between two versions; `old` is None where the file is new."""
    before, after = _comparable(old or ()), _comparable(new)
    start = max(0, common_start(before, after) - _AROUND)
    behind = max(0, common_start(before[start:][::-1], after[start:][::-1]) - _AROUND)
    lines = unified_diff(
        before[start : len(before) - behind],
        after[start : len(after) - behind],
        "/dev/null" if old is None else f"a/{name}",
        f"b/{name}",
        n=_AROUND,
        lineterm="",
    )
    return "".join(_shifted(line, start) + "\n" for line in lines)


def rows(diff: str) -> list[DiffRow]:
    """The rows of a diff about one file, its two header lines left out."""
    found: list[DiffRow] = []
    old = new = 0
    for line in diff.split("\n")[2:]:
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            found.append(DiffRow(sign="@", text=line))
        elif line[:1] == "\\":
            found.append(DiffRow(sign="\\", text=line[2:]))
        elif line[:1] == "-":
            found.append(DiffRow(sign="-", text=line[1:], old=old))
            old += 1
        elif line[:1] == "+":
            found.append(DiffRow(sign="+", text=line[1:], new=new))
            new += 1
        elif line:
            found.append(DiffRow(sign=" ", text=line[1:], old=old, new=new))
            old, new = old + 1, new + 1
    return found


def _comparable(lines: Sequence[Line]) -> list[str]:
    """Texts alone, since an edit changes no line end but the last one's."""
    texts = [line.text for line in lines]
    if lines and not lines[-1].end:
        texts[-1] += _OPEN_END
    return texts


def _shifted(line: str, start: int) -> str:
    """A hunk's header with line numbers of the whole file instead of the compared part."""
    return _HUNK.sub(
        lambda hunk: f"@@ -{int(hunk[1]) + start}{hunk[2]} +{int(hunk[3]) + start}{hunk[4]} @@",
        line,
    )
