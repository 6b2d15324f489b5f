"""Draft by copying: what followed when the last tokens were said before (prompt lookup, Saxena
2023), in the prompt, in the answer so far or in the session's earlier answers.

Two ways to a continuation. An answer that returns a text with changes keeps its *place* in that
text (`aligned`): right behind a change the copy goes on, changes made before are made again. All
else goes by the longest match of the last tokens (`ngrams`). The draft is deterministic, so q is 1
at each token. Example: after `a b c d a b` the match `a b` was followed by `c d`; k = 3 drafts
`c d a`, since a copy that reaches the end of the text goes on into itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from engine.acceptance import Prior
from engine.cache import KVCache
from engine.draft.aligned import Place
from engine.draft.changes import Changes
from engine.draft.contract import Draft
from engine.draft.earlier import Earlier
from engine.draft.ngrams import NgramIndex
from engine.protocol import Route
from engine.row import Row

MATCH_FROM: Final = (1, 2, 3, 4, 6, 10, 20)
"""Lengths of a match at which a class of evidence begins."""
RUN_FROM: Final = (0, 1, 4, 12)
"""The same for the tokens followed since a change."""
KNOWN: Final = len(MATCH_FROM) + len(RUN_FROM)
SEEN, GUESS = KNOWN + 1, KNOWN + 2
RATES: Final = (
    (0.2, 0.4, 0.65),
    (0.55, 0.7, 0.7),
    (0.55, 0.7, 0.75),
    (0.8, 0.7, 0.8),
    (0.88, 0.85, 0.9),
    (0.93, 0.93, 0.97),
    (0.98, 0.98, 0.99),
    (0.8, 0.95, 0.97),
    (0.8, 0.85, 0.96),
    (0.95, 0.97, 0.97),
    (0.97, 0.98, 0.98),
    (0.75, 0.9, 0.9),
    (0.4, 0.55, 0.8),
    (0.5, 0.8, 0.92),
)
"""Acceptance of the 1st, the 2nd and later tokens by class, until it is known: as measured on
greedy answers of Qwen2.5-Coder 0.5B and 1.5B (edits, fills, chat, prose, JSON; 6,000 tokens)."""
KEPT_FROM = 2
"""Tokens a place must have followed to be kept for the next round,"""
TRUSTED = 6
"""and through a change."""
FIRM = 16
"""A place that followed so many tokens takes the part of the one that was kept."""

Match = tuple[Sequence[int], int, int]
"""A source, the position behind the match, its length."""


class CopyDrafter:
    """Proposes the continuation with the best record among the places the text was said before."""

    route: Route = "copy"
    cost_key = ""
    reusable_layers = 0
    tap_layer: int | None = None

    def __init__(self, device: torch.device, earlier: Earlier | None = None) -> None:
        """`earlier` holds what the session said in other answers."""
        self._device = device
        self._earlier = earlier
        self._index = NgramIndex([])
        self._changes = Changes()
        self._place: Place | None = None
        self._chosen: Place | None = None

    def evidence(self, row: Row) -> int | None:
        """The class of the continuation found: by the length of the match, or by how surely the
        place in a changed text is known; None when the last token is new."""
        self._take_in(row.tokens)
        for found, evidence in self._candidates(self._longest_match()):
            if found.ahead(1):
                self._chosen = found
                return evidence
        return None

    def prior(self, evidence: int) -> Prior:
        """The longer the match the better; requests differ so much that it soon yields."""
        return Prior(rates=RATES[evidence], worth=3.0)

    def guess(self, row: Row, k: int) -> list[int]:
        """Up to k tokens that followed there; fewer where the source ends."""
        assert self._chosen is not None, "asked for evidence first"
        return self._chosen.ahead(k)

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """The same as a draft."""
        tokens = torch.tensor(self.guess(row, k), device=self._device)
        return Draft(tokens=tokens, probs=None, hidden=None)

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        """The text itself is all that copying learns from."""

    def _take_in(self, text: list[int]) -> None:
        if self._index.text is not text:
            self._index = NgramIndex(text)
            self._place = self._chosen = None
        places = {id(place): place for place in (self._place, self._chosen) if place is not None}
        for place in places.values():
            own = place.source is text
            for at in range(len(self._index), len(text)):
                place.follow(text[at], at if own else len(place.source))
        self._index.catch_up()
        self._settle()

    def _settle(self) -> None:
        """Keep to the place that has earned it: the last one chosen where there is no other."""
        place, chosen = self._place, self._chosen
        if place is not None and not _is_kept(place):
            place = None
        enough = KEPT_FROM if place is None else FIRM
        if chosen is not None and chosen.total >= enough and _is_kept(chosen):
            place = chosen
        self._place = place

    def _longest_match(self) -> Match | None:
        text = self._index.text
        own = self._index.own_suffix()
        best = None if own is None else (text, own[1], own[0])
        other = None if self._earlier is None else self._earlier.find(text)
        if other is not None and (best is None or other[2] > best[2]):
            return other
        return best

    def _candidates(self, match: Match | None) -> Iterator[tuple[Place, int]]:
        """Continuations, the likeliest first."""
        place, length = self._place, 0 if match is None else match[2]
        if place is not None:
            if place.standing == "known":
                yield place, KNOWN
            elif place.standing == "along" and length <= _worth(place):
                yield place, _along_class(place)
            elif place.standing == "seen" and length <= 2:
                yield place, SEEN
            elif place.standing == "guess" and length <= 1:
                yield place, GUESS
        if match is not None:
            found = Place(match[0], match[1], self._changes, agreed=length)
            yield found, _class(length, MATCH_FROM)


def _is_kept(place: Place) -> bool:
    return place.standing == "along" or (place.total >= TRUSTED and not place.gone)


def _worth(place: Place) -> int:
    """The length of a match that is as good as a place which goes along."""
    return max(2 * place.run + 4, min(place.total, FIRM))


def _along_class(place: Place) -> int:
    if place.changed:
        return len(MATCH_FROM) + _class(place.run, RUN_FROM)
    return _class(place.run, MATCH_FROM)


def _class(length: int, starts: Sequence[int]) -> int:
    return sum(length >= start for start in starts) - 1
