"""Draft with the target's first and last layers and a trained jump between them.

One to a few layers in front give the token's own state, a fitted map takes it, together with the
exact state that the previous token had there, to the input of the last few layers, and these are
the stock ones: they read the exact keys and values of the whole text, and only the new token is a
guess. A quarter of the model then agrees with the whole of it on six tokens of ten, where a raw
exit at a quarter agrees on one of a hundred (measured on Qwen2.5-Coder-1.5B).

A step is bound by the bytes it reads, and nine tenths of a layer are its feed-forward block, so
drafts run these layers with the neurons that answers use most. A quarter of them, unlike a quarter
of the layers, loses little, and training the jump through what is left wins most of that back.

Needs the tapped state of the last token in the cache, so there is nothing to offer until a pass has
gone by the landing: the prompt's, now or when it was read for an earlier answer.
"""

from __future__ import annotations

from torch import Tensor

from engine.acceptance import Prior
from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.draft.head_file import Head
from engine.draft.path import DraftPath, Leg
from engine.model import Model
from engine.protocol import Route
from engine.row import Row

UNKNOWN = 0.5
"""Agreement of a head that was never measured."""
REQUESTS_VARY = 12.0
"""Tested tokens that the measured agreement is worth: between prose (0.39) and JSON (0.82) lies as
much as chance puts between runs of about so many."""


class ExitHeadDrafter:
    """Runs the layers below `first` and from `jump` on per drafted token."""

    route: Route = "exit_head"

    def __init__(self, model: Model, head: Head) -> None:
        about, layers = head.about, model.architecture.layers
        self._path = DraftPath(
            model=model,
            legs=(
                Leg(first=0, stop=about.first, model=head.front),
                Leg(first=about.jump, stop=layers, jump=head, model=head.tail),
            ),
            vocab=about.vocab,
            ids=None if head.ids is None else head.ids[: about.vocab],
            stop_below=about.stop_below,
        )
        self._agreement = about.agreement or (UNKNOWN,)
        self.reusable_layers = self._path.reusable_layers
        self.tap_layer: int | None = about.jump
        front, tail = (
            (part or model).architecture.feed_forward for part in (head.front, head.tail)
        )
        self.cost_key = (
            f"{about.first} layers with {front} neurons, all from {about.jump} on with {tail}, "
            f"{about.vocab} ids"
        )

    def evidence(self, row: Row) -> int | None:
        """One class, as soon as there is a state to start from."""
        return None if row.tapped is None else 0

    def prior(self, evidence: int) -> Prior:
        """What training measured on text it had not seen."""
        first, second, later = (*self._agreement, *self._agreement[-1:] * 2)[:3]
        return Prior(rates=(first, second, later), worth=REQUESTS_VARY)

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        """Up to k tokens, fewer where the draft doubts itself."""
        return self._path.draft(row, k, cache)

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        """What it needs to know stands in `row.tapped`."""
