"""How much of a text is still there: its edit distance to the nearest piece of another.

Pure; Myers' bit-parallel search, one step for each character of the other text. Texts are compared
without the spaces around their lines, so that what is only indented anew counts as kept.

Invariant: 1.0 for a text that is there as it was, 0.0 where nothing of it is.
"""

from __future__ import annotations

MOST_WANTED = 4_000
MOST_SEARCHED = 20_000
"""Characters beyond which texts are cut, to bound the time: some 10 ms."""


def share_kept(wanted: str, there: str) -> float:
    """How much of `wanted` is in `there`, from 0 to 1; an empty text is always there."""
    wanted, there = _bare(wanted)[:MOST_WANTED], _bare(there)[:MOST_SEARCHED]
    if wanted in there:
        return 1.0
    return 1.0 - nearest(wanted, there) / len(wanted)


def nearest(wanted: str, there: str) -> int:
    """Least number of insertions, deletions and substitutions that make `wanted` a piece of
    `there`; at most its length."""
    size = len(wanted)
    places: dict[str, int] = {}
    for at, letter in enumerate(wanted):
        places[letter] = places.get(letter, 0) | 1 << at
    whole, last = (1 << size) - 1, 1 << size - 1 if size else 0
    up, down = whole, 0
    distance = least = size
    for letter in there:
        match = places.get(letter, 0)
        same = match | down
        diagonal = (((match & up) + up) ^ up) | match
        grows = down | ~(diagonal | up) & whole
        shrinks = up & diagonal
        if grows & last:
            distance += 1
        elif shrinks & last:
            distance -= 1
        least = min(least, distance)
        grows, shrinks = grows << 1 & whole, shrinks << 1 & whole
        up = shrinks | ~(same | grows) & whole
        down = grows & same
    return least


def _bare(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.strip() for line in lines).strip("\n")
