"""The command `train-head`: makes the file that the exit_head route drafts with.

Brings a model into this process, hands it to `engine.train.course`, and tells on stderr how it
goes; the result is one line on stdout. Invariant: stopped with Ctrl-C it ends in a sentence, and
the same command goes on from what was kept.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app import logs
from app.offline import load_model
from app.options import ModelOptions, given, with_groups
from app.paths import user_paths
from app.progress import stages_on
from app.settings import user_settings
from engine.protocol import RequestError

if TYPE_CHECKING:
    from app.progress import Stages
    from engine.loading import Loaded
    from engine.train.course import Course
    from engine.train.order import Order

MINUTES, QUICK_MINUTES = 20.0, 3.0
CONTEXT_TOKENS = 1024
"""Questions and their answers are shorter than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What a head is made from, and how long."""

    repo: Annotated[
        Path | None,
        typer.Option(
            "--repo",
            metavar="DIR",
            help="Cut fills and edits from this folder's code; the current one if it has any.",
        ),
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="MIN",
            min=0.05,
            max=24 * 60,
            help=f"How long it may take; {MINUTES:g} if left out, {QUICK_MINUTES:g} with --quick.",
        ),
    ] = None
    first: Annotated[
        int | None,
        typer.Option(
            "--first",
            metavar="F",
            help="Layers that drafts run before the jump; tried if left out.",
        ),
    ] = None
    jump: Annotated[
        int | None,
        typer.Option("--jump", metavar="J", help="Layer to jump to; tried out if left out."),
    ] = None
    neurons: Annotated[
        int | None,
        typer.Option(
            "--neurons",
            metavar="N",
            help="Neurons that drafts keep of each layer behind the jump; tried out if left out.",
        ),
    ] = None
    quick: Annotated[
        bool, typer.Option("--quick", help="Only fit the jump, without training it further.")
    ] = False


@with_groups
def train_command(*, what: TrainOptions, model: ModelOptions) -> None:
    """Fit a draft to this model: a shortcut from its first layers to its last ones.

    The model answers built-in questions and fills over your code; the shortcut learns from that.
    The model itself is not changed, and neither is any text. Ctrl-C keeps what there is.
    """
    logs.configure(verbose=model.verbose)
    settings = user_settings({"model": given(model)}).model
    folder = project_here() if what.repo is None else project_folder(what.repo)
    from engine.train.candidates import described
    from engine.train.order import Order

    asked = Order(
        minutes=what.minutes or (QUICK_MINUTES if what.quick else MINUTES),
        first=what.first,
        jump=what.jump,
        neurons=what.neurons,
        quick=what.quick,
        project=folder,
    )
    loaded = load_model(settings, context_tokens=CONTEXT_TOKENS)
    try:
        with stages_on(sys.stderr) as stages:
            course = _course(loaded, asked, stages)
            made = course.run()
    except KeyboardInterrupt as interrupt:
        typer.echo("stopped; what there is was kept, the same command goes on", err=True)
        raise typer.Exit(130) from interrupt
    typer.echo(f"{described(made)}\n{course.head_file}")


def project_here() -> Path | None:
    """The current folder, if it is a project."""
    from engine.train.project_text import looks_like_project

    here = Path.cwd()
    return here if (here / ".git").exists() and looks_like_project(here) else None


def project_folder(repo: Path) -> Path:
    """The folder asked for, to cut prompts from. Raises `RequestError` where it has no code."""
    from engine.train.project_text import looks_like_project

    if not repo.is_dir() or not looks_like_project(repo):
        what = "no code in it" if repo.is_dir() else "no such folder"
        raise RequestError(
            "bad_setting",
            f"--repo is '{repo}', and there is {what}",
            "Name the folder of a project.",
        )
    return repo


def _course(loaded: Loaded, asked: Order, stages: Stages) -> Course:
    from engine.draft.head_file import file_in
    from engine.train.course import Course, Shown

    shown = Shown(stage=stages.stage, result=stages.result)
    paths = user_paths()
    head_file = file_in(paths.heads_dir(), loaded.weights_digest)
    folder = paths.cache_dir() / "training" / head_file.stem
    return Course(loaded, asked, folder=folder, head_file=head_file, shown=shown)
