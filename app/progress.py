"""How long work goes, on stderr: stages and bytes of a model that is fetched, converted and read,
stages and the share of their time of what measures or trains one.

On a terminal one bar that goes away when the work is done; elsewhere plain lines, one when a stage
begins, so that a log stays readable. Knows no stage by name and never writes to stdout.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[str, int, int], None]
    """Called with the stage in words, bytes done and bytes in all; a total of 0 is unknown, a total
    of 1 belongs to a stage that has nothing to count."""

LINE_S = 10.0
"""A timed stage that goes on gets a new line this often where there is no terminal."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Who hears of work that has a time to keep."""

    stage: Callable[[str, float, str], None]
    """The stage in words, the share of the time that is spent, a note."""
    result: Callable[[str], None]
    """A line that stays."""


@contextmanager
def stages_on(err: TextIO) -> Iterator[Stages]:
    """Draws what it is told on `err` until the context is left."""
    if not err.isatty():
        yield _timed_lines_on(err)
        return
    # The note may be long, and the bar must not push the time off the line.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(30), TimeElapsedColumn())
    console = Console(file=err, highlight=False, markup=False)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def stage(name: str, share: float, note: str) -> None:
            text = f"{name}  {note}".rstrip()
            bar.update(task, description=text, completed=min(1.0, share))

        yield Stages(stage=stage, result=console.print)


def _timed_lines_on(err: TextIO) -> Stages:
    last = ("", 0.0)

    def line(text: str) -> None:
        err.write(f"{text}\n")
        err.flush()

    def stage(name: str, share: float, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if name != last[0] or now - last[1] >= LINE_S:
            last = name, now
            line(f"{min(1.0, share):4.0%}  {name}  {note}".rstrip())

    return Stages(stage=stage, result=lambda text: line(f"      {text}"))
