"""Arms with known acceptance and known costs: what the controller makes of them, in plain rounds.

Nothing is decoded. Every text position draws once, per route, whether a guess for it would hold, so
that fixed arms, shadow tests and the controller all see the same text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.acceptance import Acceptance, LiveAcceptance, Prior
from engine.config import DraftSettings
from engine.costs import BucketCosts, CostTable
from engine.draft_length import Choice, DraftLength
from engine.protocol import Route

UNIT_MS = 20.0
CHEAP_ROWS = tuple(1 + 0.03 * rows if rows < 8 else 1.2 + 0.07 * (rows - 7) for rows in range(33))
"""r(w): some rows nearly free, as the kernels here have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedArm:
    """One route: how good its guesses are along the text, and what they cost."""

    rate: Callable[[int], float]
    """Text position → probability that a guess for it holds."""
    c: float = 0.0
    """One drafted token ÷ a plain round; 0: it drafts for nothing and can be shadowed."""
    prior: Prior
    rests: Sequence[float] = CHEAP_ROWS


def steady(rate: float) -> Callable[[int], float]:
    """The same all along."""
    return lambda position: rate


@dataclass(slots=True, kw_only=True)
class Played:
    """What a text took."""

    tokens: int = 0
    time: float = 0.0  # plain rounds
    probing: float = 0.0  # plain rounds
    choices: list[Choice] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.time


class Simulation:
    """A text and its arms."""

    def __init__(self, arms: Mapping[Route, SimulatedArm], *, tokens: int, seed: int = 0) -> None:
        random_ = random.Random(seed)
        self.arms, self.tokens = arms, tokens
        self._holds = {
            route: [random_.random() < arm.rate(at) for at in range(tokens + 64)]
            for route, arm in arms.items()
        }
        self.records: dict[tuple[Route, int], Acceptance] = {
            (route, 0): Acceptance(arm.prior) for route, arm in arms.items()
        }
        bucket = BucketCosts(
            unit_ms=UNIT_MS,
            passes=list(CHEAP_ROWS),
            drafts={route: [arm.c * k for k in range(1, 33)] for route, arm in arms.items()},
            rests={route: list(arm.rests) for route, arm in arms.items()},
        )
        self.costs = CostTable(buckets={0: bucket})

    def fixed(self, route: Route, k: int) -> float:
        """Speed ÷ plain of always drafting k tokens by one route."""
        at, time = 0, 0.0
        while at < self.tokens:
            at += self._accepted(route, k, at) + 1
            time += self.costs.round_ratio(0, route=route, k=k)
        return at / time

    def best_fixed(self) -> float:
        """The same of the best route and k, plain included."""
        return max(1.0, *(self.fixed(route, k) for route in self.arms for k in range(1, 25)))

    def play(self, *, max_k: int = 32) -> Played:
        """Let the controller decode the text."""
        free = {route for route, arm in self.arms.items() if not arm.c}
        lengths = DraftLength(DraftSettings(max_k=max_k), self.costs, shadowed=free)
        live = {key: LiveAcceptance(record) for key, record in self.records.items()}
        played = Played()
        while played.tokens < self.tokens:
            at = played.tokens
            choice = lengths.choose(
                dict.fromkeys(self.arms, 0),
                live,
                context_tokens=100,
                longest=self.tokens - at - 1,
            )
            accepted = self._accepted(choice.route, choice.k, at) if choice.k else 0
            tested = min(accepted + 1, choice.k)
            ratio = self.costs.round_ratio(0, route=choice.route, k=choice.k) if choice.k else 1.0
            lengths.observe(
                choice,
                drafted=choice.k,
                tested=tested,
                accepted=accepted,
                round_ms=ratio * UNIT_MS,
            )
            for position in range(tested):
                live[choice.route, 0].test(position, position < accepted)
            for route in free - {choice.route}:
                held = self._accepted(route, 4, at)
                seen = min(held + 1, 4, accepted + 1)
                for position in range(seen):
                    live[route, 0].test(position, position < held)
            played.tokens += accepted + 1
            played.time += ratio
            played.probing += ratio * choice.probe
            played.choices.append(choice)
            played.emitted.append(accepted + 1)
        return played

    def _accepted(self, route: Route, k: int, at: int) -> int:
        holds = self._holds[route][at : at + k]
        return holds.index(False) if False in holds else len(holds)
