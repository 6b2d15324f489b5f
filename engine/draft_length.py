"""Which route drafts the next round, and how many tokens: decided in measured milliseconds.

A draft of k tokens yields E(k) tokens per round on average (Leviathan et al. 2023, eq. 1, with the
first position's acceptance apart: from the second on, a draft that was right once is right more
often) and costs k·c + r(k + 1) plain rounds. The best k maximises their quotient. `plain` is always
an arm: a route whose best quotient stays below `MIN_GAIN` rests, says why, and is probed again.

Plain numbers only; acceptance is counted over *tested* tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from engine.config import DraftSettings
from engine.costs import CostTable
from engine.protocol import Route

MIN_GAIN = 1.03
MIN_K = 2
PROBE_TOKENS = 256
"""A resting route is tried for one round after so many tokens."""
DECAY = 1 - 1 / 64
"""Each tested token weighs this much less than the next: a memory of about 64 tests."""
WINDOW = 64
WINDOW_RAISE, WINDOW_LOWER = 0.85, 0.70
WINDOW_MAX_K = 8
PRIOR_TESTS = 6.0
"""How many tested tokens the starting guess is worth."""
LAST_TOKEN = "the last token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the next round should do."""

    route: Route
    k: int
    reason: str
    gain: float = 1.0
    """Expected speed ÷ plain."""


class Acceptance:
    """Decayed counts of tested and accepted tokens: the first of a draft, and all later ones."""

    def __init__(self, first: float, later: float) -> None:
        self._guess = (first, later)
        self._tested = [PRIOR_TESTS, PRIOR_TESTS]
        self._accepted = [first * PRIOR_TESTS, later * PRIOR_TESTS]
        self.tried = False
        """Whether any draft was tested, so that the figures are more than a guess."""

    def for_request(self) -> Acceptance:
        """A record for one request: it starts between the first guess and what this one has
        learned, so that a text unlike the last ones is found out within a few rounds."""
        first, later = self._guess
        mine = Acceptance((first + self.first) / 2, (later + self.later) / 2)
        mine.tried = self.tried
        return mine

    @property
    def first(self) -> float:
        """Probability that the first drafted token is kept."""
        return self._accepted[0] / self._tested[0]

    @property
    def later(self) -> float:
        """Probability that a token is kept when the one before it was."""
        return self._accepted[1] / self._tested[1]

    def expected_tokens(self, k: int) -> float:
        """E(k): tokens per round, the recovered or bonus token included."""
        later = self.later
        chain = k if later > 1 - 1e-9 else (1 - later**k) / (1 - later)
        return 1 + self.first * chain

    def observe(self, tested: int, accepted: int) -> None:
        """Count one round: of `tested` tokens the first `accepted` were kept."""
        self.tried = self.tried or tested > 0
        for position in range(tested):
            at = min(position, 1)
            self._tested[at] = self._tested[at] * DECAY + 1
            self._accepted[at] = self._accepted[at] * DECAY + (position < accepted)


class DraftLength:
    """The controller of one request."""

    def __init__(
        self,
        settings: DraftSettings,
        costs: CostTable,
        records: Mapping[tuple[Route, int], Acceptance],
        *,
        pinned_k: int | None = None,
    ) -> None:
        """`records` hold the acceptance per route and kind of evidence; they may be shared between
        requests, so that a new one starts from what the last ones learned. None at all means that
        nothing is to be drafted."""
        self._settings, self._costs, self._shared = settings, costs, records
        self._records = {key: record.for_request() for key, record in records.items()}
        self._pinned_k = pinned_k
        self._window: deque[bool] = deque(maxlen=WINDOW)
        self._window_k = 4
        self._since_probe: dict[Route, int] = {}

    def choose(self, offers: Mapping[Route, int], *, context_tokens: int, longest: int) -> Choice:
        """The best of the routes that have something to draft.

        `offers` maps a route to its evidence class; `longest` bounds k (room in the cache, tokens
        still wanted).
        """
        if not offers or longest < 1:
            return Choice(route="plain", k=0, reason=self._nothing(longest))
        if self._pinned_k is not None:
            route = next(iter(offers))
            return Choice(route=route, k=min(self._pinned_k, longest), reason="k is pinned")
        choices = [
            self._best(route, evidence, context_tokens, longest)
            for route, evidence in offers.items()
        ]
        best = max(choices, key=lambda choice: choice.gain)
        if best.gain >= MIN_GAIN and best.k >= MIN_K:
            return best
        return self._probe(choices, offers, longest) or Choice(
            route="plain", k=0, reason=_why_not(best, context_tokens)
        )

    def observe(self, route: Route, evidence: int, *, tested: int, accepted: int) -> None:
        """Learn from a round; `tested` is 0 for plain."""
        for resting in self._since_probe:
            self._since_probe[resting] += accepted + 1
        if not tested:
            return
        self._since_probe[route] = 0
        for records in (self._records, self._shared):
            records[route, evidence].observe(tested, accepted)
        self._window.extend(position < accepted for position in range(tested))
        if len(self._window) == WINDOW:
            self._step_window()

    def _best(self, route: Route, evidence: int, context_tokens: int, longest: int) -> Choice:
        record = self._records[route, evidence]
        by_layers = route == "layer_skip"

        def gain(k: int) -> float:
            ratio = self._costs.round_ratio(context_tokens, k=k, drafted_by_layers=by_layers)
            return record.expected_tokens(k) / ratio

        if self._settings.policy == "window":
            k = min(self._window_k, longest)
        else:
            k = max(range(1, min(self._settings.max_k, longest) + 1), key=gain)
        return Choice(
            route=route, k=k, gain=gain(k), reason=f"{route}: α {record.first:.2f}, k {k}"
        )

    def _probe(
        self, resting: list[Choice], offers: Mapping[Route, int], longest: int
    ) -> Choice | None:
        """A round for a route that rests: at once if it was never tried, so that what is said of
        it was measured, and then every few hundred tokens."""
        for choice in resting:
            tried = self._records[choice.route, offers[choice.route]].tried
            start = PROBE_TOKENS // 2 if tried else PROBE_TOKENS
            waited = self._since_probe.setdefault(choice.route, start)
            if waited >= PROBE_TOKENS:
                self._since_probe[choice.route] = 0
                k = min(MIN_K, longest)
                return Choice(route=choice.route, k=k, gain=choice.gain, reason="probe")
        return None

    def _step_window(self) -> None:
        rate = sum(self._window) / WINDOW
        if rate > WINDOW_RAISE:
            self._window_k = min(self._window_k + 1, WINDOW_MAX_K)
            self._window.clear()
        elif rate < WINDOW_LOWER:
            self._window_k = max(self._window_k - 1, MIN_K)
            self._window.clear()

    def _nothing(self, longest: int) -> str:
        if not self._records:
            return "plain decoding was asked for"
        return "nothing to copy" if longest >= 1 else LAST_TOKEN


def _why_not(best: Choice, context_tokens: int) -> str:
    """One clause for a person: which route was left, at which context, and what it would cost."""
    if best.gain >= MIN_GAIN:
        effect = f"pay with k {best.k} at best, below {MIN_K}"
    elif best.gain < 1:
        effect = f"would cost {100 * (1 / best.gain - 1):.0f} %"
    else:
        effect = f"would win only {100 * (best.gain - 1):.0f} %"
    size = f"{context_tokens / 1000:.1f}k" if context_tokens >= 1000 else str(context_tokens)
    return f"context {size}, {best.route} drafts {effect}"
