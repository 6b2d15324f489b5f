"""Options of `bench`: what it times, against what, and how often or how fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

BENCH_REPEATS = 5
_PEERS = "Peers in the same run"
_INSTEAD = "Something else instead"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What is timed."""

    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only cases of this kind; may be given more than once."
        ),
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="All cases of each kind, not only the first two.")
    ] = False
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm", metavar="ROUTE", help="Time this route beside plain; auto if left out."
        ),
    ] = None
    arms: Annotated[
        str | None, typer.Option("--arms", metavar="all", help="Time every route there is.")
    ] = None
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each case and arm.")
    ] = BENCH_REPEATS
    floor: Annotated[
        bool,
        typer.Option(
            "--floor", help="Measure the memory's speed too, and how near plain decoding comes."
        ),
    ] = False
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write one line per round to FILE."),
    ] = None
    vs: Annotated[
        str | None,
        typer.Option(
            "--vs",
            metavar="hf",
            help="transformers' generate on the same weights, dense: plain, prompt lookup, early "
            "exit.",
            rich_help_panel=_PEERS,
        ),
    ] = None
    vs_url: Annotated[
        list[str] | None,
        typer.Option(
            "--vs-url",
            metavar="URL",
            help="A llama-server or an OpenAI-compatible server on this machine; may be given more "
            "than once.",
            rich_help_panel=_PEERS,
        ),
    ] = None
    humaneval: Annotated[
        int | None,
        typer.Option(
            "--humaneval",
            metavar="N",
            min=1,
            max=164,
            help="Solve the first N problems of HumanEval, plainly and with drafts, and run their "
            "tests.",
            rich_help_panel=_INSTEAD,
        ),
    ] = None
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="NAME",
            help="Time random weights of a model's size, such as qwen2.5-7b; no text comes of it.",
            rich_help_panel=_INSTEAD,
        ),
    ] = None
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="FILE",
            help="Sum up a file that --trace wrote.",
            rich_help_panel=_INSTEAD,
        ),
    ] = None
    keystrokes: Annotated[
        bool,
        typer.Option(
            "--keystrokes",
            help="Type recorded edits into the language server, beside the shared engine; --case "
            "then names an edit.",
            rich_help_panel=_INSTEAD,
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
            rich_help_panel=_INSTEAD,
        ),
    ] = 1.0
