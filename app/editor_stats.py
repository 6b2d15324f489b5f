"""Reads what the editors' language servers have counted, as one summary.

The store and its queries are `lsp`'s, the summary is what `tui` shows; here they meet. Invariant:
reading makes no file and waits for no writer longer than a few seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.protocol import EngineError
from tui.editor_statistics import EditorStatistics, Kept, Latency, RouteCount

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from app.paths import Paths

DAY_S = 86_400


class StatisticsError(EngineError):
    """What was counted can't be read."""


def completions_file(paths: Paths) -> Path:
    """Where completions are counted."""
    return paths.data / "completions.sqlite"


def read_summary(path: Path, days: int | None = None) -> EditorStatistics:
    """All that was counted in the last `days`, or ever. Raises `StatisticsError`."""
    import sqlite3

    from lsp.learning_store import open_to_read

    try:
        store = open_to_read(path)
        if store is None:
            return EditorStatistics(days=days)
        try:
            return _summary(store, days)
        finally:
            store.close()
    except sqlite3.Error as error:
        raise StatisticsError(
            "statistics_unreadable",
            f"{path} could not be read: {error}",
            "If it stays so, delete the file; a new one is begun with the next completion.",
        ) from error


def _summary(store: sqlite3.Connection, days: int | None) -> EditorStatistics:
    from lsp import learning_figures as figures

    since = 0.0 if days is None else time.time() - days * DAY_S
    count, tokens = figures.cancels(store, since)
    return EditorStatistics(
        days=days,
        **figures.outcomes(store, since),  # type: ignore[arg-type]
        accepted_chars=figures.accepted_chars(store, since),
        kept=tuple(
            Kept(after_s=after, measured=measured, share=share)
            for after, (measured, share) in figures.kept(store, since).items()
        ),
        latency={
            name: Latency(answers=answers, p50_ms=p50, p90_ms=p90)
            for name, (answers, p50, p90) in figures.latencies(store, since).items()
        },
        empty=figures.empty_answers(store, since),
        cancelled=count,
        tokens_after_cancel=tokens,
        routes={
            route: RouteCount(rounds=rounds, drafted=drafted, tested=tested, accepted=accepted)
            for route, (rounds, drafted, tested, accepted) in figures.drafting(store, since).items()
        },
    )
