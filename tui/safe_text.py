"""Text from a model, a file or an exception, made safe to put on a screen.

Owns which characters a terminal would obey, hide or reorder, and what stands in their place. Knows
neither Textual nor markup: what it returns is still plain text, to be shown as such.

Invariant: the result has no control character but line feed and tab, nothing that changes the
direction of reading, nothing invisible; text without such characters comes back unchanged.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 but \t and \n
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, separators, direction
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"  # fillers, variation selectors, byte order mark
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # what no encoding may carry
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # layout of old scripts
    "\U000e0000-\U000e0fff"  # tags and the other variation selectors
    "]"
    # One presentation selector belongs to the emoji before it; a second one only hides something.
    "|(?<=[\ufe0e\ufe0f\\s])[\ufe0e\ufe0f]|^[\ufe0e\ufe0f]"
)

_NAMES = {
    0x85: "NEL",
    0xAD: "SHY",
    0x61C: "ALM",
    0x200B: "ZWSP",
    0x200C: "ZWNJ",
    0x200D: "ZWJ",
    0x200E: "LRM",
    0x200F: "RLM",
    0x2028: "LS",
    0x2029: "PS",
    0x202A: "LRE",
    0x202B: "RLE",
    0x202C: "PDF",
    0x202D: "LRO",
    0x202E: "RLO",
    0x2060: "WJ",
    0x2066: "LRI",
    0x2067: "RLI",
    0x2068: "FSI",
    0x2069: "PDI",
    0xFEFF: "BOM",
}
_CONTROL_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = 0x7F, "␡"
_SPACE = 0x20


def visible(text: str) -> str:
    """The text with controls as pictures (␛) and other unsafe characters as names (⟨RLO⟩).

    Line feed and tab are kept. One character stays one cell where there is a picture for it.
    """
    return _UNSAFE.sub(_stand_in, text)


def _stand_in(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < _SPACE:
        return chr(_CONTROL_PICTURES + code)
    if code == _DELETE:
        return _DELETE_PICTURE
    return f"⟨{_NAMES.get(code, f'U+{code:04X}')}⟩"
