"""Options of `bench`: what it times, and how often or how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from app.measure import BENCH_REPEATS


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What is timed."""

    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each case and route.")
    ] = BENCH_REPEATS
    keystrokes: Annotated[
        bool,
        typer.Option(
            "--keystrokes",
            help="Type recorded edits into the language server instead, beside the shared engine; "
            "--case then names an edit.",
        ),
    ] = False
    speed: Annotated[
        float,
        typer.Option(
            "--speed",
            metavar="X",
            min=0.1,
            max=50.0,
            help="Type X times as fast as people do.",
        ),
    ] = 1.0
