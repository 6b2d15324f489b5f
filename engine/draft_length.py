"""Which route drafts the next round, and how many tokens: decided in measured milliseconds.

A draft of k tokens yields E(k) tokens per round on average (Leviathan et al. 2023, eq. 1, with an
acceptance of its own at each position) and costs k·c + r(k + 1) plain rounds. The best route and k
maximise their quotient. `plain` is always an arm: where no quotient reaches `MIN_GAIN` nothing is
drafted, and the reason says what was left. What can be learned without a pass is learned in every
round (`shadow.py`); a route that can only be learned of by drafting is probed, within a share of
the time. Plain numbers only; acceptance is counted over *tested* tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass

from engine.acceptance import LiveAcceptance, Outlook
from engine.config import DraftSettings
from engine.costs import BucketCosts, CostTable, bucket_of
from engine.protocol import Route

MIN_GAIN = 1.03
"""A route that rested has to promise so much speed ÷ plain; one in use only not to lose."""
MIN_K = 2
"""Shortest draft under the policy `window`."""
FIRST_K, GROWTH = 3, 4
"""Longest draft of a route none of whose drafts has held as a whole, and what one that has leads
to: a first try of 32 would cost four rounds."""
PROBE_SHARE = 0.01
"""No more than this share of an answer's time goes to trying what is not expected to pay."""
SURE_GAIN = 1.5
"""Above it, what plain rounds take need not be known exactly."""
STALE_ROUNDS = 96
"""Rounds without a plain one, after which one is due: ratios need something to compare with."""
WINDOW = 64
WINDOW_RAISE, WINDOW_LOWER = 0.85, 0.70
WINDOW_MAX_K = 8
LAST_TOKEN = "the last token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A route at its best k, and what is expected of it."""

    route: Route
    k: int
    tokens: float
    """Tokens of a round, on average."""
    ratio: float
    """Time of a round ÷ a plain round."""
    first: float = 0.0
    """Probability that the first drafted token is kept."""

    @property
    def gain(self) -> float:
        """Expected speed ÷ plain."""
        return self.tokens / self.ratio


