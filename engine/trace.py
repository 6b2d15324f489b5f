"""What the arbiter decided, round by round, as one JSON line each, and the sum of such a file.

A line says what was chosen, what was expected of it, what came of it, why, and what else had been
weighed. Knows the choice and the round, nothing of who writes or reads. Invariant: a line stands
for one round that was run; the time of writing it is in no figure.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from engine.protocol import RequestError, Route

if TYPE_CHECKING:
    from engine.decode import Round
    from engine.draft_length import Choice

logger = logging.getLogger(__name__)

REASONS_SHOWN = 6
_LEAST_MS = 1e-3
"""A file that was written by hand may tell of rounds that took no time."""
_HINT = "Name a file that --trace wrote."


class Weighed(Struct, frozen=True, kw_only=True):
    """An arm that was not chosen, at its best k."""

    route: Route
    k: int
    expected_tokens: float
    expected_ms: float


class TraceLine(Struct, frozen=True, kw_only=True):
    """One round."""

    answer: str
    context_tokens: int
    route: Route
    k: int
    expected_tokens: float
    expected_ms: float
    drafted: int
    tested: int
    accepted: int
    tokens: int
    ms: float
    draft_ms: float
    verify_ms: float
    plain_ms: float
    """What a plain round was taken to cost then."""
    probe: bool
    reason: str
    alternatives: tuple[Weighed, ...]


class TraceFile:
    """Writes the lines of one run."""

    def __init__(self, path: Path) -> None:
        """Begins the file anew. Raises `RequestError` if that can't be done."""
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise RequestError(
                "trace_file",
                f"the trace '{path}' can't be written: {error.strerror}",
                "Name a file in a folder that exists.",
            ) from error
        self._path, self._broken = path, False
        self._encoder = msgspec.json.Encoder()

    def write(
        self, answer: str, choice: Choice, done: Round, *, context_tokens: int, plain_ms: float
    ) -> None:
        """Add one round that began at `context_tokens`; what is written survives a crash."""
        line = TraceLine(
            answer=answer,
            context_tokens=context_tokens,
            route=done.route,
            k=choice.k,
            expected_tokens=_short(choice.arm.tokens),
            expected_ms=_short(choice.arm.ratio * plain_ms),
            drafted=done.drafted,
            tested=done.tested,
            accepted=done.accepted,
            tokens=done.emitted,
            ms=_short(done.total_ms),
            draft_ms=_short(done.draft_ms),
            verify_ms=_short(done.verify_ms),
            plain_ms=_short(plain_ms),
            probe=choice.probe,
            reason=choice.reason,
            alternatives=tuple(
                Weighed(
                    route=arm.route,
                    k=arm.k,
                    expected_tokens=_short(arm.tokens),
                    expected_ms=_short(arm.ratio * plain_ms),
                )
                for arm in choice.alternatives
            ),
        )
        self._add(self._encoder.encode(line) + b"\n")

    def close(self) -> None:
        """Nothing is written after this."""
        self._file.close()

    def _add(self, line: bytes) -> None:
        """Where the disk is full the trace ends and the answer goes on."""
        if self._broken:
            return
        try:
            self._file.write(line)
        except OSError as error:
            self._broken = True
            logger.warning("the trace '%s' ends here: %s", self._path, error.strerror)


