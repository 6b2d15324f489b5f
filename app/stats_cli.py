"""The command `stats`: how completions in editors have done on this machine.

What was counted is read by `editor_stats` and worded by `tui.editor_statistics`; here it is only
printed. Invariant: it starts no engine and writes nothing.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from app.editor_stats import completions_file, read_summary
from app.options import AsJson
from app.paths import user_paths
from tui.editor_statistics import EditorStatistics, rows


def stats_command(
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", min=1, help="Only the last N days.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how completions in editors have done: accepted, kept, how fast, how much from memory.

    They are counted on this machine only, numbers without code, for 90 days.
    """
    counted = read_summary(completions_file(user_paths()), days)
    if as_json:
        typer.echo(msgspec.json.encode(with_shares(counted)).decode())
        return
    since = "so far" if days is None else "today" if days == 1 else f"in the last {days} days"
    if counted.is_empty:
        typer.echo(f"No completion has been asked for {since}.")
        return
    typer.echo(f"Completions in editors {since}")
    for label, text in rows(counted):
        typer.echo(f"  {label:<12}{text}")


def with_shares(counted: EditorStatistics) -> dict[str, object]:
    """The sums, and the shares that are made from them."""
    return {
        **msgspec.structs.asdict(counted),
        "seen": counted.seen,
        "acceptance": counted.acceptance,
        "from_memory": counted.from_memory,
        "alpha": counted.alpha,
    }
