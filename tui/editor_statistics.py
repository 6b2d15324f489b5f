"""What has been counted of completions in editors, and how it is worded.

Owns the struct that whoever reads the counts fills, and the rows that the details panel and
`sspec-assist stats` both show. It knows no store, no editor and no widget.

Invariant: every share is told with what it is a share of; what was not measured is `–`.
"""

from __future__ import annotations

from msgspec import Struct

from engine.protocol import Route
from tui import gauges

_SHORT: dict[Route, str] = {"layer_skip": "skip", "exit_head": "head", "low_precision": "low"}
"""Routes whose names are too long for a label."""


class Latency(Struct, frozen=True, kw_only=True):
    """Times from a wish to its answer."""

    answers: int
    p50_ms: float
    p90_ms: float


class Kept(Struct, frozen=True, kw_only=True):
    """How much of what was accepted was still there some time later."""

    after_s: int
    measured: int
    """Accepted suggestions whose document was open for so long."""
    share: float | None
    """Mean share of their characters."""


class RouteCount(Struct, frozen=True, kw_only=True):
    """Drafting by one route; α = accepted ÷ tested."""

    rounds: int
    drafted: int
    tested: int
    accepted: int


class EditorStatistics(Struct, frozen=True, kw_only=True):
    """Sums over all editors of this user."""

    days: int | None = None
    """How far back; None for all there is."""
    accepted: int = 0
    partial: int = 0
    """Accepted in part, by words or lines."""
    typed: int = 0
    """Typed out by hand, to the last character."""
    rejected: int = 0
    unseen: int = 0
    """Gone before anyone can have read them."""
    accepted_chars: int = 0
    kept: tuple[Kept, ...] = ()
    latency: dict[str, Latency] = {}
    """By where the answer came from (`model`, `memory`, `prefetch`), and `all` of these."""
    empty: int = 0
    """Wishes that were answered with nothing."""
    cancelled: int = 0
    tokens_after_cancel: int = 0
    routes: dict[Route, RouteCount] = {}

    @property
    def seen(self) -> int:
        """Suggestions that someone can have read."""
        return self.accepted + self.partial + self.typed + self.rejected

    @property
    def acceptance(self) -> float | None:
        """Accepted, as a whole or in part, ÷ seen."""
        return (self.accepted + self.partial) / self.seen if self.seen else None

    @property
    def answers(self) -> int:
        """Answers with something in them."""
        return self.latency["all"].answers if "all" in self.latency else 0

    @property
    def from_memory(self) -> float | None:
        """Share of those that needed no model: typed through, or computed ahead."""
        ready = sum(
            one.answers for name, one in self.latency.items() if name in ("memory", "prefetch")
        )
        return ready / self.answers if self.answers else None

    @property
    def alpha(self) -> float | None:
        """α over all routes, accepted ÷ tested."""
        tested = sum(one.tested for one in self.routes.values())
        accepted = sum(one.accepted for one in self.routes.values())
        return accepted / tested if tested else None

    @property
    def is_empty(self) -> bool:
        """Nothing was counted at all."""
        return not (self.seen or self.unseen or self.answers or self.empty or self.cancelled)


def rows(counted: EditorStatistics) -> list[tuple[str, str]]:
    """Labels, of ten letters at most, and what stands beside them."""
    answers = _counted(counted.answers, "answer")
    memory = f"{gauges.percent(counted.from_memory)} of {answers}"
    return [
        ("accepted", _accepted(counted)),
        ("kept", _kept(counted.kept)),
        ("memory", f"{memory} needed no model"),
        *_latencies(counted.latency),
        ("cancelled", _cancelled(counted)),
        ("drafting", _drafting(counted)),
        *_routes(counted.routes),
    ]


def _accepted(counted: EditorStatistics) -> str:
    parts = [f"{gauges.percent(counted.acceptance)} of {counted.seen:,} seen"]
    for count, word in (
        (counted.accepted, "whole"),
        (counted.partial, "in part"),
        (counted.typed, "typed out by hand"),
        (counted.unseen, "gone unread"),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    return ", ".join(parts)


def _kept(kept: tuple[Kept, ...]) -> str:
    measured = [one for one in kept if one.measured]
    if not measured:
        return gauges.UNKNOWN
    told = (
        f"{gauges.percent(one.share)} after {_time(one.after_s)} ({one.measured:,})"
        for one in measured
    )
    return ", ".join(told)


def _time(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _latencies(latency: dict[str, Latency]) -> list[tuple[str, str]]:
    told = [
        (
            "latency" if name == "all" else f"  {name}",
            f"p50 {gauges.duration(one.p50_ms)}, p90 {gauges.duration(one.p90_ms)}"
            + ("" if name == "all" else f", {_counted(one.answers, 'answer')}"),
        )
        for name, one in latency.items()
    ]
    return told or [("latency", gauges.UNKNOWN)]


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _cancelled(counted: EditorStatistics) -> str:
    each = counted.tokens_after_cancel / counted.cancelled if counted.cancelled else None
    return (
        f"{counted.cancelled:,}, {counted.tokens_after_cancel:,} tokens computed after, "
        f"{gauges.decimal(each, 2)} each"
    )


def _drafting(counted: EditorStatistics) -> str:
    tested = sum(one.tested for one in counted.routes.values())
    return f"α {gauges.decimal(counted.alpha, 2)} of {tested:,} tested"


def _routes(routes: dict[Route, RouteCount]) -> list[tuple[str, str]]:
    told = []
    for route, one in routes.items():
        alpha = f"α {gauges.decimal(one.accepted / one.tested, 2)}, " if one.tested else ""
        told.append((f"  {_SHORT.get(route, route)}", f"{alpha}{_counted(one.rounds, 'round')}"))
    return told
