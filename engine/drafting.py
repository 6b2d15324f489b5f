"""How one answer drafts: its routes and controller, what the user pinned, what memory forbade.

Owns the change of course in mid-answer; the choice itself is `draft_length`'s. Invariant: whatever
changes here, only the number of passes changes, never the law of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.acceptance import Acceptance, LiveAcceptance, Prior
from engine.cache import KVCache
from engine.config import MAX_DRAFT_TOKENS, DraftSettings
from engine.costs import CostTable, Pairing
from engine.decode import Round, longest_draft, offers
from engine.draft.contract import Drafter, Guesser
from engine.draft.earlier import Earlier
from engine.draft.head_file import Head
from engine.draft.low_precision import Twin
from engine.draft.routes import NOTHING, drafters_for
from engine.draft_length import Choice, DraftLength
from engine.model import Model
from engine.profile import Profile
from engine.protocol import RequestError, Route, Steering
from engine.row import Row
from engine.shadow import SHADOW_TOKENS, Shadow, Shadows

Records = dict[tuple[Route, int], Acceptance]
"""What was learned of each route and class of evidence that was ever on offer."""
HOPE = Prior(rates=(0.9, 0.9, 0.9), worth=6.0)
"""A route that is asked for by name gets the chance to show its own figure first."""


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
    head: Head | None
    earlier: Earlier
    """What the session has said, to copy from."""
    twin: Twin
    settings: DraftSettings
    costs: CostTable
    profile: Profile | None
    """What a calibration found for this model."""
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
        fresh = drafters_for(
            steered.route,
            grounds.model,
            grounds.exit_layer,
            grounds.head,
            grounds.earlier,
            grounds.twin,
        )
        # A drafter that was in use already knows the text so far.
        self.drafters = {d.route: self.drafters.get(d.route, d) for d in fresh}
        self.lengths = DraftLength(
            grounds.settings,
            grounds.costs,
            pinned_k=steered.k,
            shadowed={d.route for d in fresh if isinstance(d, Guesser)},
            nothing=NOTHING.get(steered.route, "nothing to copy"),
        )
        self._steering = steered
        self._shared: Records = grounds.records if steered.route == "auto" else {}
        self._live: dict[tuple[Route, int], LiveAcceptance] = {}
        self._shadows = Shadows()
        self._pairing = Pairing(grounds.costs)
        self._given_up = ""
        self._offered: dict[Route, int] = {}

    def choose(self, row: Row, cache: KVCache) -> Choice:
        """What the next round should do, and why, in words for a person."""
        if self._given_up:
            return Choice(route="plain", k=0, reason=self._given_up)
        self._offered = offers(list(self.drafters.values()), row)
        for route, evidence in self._offered.items():
            self._know(route, evidence)
        choice = self.lengths.choose(
            self._offered,
            self._live,
            context_tokens=len(row.tokens),
            longest=longest_draft(cache, row),
        )
        self._cast_shadows(row, choice.route)
        return replace(choice, reason=self._explained(choice))

    def give_up(self, reason: str) -> Choice:
        """Decode plainly until the user steers; returns that choice."""
        self._given_up = reason
        return Choice(route="plain", k=0, reason=reason)

    def learn(self, choice: Choice, done: Round, row: Row, context_tokens: int) -> None:
        """Take in what a round showed that began at `context_tokens`."""
        self.lengths.observe(
            choice,
            drafted=done.drafted,
            tested=done.tested,
            accepted=done.accepted,
            round_ms=done.total_ms,
        )
        self._pairing.see(
            context_tokens,
            route=done.route,
            k=done.drafted,
            draft_ms=done.draft_ms,
            round_ms=done.total_ms,
        )
        if done.drafted:
            record = self._live[done.route, self._offered[done.route]]
            kept = done.accepted + done.ended_by_draft
            for position in range(done.tested + done.ended_by_draft):
                record.test(position, position < kept)
            record.end(done.drafted, choice.k)
        for test in self._shadows.tests(row.tokens):
            self._live[test.route, test.evidence].test(test.position, test.kept)

    def _know(self, route: Route, evidence: int) -> None:
        """Have a record of a class that is on offer."""
        key = route, evidence
        if key in self._live:
            return
        if key not in self._shared:
            drafter = self.drafters[route]
            prior = drafter.prior(evidence)
            if self._grounds.profile is not None:
                prior = self._grounds.profile.prior(route, evidence, prior)
            named = self._steering.route == route and not isinstance(drafter, Guesser)
            self._shared[key] = Acceptance(HOPE if named and prior.rates[0] < 0.5 else prior)
        self._live[key] = LiveAcceptance(self._shared[key])

    def _cast_shadows(self, row: Row, route: Route) -> None:
        """Note what the routes that are not chosen would say, where that takes no pass."""
        for other, evidence in self._offered.items():
            drafter = self.drafters[other]
            if other != route and isinstance(drafter, Guesser):
                guessed = drafter.guess(row, SHADOW_TOKENS)
                self._shadows.add(
                    Shadow(route=other, evidence=evidence, tokens=guessed, start=len(row.tokens))
                )

    def _explained(self, choice: Choice) -> str:
        route, k = self._steering.route, self._steering.k
        if route == "plain":
            return "pinned by the user"
        if k is not None and choice.k:
            return f"k {k} on {choice.route}, pinned by the user"
        return choice.reason if route == "auto" else f"{choice.reason} ({route} pinned by the user)"
