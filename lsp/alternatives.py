"""Other ways to go on at a place, for a user who asked to see some.

Owns how many there are at most, how they are drawn and when enough time has gone into them.

Invariant: no two of them say the same, and the first is the one that came first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lsp.asking import Asked, Asker
from lsp.recent import Fill
from lsp.settings import EditorSettings

if TYPE_CHECKING:
    from lsp.document import Snapshot

MOST = 3
DRAWS = 4
"""Answers that are drawn at most to have so many that differ."""
TIME_S = 4.0
"""After that long no further one is begun."""


async def alternatives(
    asker: Asker,
    place: Snapshot,
    settings: EditorSettings,
    fills: tuple[Fill, ...],
    clock: Callable[[], float],
) -> tuple[Fill, ...]:
    """The fills, and more of them that were drawn with different seeds."""
    until = clock() + TIME_S
    for seed in range(1, DRAWS + 1):
        if len(fills) >= MOST or clock() > until:
            break
        asked = Asked()
        fill = await asker.ask(place, settings, asked, explicit=True, seed=seed)
        if asked.failed:
            break
        fills = distinct((*fills, *((fill,) if fill else ())))
    return fills[:MOST]


def distinct(fills: Sequence[Fill]) -> tuple[Fill, ...]:
    """The fills without those that say the same as an earlier one."""
    first: dict[str, Fill] = {}
    for fill in fills:
        first.setdefault(fill.text.strip(), fill)
    return tuple(first.values())
