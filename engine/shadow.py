"""What a drafter that needs no pass would have said, compared with the text that came.

Every round of any route tells for nothing whether the other routes' guesses would have been kept,
so that a route that rests is known as well as one that drafts. Under sampling this is exact too: a
guess is kept with the probability that the model's law gives it, and that is how often the drawn
token equals it. Token ids only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.protocol import Route

SHADOW_TOKENS = 4
"""A guess is followed so far: the first, the second and later positions all get tests."""


@dataclass(slots=True, kw_only=True)
class Shadow:
    """One guess, followed until it is wrong or at its end."""

    route: Route
    evidence: int
    tokens: Sequence[int]
    start: int
    """Index in the row's tokens that its first token stands for."""
    held: int = 0
    """How many of them came true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowTest:
    """One guessed token that can now be judged, all before it having come true."""

    route: Route
    evidence: int
    position: int
    kept: bool


class Shadows:
    """The guesses of one answer that are still open."""

    def __init__(self) -> None:
        self._open: list[Shadow] = []

    def add(self, shadow: Shadow) -> None:
        """Follow a guess about the text from here on."""
        self._open.append(shadow)

    def tests(self, tokens: Sequence[int]) -> Iterator[ShadowTest]:
        """Judge what the row's `tokens` have come to say; closes what is wrong or over."""
        still: list[Shadow] = []
        for shadow in self._open:
            kept = True
            while kept and shadow.held < len(shadow.tokens):
                at = shadow.start + shadow.held
                if at >= len(tokens):
                    still.append(shadow)
                    break
                kept = shadow.tokens[shadow.held] == tokens[at]
                yield ShadowTest(
                    route=shadow.route, evidence=shadow.evidence, position=shadow.held, kept=kept
                )
                shadow.held += 1
        self._open = still