def read_trace(path: Path) -> list[TraceLine]:
    """The lines of a trace; one that its writer did not finish is left out, with a warning. Raises
    `RequestError` for a file that is no trace or holds no round."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        message = f"the trace '{path}' can't be read: {error.strerror}"
        raise RequestError("trace_file", message, _HINT) from error
    decoder = msgspec.json.Decoder(TraceLine)
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            if found and number == len(lines) and not line.endswith(b"\n"):
                logger.warning("the last line of '%s' is unfinished and left out", path)
                break
            message = f"line {number} of '{path}' is no round of a trace: {error}"
            raise RequestError("trace_file", message, _HINT) from error
    if not found:
        raise RequestError("trace_file", f"the trace '{path}' holds no round", _HINT)
    return found


class RouteSum(Struct, frozen=True, kw_only=True):
    """The rounds of one route."""

    route: Route
    rounds: int
    time_share: float
    k: float
    """Mean over the rounds, as are the next four."""
    expected_tokens: float
    tokens: float
    expected_ms: float
    ms: float
    tested: int
    accepted: int


class TraceSum(Struct, frozen=True, kw_only=True):
    """A whole trace."""

    answers: int
    rounds: int
    tokens: int
    ms: float
    times_plain: float
    """Against what plain rounds were taken to cost at the time."""
    probing_share: float
    """Of the time, rounds that were run to learn."""
    routes: tuple[RouteSum, ...]
    plain_reasons: tuple[tuple[str, int], ...]
    """Why nothing was drafted, and in how many rounds, the most frequent first."""


def sum_of(lines: Sequence[TraceLine]) -> TraceSum:
    """What at least one round comes to."""
    ms = max(_LEAST_MS, sum(line.ms for line in lines))
    reasons = Counter(line.reason for line in lines if not line.drafted)
    routes = Counter(line.route for line in lines)
    return TraceSum(
        answers=len({line.answer for line in lines}),
        rounds=len(lines),
        tokens=sum(line.tokens for line in lines),
        ms=ms,
        times_plain=sum(line.tokens * line.plain_ms for line in lines) / ms,
        probing_share=sum(line.ms for line in lines if line.probe) / ms,
        routes=tuple(
            _route_sum(route, [line for line in lines if line.route == route], ms)
            for route, _ in routes.most_common()
        ),
        plain_reasons=tuple(reasons.most_common(REASONS_SHOWN)),
    )


def summarise(path: Path) -> str:
    """The sum of a trace as a page to read. Raises `RequestError` as `read_trace` does."""
    return "\n".join(_page(sum_of(read_trace(path))))


def _page(total: TraceSum) -> Iterable[str]:
    yield (
        f"{total.rounds:,} rounds of {total.answers:,} answers: {total.tokens:,} tokens in "
        f"{total.ms / 1e3:.1f} s, {1e3 * total.tokens / total.ms:.1f} tok/s, "
        f"{total.times_plain:.2f} × plain"
    )
    yield f"probing took {100 * total.probing_share:.2f} % of the time"
    yield ""
    yield (
        f"{'route':<13} {'rounds':>7} {'time':>6} {'k':>5} {'tokens/round':>19} {'ms/round':>19}  α"
    )
    yield f"{'':<13} {'':>7} {'':>6} {'':>5} {'expected':>10} {'actual':>8} {'expected':>10} " + (
        f"{'actual':>8}"
    )
    for one in total.routes:
        rate = f"{one.accepted / one.tested:.2f}" if one.tested else "–"
        yield (
            f"{one.route:<13} {one.rounds:>7,} {100 * one.time_share:>4.0f} % {one.k:>5.1f} "
            f"{one.expected_tokens:>10.2f} {one.tokens:>8.2f} "
            f"{one.expected_ms:>10.1f} {one.ms:>8.1f}  {rate}"
        )
    if total.plain_reasons:
        yield ""
        yield "why nothing was drafted"
        for reason, rounds in total.plain_reasons:
            yield f"{rounds:>7,} × {reason}"


def _route_sum(route: Route, lines: Sequence[TraceLine], all_ms: float) -> RouteSum:
    count = len(lines)
    return RouteSum(
        route=route,
        rounds=count,
        time_share=sum(line.ms for line in lines) / all_ms,
        k=sum(line.k for line in lines) / count,
        expected_tokens=sum(line.expected_tokens for line in lines) / count,
        tokens=sum(line.tokens for line in lines) / count,
        expected_ms=sum(line.expected_ms for line in lines) / count,
        ms=sum(line.ms for line in lines) / count,
        tested=sum(line.tested for line in lines),
        accepted=sum(line.accepted for line in lines),
    )


def _short(value: float) -> float:
    return round(value, 3)