PLAIN = Arm(route="plain", k=0, tokens=1.0, ratio=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the next round should do."""

    route: Route
    k: int
    reason: str
    gain: float = 1.0
    """Expected speed ÷ plain."""
    arm: Arm = PLAIN
    alternatives: tuple[Arm, ...] = ()
    """The other arms that were weighed, each at its best k."""
    probe: bool = False
    """Whether it was chosen to learn and not to win."""


Records = Mapping[tuple[Route, int], LiveAcceptance]
"""What one request knows of each route and class of evidence that was ever on offer."""


class DraftLength:
    """The controller of one request."""

    def __init__(
        self,
        settings: DraftSettings,
        costs: CostTable,
        *,
        pinned_k: int | None = None,
        shadowed: Set[Route] = frozenset(),
        nothing: str = "nothing to copy",
    ) -> None:
        """`shadowed` are the routes that are tested in every round and so need no probe, `nothing`
        the reason where no route offers a draft."""
        self._settings, self._costs = settings, costs
        self._pinned_k, self._shadowed, self._nothing = pinned_k, shadowed, nothing
        self._window: deque[bool] = deque(maxlen=WINDOW)
        self._window_k = 4
        self._in_use: set[Route] = set()
        """What drafts, until it is expected to lose."""
        self._proven: dict[Route, int] = {}
        """Longest draft to try: `GROWTH` times what held as a whole."""
        self._known: dict[tuple[Route, int], tuple[tuple[float, ...] | None, Arm]] = {}
        """What each arm was worked out from, and the arm."""
        self._waits: dict[Route, int] = {}
        """Tokens since each resting route drafted."""
        self._spent_ms = self._probed_ms = 0.0
        self._since_plain = 0

    def choose(
        self,
        offers: Mapping[Route, int],
        records: Records,
        *,
        context_tokens: int,
        longest: int,
    ) -> Choice:
        """The best of the routes that have something to draft.

        `offers` maps a route to its evidence class, of which `records` knows; `longest` bounds k
        (room in the cache, tokens still wanted).
        """
        if not offers or longest < 1:
            reason = self._nothing if longest >= 1 else LAST_TOKEN
            return Choice(route="plain", k=0, reason=reason)
        longest = min(longest, self._pinned_k or self._settings.max_k)
        costs = self._costs.nearest(bucket_of(context_tokens))
        arms = [
            self._arm(route, evidence, records, costs, longest)
            for route, evidence in offers.items()
        ]
        if self._pinned_k is not None:
            return _taken(arms[0], "k is pinned", arms)
        paying = [arm for arm in arms if self._pays(arm)]
        best = max(paying or arms, key=lambda arm: arm.gain)
        if paying:
            if self._plain_is_due(best, context_tokens):
                return _left("probe: what a plain round takes now", arms, probe=True)
            return _taken(best, f"{best.route}: α {best.first:.2f}, k {best.k}", arms)
        return self._probe(arms, context_tokens) or _left(_why_not(best, context_tokens), arms)

    def observe(
        self, choice: Choice, *, drafted: int, tested: int, accepted: int, round_ms: float
    ) -> None:
        """Take note of a round that was run as chosen; `drafted` is 0 for plain."""
        self._spent_ms += round_ms
        self._probed_ms += round_ms * choice.probe
        self._since_plain = self._since_plain + 1 if drafted else 0
        for route in self._waits:
            self._waits[route] += accepted + 1
        if drafted:
            self._waits[choice.route] = 0
        if drafted and accepted == drafted:
            known = self._proven.get(choice.route, FIRST_K)
            self._proven[choice.route] = max(known, GROWTH * drafted)
        if not choice.probe:
            if drafted:
                self._in_use.add(choice.route)
            else:
                self._in_use -= {arm.route for arm in choice.alternatives}
        self._window.extend(position < accepted for position in range(tested))
        if len(self._window) == WINDOW:
            self._step_window()

    def _arm(
        self, route: Route, evidence: int, records: Records, costs: BucketCosts, longest: int
    ) -> Arm:
        """The route at its best k; worked out again only where something it depends on changed."""
        exactly = self._pinned_k is not None or self._settings.policy == "window"
        if self._pinned_k is None:
            proven = self._proven.get(route, FIRST_K)
            longest = min(longest, self._window_k if exactly else proven)
        kin = {known: record for (of, known), record in records.items() if of == route}
        state = (
            longest,
            sum(record.changes for record in kin.values()),
            costs.draft_ratio(route, 1),
            costs.rest_ratio(route, 2),
        )
        known_state, arm = self._known.get((route, evidence), (None, PLAIN))
        if state != known_state:
            others = [record for known, record in kin.items() if known != evidence]
            outlook = kin[evidence].outlook(others)
            arm = best_arm(route, outlook, costs, longest, exactly=exactly)
            self._known[route, evidence] = state, arm
        return arm

    def _pays(self, arm: Arm) -> bool:
        if self._settings.policy == "window" and arm.k < MIN_K:
            return False
        return arm.gain >= (1.0 if arm.route in self._in_use else MIN_GAIN)

    def _plain_is_due(self, best: Arm, context_tokens: int) -> bool:
        due = self._since_plain >= STALE_ROUNDS and best.gain < SURE_GAIN
        return due and self._affords(1.0, context_tokens)

    def _probe(self, arms: list[Arm], context_tokens: int) -> Choice | None:
        """A round for the resting route that waited longest, if it could pay at all and the time
        already spent allows it."""
        if not self._affords(1.0, context_tokens):
            return None
        resting = [arm for arm in arms if arm.route not in self._shadowed]
        for arm in resting:
            self._waits.setdefault(arm.route, 0)
        resting.sort(key=lambda arm: -self._waits[arm.route])
        costs = self._costs.nearest(bucket_of(context_tokens))
        for arm in resting:
            short = best_arm(arm.route, Outlook(rates=(arm.first, 0.0, 0.0)), costs, 1)
            if 2 / short.ratio >= MIN_GAIN and self._affords(short.ratio, context_tokens):
                return _taken(short, "probe", arms, probe=True)
        return None

    def _affords(self, ratio: float, context_tokens: int) -> bool:
        takes = ratio * self._costs.unit_ms(context_tokens)
        return self._probed_ms + takes <= PROBE_SHARE * (self._spent_ms + takes)

    def _step_window(self) -> None:
        rate = sum(self._window) / WINDOW
        if rate > WINDOW_RAISE:
            self._window_k = min(self._window_k + 1, WINDOW_MAX_K)
            self._window.clear()
        elif rate < WINDOW_LOWER:
            self._window_k = max(self._window_k - 1, MIN_K)
            self._window.clear()


def best_arm(
    route: Route, outlook: Outlook, costs: BucketCosts, longest: int, *, exactly: bool = False
) -> Arm:
    """The route at the k of 1…`longest` that promises most (`exactly`: at `longest`). Where drafts
    stop by themselves, tokens and time are the means over where they do."""
    best = (0.0, 1, 1.0, 1.0)  # gain, k, tokens, ratio
    tokens, chain, later = 1.0, 1.0, min(outlook.rates[-1], 0.999)
    drawn, settled = 1.0, 0.0  # probability that k tokens are drawn; time of the shorter drafts
    ratio = 1.0
    for k in range(1, longest + 1):
        if k > 1:
            goes_on = outlook.goes_on(k - 1)
            if goes_on < 1:
                settled += drawn * (1 - goes_on) * ratio
                drawn *= goes_on
        chain *= outlook.kept(k - 1)
        tokens += drawn * chain
        ratio = costs.draft_ratio(route, k) + costs.rest_ratio(route, k + 1)
        takes = settled + drawn * ratio
        if tokens > best[0] * takes or exactly:
            best = (tokens / takes, k, tokens, takes)
        elif tokens + drawn * chain * later / (1 - later) < best[0] * takes:
            break  # longer ones are not cheaper, and all they could add is not enough
    _, k, tokens, ratio = best
    return Arm(route=route, k=k, tokens=tokens, ratio=ratio, first=outlook.rates[0])


def _taken(arm: Arm, reason: str, arms: list[Arm], *, probe: bool = False) -> Choice:
    others = tuple(other for other in arms if other.route != arm.route)
    return Choice(
        route=arm.route,
        k=arm.k,
        reason=reason,
        gain=arm.gain,
        arm=arm,
        alternatives=(*others, PLAIN),
        probe=probe,
    )


def _left(reason: str, arms: list[Arm], *, probe: bool = False) -> Choice:
    return Choice(route="plain", k=0, reason=reason, alternatives=tuple(arms), probe=probe)


def _why_not(best: Arm, context_tokens: int) -> str:
    """One clause for a person: which route was left, at which context, and what it would cost."""
    if best.gain >= MIN_GAIN:
        effect = f"pay with k {best.k} at best, below {MIN_K}"
    elif best.gain < 1:
        effect = f"would cost {100 * (1 / best.gain - 1):.0f} %"
    else:
        effect = f"would win only {100 * (best.gain - 1):.0f} %"
    size = f"{context_tokens / 1000:.1f}k" if context_tokens >= 1000 else str(context_tokens)
    return f"context {size}, {best.route} drafts {effect}"
