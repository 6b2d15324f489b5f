"""The command `calibrate`: which way of drafting pays for one's own requests, here.

Brings a model into this process, hands it with the requests to `engine.calibration`, shows the
table, the picture of predicted against measured and the verdict, and keeps the profile that the
next start uses. Invariant: stopped before the end it keeps what is whole by then, and says so.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from app import logs
from app.calibrate_report import lines_of
from app.offline import load_model
from app.options import AsJson, ModelOptions, given, with_groups
from app.progress import stages_on
from app.settings import user_settings
from engine.protocol import RequestError

if TYPE_CHECKING:
    from engine.calibration.course import Kept
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
            help="Cut fills and edits from this folder's code, besides the built-in prompts; the "
            "current one if it has any.",
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
            "--minutes",
            metavar="MIN",
            min=0.05,
            max=600,
            help="How long it may take once the model is loaded, about; with less it leaves out "
            "more.",
        ),
    ] = MINUTES


@with_groups
def calibrate_command(
    *, what: CalibrateOptions, as_json: AsJson = False, model: ModelOptions
) -> None:
    """Measure which way of drafting pays for your requests on this machine, and use it.

    The model answers the requests; every early exit and jump is judged on the answers and timed;
    the most promising ones decode for real beside their prediction. The result is kept for the
    next start. No text changes by it. Ctrl-C keeps what there is.
    """
    logs.configure(verbose=model.verbose)
    settings = user_settings({"model": given(model)}).model
    _check(what)
    loaded = load_model(settings, context_tokens=CONTEXT_TOKENS)
    from engine.calibration.course import Calibration

    questions = _questions(what, loaded)
    stopped = False
    with stages_on(sys.stderr) as stages:
        calibration = Calibration(loaded, questions, minutes=what.minutes, tell=stages.stage)
        try:
            calibration.run()
        except KeyboardInterrupt:
            stopped = True
    kept = calibration.kept
    if kept is None:
        typer.echo("stopped before anything was timed; nothing was changed", err=True)
        raise typer.Exit(130)
    _tell(kept, _saved(kept[1], loaded.folder), as_json=as_json)
    if stopped:
        typer.echo("stopped; what was measured until then was kept", err=True)
        raise typer.Exit(130)


def _check(what: CalibrateOptions) -> None:
    """Raise `RequestError` for what can't be, before a model is loaded."""
    if what.repo is not None and what.requests is not None:
        raise RequestError(
            "bad_setting", "--repo and --requests don't go together", "Take one of them."
        )
    if what.repo is not None:
        from app.train_cli import project_folder

        project_folder(what.repo)
    if what.requests is not None:
        from engine.calibration.requests import read_prompts

        read_prompts(what.requests)


def _tell(kept: Kept, file: Path, *, as_json: bool) -> None:
    report, profile = kept
    if as_json:
        told = {"report": report, "profile": profile, "file": str(file)}
        typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
        return
    for line in lines_of(report):
        typer.echo(line)
    typer.echo(f"\nkept in {file}\nthe next start uses it")


def _saved(profile: Profile, folder: Path) -> Path:
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
    from app.train_cli import project_here
    from engine.calibration.requests import read_prompts, read_requests
    from engine.train.questions import PROMPT_TOKENS, questions_for

    if what.requests is None:
        folder = project_here() if what.repo is None else what.repo
        found = questions_for(loaded.text, folder, loaded.context_tokens)
        return found[: what.requests_count]
    found = read_requests(what.requests, loaded.text, loaded.context_tokens)
    missing = len(read_prompts(what.requests)) - len(found)
    if missing:
        typer.echo(
            f"{missing} requests are left out: longer than {PROMPT_TOKENS} tokens, or of a kind "
            "that this model does not take",
            err=True,
        )
    return found[: what.requests_count]
