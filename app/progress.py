"""Stages and bytes on stderr while a model is fetched, converted and read.

On a terminal one bar that goes away when the work is done; elsewhere one plain line when a stage
begins, so that a log stays readable. Knows no stage by name and never writes to stdout.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[str, int, int], None]
    """Called with the stage in words, bytes done and bytes in all; a total of 0 is unknown, a total
    of 1 belongs to a stage that has nothing to count."""


@contextmanager
def shown_on(err: TextIO) -> Iterator[Report]:
    """What to call with the state of the work; draws it on `err` until the context is left."""
    if not err.isatty():
        yield _lines_on(err)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=err), transient=True) as bar:
        yield _bar_on(bar)


def _bar_on(bar: Progress) -> Report:
    task = bar.add_task("", visible=False)
    stage_shown = ""

    def report(stage: str, done: int, total: int) -> None:
        nonlocal stage_shown
        if stage != stage_shown:
            stage_shown = stage
            # Speed and time left must not be reckoned over the stage before.
            bar.reset(task, description=stage, visible=True)
        bar.update(task, completed=done, total=total if total > 1 else None)

    return report


def _lines_on(err: TextIO) -> Report:
    stage_shown = ""

    def report(stage: str, _done: int, total: int) -> None:
        nonlocal stage_shown
        if stage != stage_shown:
            stage_shown = stage
            size = f" ({total / 2**20:,.1f} MiB)" if total > 1 else ""
            err.write(f"{stage}{size}\n")
            err.flush()

    return report
