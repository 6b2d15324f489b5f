"""Sums over what `learning_store` has counted, for whoever shows them.

Owns the queries. Each is over the rows since a time in seconds since 1970. It words nothing.

Invariant: it only reads; a percentile is a time that was really measured.
"""

from __future__ import annotations

import sqlite3

from engine.protocol import Route
from lsp.learning import LATER_S

Sums = dict[Route, tuple[int, int, int, int]]


def outcomes(store: sqlite3.Connection, since: float) -> dict[str, int]:
    """How many suggestions ended in each way."""
    found = store.execute(
        "SELECT outcome, count(*) FROM suggestions WHERE at >= ? GROUP BY outcome", (since,)
    )
    return dict(found.fetchall())


def accepted_chars(store: sqlite3.Connection, since: float) -> int:
    """Characters that nobody had to type."""
    (found,) = store.execute(
        "SELECT total(accepted_chars) FROM suggestions WHERE at >= ?", (since,)
    ).fetchone()
    return int(found)


def kept(store: sqlite3.Connection, since: float) -> dict[int, tuple[int, float | None]]:
    """Seconds → of how many accepted suggestions it is known, and the mean share kept."""
    columns = ", ".join(f"count(kept_{after}), avg(kept_{after})" for after in LATER_S)
    row = store.execute(f"SELECT {columns} FROM suggestions WHERE at >= ?", (since,)).fetchone()
    return {after: (row[2 * at], row[2 * at + 1]) for at, after in enumerate(LATER_S)}


def latencies(store: sqlite3.Connection, since: float) -> dict[str, tuple[int, float, float]]:
    """Source → answers, p50 and p90 in milliseconds; first of all sources together, as `all`."""
    found: dict[str, tuple[int, float, float]] = {}
    for name in ("all", "model", "memory", "prefetch"):
        which = "source IS NOT NULL" if name == "all" else f"source = '{name}'"
        times = store.execute(
            f"SELECT latency_ms FROM answers WHERE at >= ? AND {which} ORDER BY latency_ms",
            (since,),
        ).fetchall()
        if times:
            p50, p90 = (times[(len(times) - 1) * part // 10][0] for part in (5, 9))
            found[name] = (len(times), p50, p90)
    return found


def empty_answers(store: sqlite3.Connection, since: float) -> int:
    """Wishes that were answered with nothing."""
    (found,) = store.execute(
        "SELECT count(*) FROM answers WHERE at >= ? AND source IS NULL", (since,)
    ).fetchone()
    return int(found)


def cancels(store: sqlite3.Connection, since: float) -> tuple[int, int]:
    """Cancelled requests, and the tokens computed after that."""
    count, tokens = store.execute(
        "SELECT count(*), total(tokens_after) FROM cancels WHERE at >= ?", (since,)
    ).fetchone()
    return int(count), int(tokens)


def drafting(store: sqlite3.Connection, since: float) -> Sums:
    """Route → rounds, drafted, tested, accepted; the route with most rounds first."""
    found = store.execute(
        "SELECT route, sum(rounds), sum(drafted), sum(tested), sum(accepted) FROM decoded "
        "WHERE at >= ? GROUP BY route ORDER BY sum(rounds) DESC, route",
        (since,),
    )
    return {
        route: (rounds, drafted, tested, accepted)
        for route, rounds, drafted, tested, accepted in found.fetchall()
    }
