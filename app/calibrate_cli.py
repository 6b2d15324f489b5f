"""The command `calibrate`: which way of drafting pays for one's own requests, here.

Brings a model into this process, hands it with the requests to `engine.calibration`, shows the
table, the picture of predicted against measured and the verdict, and keeps the profile that the
next start uses. Invariant: stopped before the end it changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from app import logs
from app.calibrate_report import lines_of
from app.offline import load_model
from app.options import AsJson, ModelOptions, given, with_groups
from app.settings import user_settings
from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.loading import Loaded
    from engine.profile import Profile
    from engine.train.answers import Question

MINUTES = 10.0
REQUESTS = 200
CONTEXT_TOKENS = 6144
"""Enough to time passes at 4,096 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """What is asked, and for how long."""

    repo: Annotated[
        Path | None,
        typer.Option(
            "--repo",
            metavar="DIR",
            help="Ask fills and edits cut from this folder's code, besides the built-in prompts.",
        ),
    ] = None
    requests: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            metavar="FILE",
            help="Ask these instead: one a line, plain text or JSON with prompt, messages, or "
            "prefix and suffix.",
        ),
    ] = None
    requests_count: Annotated[
        int,
        typer.Option("--requests-count", metavar="N", min=1, max=5000, help="How many at most."),
    ] = REQUESTS
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes", metavar="MIN", min=0.05, max=600, help="How long it may take, about."
        ),
    ] = MINUTES


@with_groups
def calibrate_command(
    *, what: CalibrateOptions, as_json: AsJson = False, model: ModelOptions
) -> None:
    """Measure which way of drafting pays for your requests on this machine, and use it.

    The model answers the requests; every early exit and jump is judged on the answers and timed;
    the most promising ones decode for real beside their prediction. The result is kept for the
    next start. No text changes by it.
    """
    logs.configure(verbose=model.verbose)
    settings = user_settings({"model": given(model)}).model
    if what.repo is not None and not what.repo.is_dir():
        raise RequestError(
            "bad_setting", f"--repo is '{what.repo}', no folder", "Name a project's folder."
        )
    loaded = load_model(settings, context_tokens=CONTEXT_TOKENS)
    from engine.calibration.course import Calibration

    questions = _questions(what, loaded)
    try:
        with _stages(sys.stderr) as tell:
            report, profile = Calibration(loaded, questions, minutes=what.minutes, tell=tell).run()
    except KeyboardInterrupt as interrupt:
        typer.echo("stopped; nothing was changed", err=True)
        raise typer.Exit(130) from interrupt
    file = _kept(profile, loaded.folder)
    if as_json:
        import msgspec

        told = {"report": report, "profile": profile, "file": str(file)}
        typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
        return
    for line in lines_of(report):
        typer.echo(line)
    typer.echo(f"\nkept in {file}; the next start uses it")


def _kept(profile: Profile, folder: Path) -> Path:
    from engine.profile import save_profile

    try:
        return save_profile(profile, folder)
    except OSError as error:
        raise RequestError(
            "profile_file",
            f"the profile can't be kept in '{folder}': {error.strerror}",
            "Free some space there and calibrate again.",
        ) from error


def _questions(what: CalibrateOptions, loaded: Loaded) -> list[Question]:
    """The requests, spread over their kinds. Raises `RequestError` for a file that holds none."""
    from engine.calibration.requests import read_requests
    from engine.train.questions import questions_for

    if what.requests is not None:
        found = read_requests(what.requests, loaded.text, loaded.context_tokens)
    else:
        found = questions_for(loaded.text, what.repo, loaded.context_tokens)
    return found[: what.requests_count]


@contextmanager
def _stages(err: TextIO) -> Iterator[Callable[[str, float], None]]:
    """Where stages are told: a bar that goes away on a terminal, a line per stage elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if not err.isatty():
        last = ""

        def line(stage: str, share: float) -> None:
            nonlocal last
            kind = stage.rstrip("0123456789")
            if kind != last:
                last = kind
                err.write(f"{min(1.0, share):4.0%}  {stage}\n")
                err.flush()

        yield line
        return
    console = Console(file=err, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def show(stage: str, share: float) -> None:
            bar.update(task, description=stage, completed=min(1.0, share))

        yield show
