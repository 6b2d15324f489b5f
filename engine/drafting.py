"""How one answer drafts: its routes and controller, what the user pinned, what memory forbade.

Owns the change of course in mid-answer; the choice itself is `draft_length`'s. Invariant: whatever
changes here, only the number of passes changes, never the law of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.cache import KVCache
from engine.config import MAX_DRAFT_TOKENS, DraftSettings
from engine.costs import CostTable
from engine.decode import Round, longest_draft, offers
from engine.draft.contract import Drafter
from engine.draft.routes import drafters_for, new_records
from engine.draft_length import Acceptance, Choice, DraftLength
from engine.model import Model
from engine.protocol import RequestError, Route, Steering
from engine.row import Row

Records = Mapping[tuple[Route, int], Acceptance]


def check_steering(steering: Steering) -> Steering:
    """Return `steering` unchanged, or raise `RequestError` when its k is out of range."""
    if steering.k is not None and not 1 <= steering.k <= MAX_DRAFT_TOKENS:
        raise RequestError(
            "bad_setting",
            f"k is {steering.k}, outside its range",
            f"Choose a value from 1 to {MAX_DRAFT_TOKENS}, or route plain to draft nothing.",
        )
    return steering


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What the drafting of every answer starts from."""

    model: Model
    exit_layer: int
    settings: DraftSettings
    costs: CostTable
    records: Records
    """Acceptance under `auto`, shared by all answers."""


class Drafting:
    """The drafting of one answer."""

    def __init__(self, grounds: Grounds, steering: Steering) -> None:
        """Raises `RequestError` for a k or an exit layer out of range."""
        self._grounds = grounds
        self.drafters: dict[Route, Drafter] = {}
        self.steer(steering)

    def steer(self, steering: Steering) -> None:
        """Draft like this from the next round on. Raises `RequestError`."""
        steered, grounds = check_steering(steering), self._grounds
        fresh = drafters_for(steered.route, grounds.model, grounds.exit_layer)
        # A drafter that was in use already knows the text so far.
        self.drafters = {d.route: self.drafters.get(d.route, d) for d in fresh}
        records = grounds.records if steered.route == "auto" else new_records(steered.route)
        self.lengths = DraftLength(grounds.settings, grounds.costs, records, pinned_k=steered.k)
        self._steering = steered
        self._given_up = ""
        self._offered: dict[Route, int] = {}

    def choose(self, row: Row, cache: KVCache) -> Choice:
        """What the next round should do, and why, in words for a person."""
        if self._given_up:
            return Choice(route="plain", k=0, reason=self._given_up)
        self._offered = offers(list(self.drafters.values()), row)
        choice = self.lengths.choose(
            self._offered, context_tokens=len(row.tokens), longest=longest_draft(cache, row)
        )
        return Choice(
            route=choice.route, k=choice.k, gain=choice.gain, reason=self._explained(choice)
        )

    def give_up(self, reason: str) -> Choice:
        """Decode plainly until the user steers; returns that choice."""
        self._given_up = reason
        return Choice(route="plain", k=0, reason=reason)

    def learn(self, done: Round, context_tokens: int) -> None:
        """Take in what a round showed."""
        costs, evidence = self._grounds.costs, self._offered.get(done.route, 0)
        self.lengths.observe(done.route, evidence, tested=done.tested, accepted=done.accepted)
        if not done.drafted:
            costs.observe_plain(context_tokens, done.total_ms)
            return
        costs.observe_draft(
            context_tokens,
            k=done.drafted,
            draft_ms=done.draft_ms,
            rest_ms=done.total_ms - done.draft_ms,
            by_layers=self.drafters[done.route].reusable_layers > 0,
        )

    def _explained(self, choice: Choice) -> str:
        route, k = self._steering.route, self._steering.k
        if route == "plain":
            return "pinned by the user"
        if k is not None and choice.k:
            return f"k {k} on {choice.route}, pinned by the user"
        return choice.reason if route == "auto" else f"{choice.reason} ({route} pinned by the user)"
