"""How the parts of the input share the screen, so that the line being written is always in sight.

Owns the numbers only; lines of text in, lines of text out. Knows no widget.

Invariant: the text area has at least one line, and all parts together take at most half the screen.
"""

from __future__ import annotations

from msgspec import Struct

MOST_LINES = 8
"""The text area grows up to this, and scrolls then."""
FRAME_LINES = 2
POPUP_LINES = 8
NOTICE_LINES = 3
FILE_LINES = 2
ROOMY_LINES = 12
"""With fewer lines for the input, the text area goes without its frame, and the popup in the place
of the other parts."""


class Shares(Struct, frozen=True, kw_only=True):
    """Lines that each part may take at most; 0 for what is not shown."""

    area: int
    """Its frame included, where it has one."""
    popup: int
    notice: int
    files: int
    has_frame: bool


def shares(screen_lines: int, *, popup_rows: int, notice: bool, files: bool) -> Shares:
    """Who gets how much, given what there is to show."""
    lines = max(2, screen_lines // 2)
    has_frame = lines >= ROOMY_LINES
    if popup_rows and not has_frame:
        notice = files = False
    least = 1 + (FRAME_LINES if has_frame else 0)
    notice_lines = min(NOTICE_LINES, lines - least) * notice
    file_lines = min(FILE_LINES, lines - least - notice_lines) * files
    rest = lines - notice_lines - file_lines
    popup_lines = min(POPUP_LINES, popup_rows, rest - least)
    return Shares(
        area=min(MOST_LINES + (FRAME_LINES if has_frame else 0), rest - popup_lines),
        popup=popup_lines,
        notice=notice_lines,
        files=file_lines,
        has_frame=has_frame,
    )
