"""The command line: parses, calls one root, and turns what went wrong into a sentence and a code.

Nothing is decided here and nothing heavy is imported at the top: torch and transformers come in
only when a command needs a model, so `--help` answers at once. Invariant: a mistake of the user is
one sentence on stderr with the exit code of its kind, never a traceback.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace
from typer.core import TyperGroup

from app import ask as asking
from app import complete as filling
from app import logs, measure
from app.doctor_cli import doctor_command
from app.inputs import piped_text
from app.models_cli import models
from app.options import (
    AsJson,
    Cases,
    DecodeOptions,
    DraftedTokens,
    ExitLayer,
    ModelOptions,
    PlaceOptions,
    QuestionOptions,
    SamplingOptions,
    given,
    with_groups,
)
from app.paths import user_paths
from app.settings import Settings, as_toml, user_settings
from engine.protocol import Engine, EngineError

if TYPE_CHECKING:
    from engine.session import Session

EXIT_CODES = {
    0: "ok",
    1: "a check failed",
    2: "usage: an option, a request or the settings file is wrong",
    3: "model: its files are missing, damaged or of a kind that can't run",
    4: "memory: the model or the context does not fit",
    130: "interrupted",
}
_EPILOG = "Exit codes: " + " · ".join(
    f"{code} {text.partition(':')[0]}" for code, text in EXIT_CODES.items()
)
_WELCOME = """\
sspec-assist answers coding questions with a model that runs on this machine.

  sspec-assist ask "Write a Python function that reverses the words of a sentence."

The first start fetches the default model. All commands: sspec-assist --help"""

OpenEngine = Callable[[Settings], AbstractContextManager[Engine]]


class SentenceGroup(TyperGroup):
    """A group whose commands end in a sentence and an exit code when they can't go on."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EngineError as error:
            typer.echo(f"sspec-assist: {error}", err=True)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(130) from interrupt
        except BrokenPipeError as error:
            # Whoever read the answer has had enough of it; without this the interpreter would fail
            # over the flush of a pipe that is gone.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
            raise typer.Exit(0) from error


cli = typer.Typer(
    name="sspec-assist",
    cls=SentenceGroup,
    epilog=_EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config = typer.Typer(help="Show, find or check the settings file.", no_args_is_help=True)
cli.add_typer(models, name="models")
cli.add_typer(config, name="config")


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that can't show a character of the answer gets a question mark for it.
            reconfigure(errors="replace")
    cli()


@cli.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Coding help on your own machine: one model, decoded exactly, with self-speculative drafts."""
    if version:
        typer.echo(importlib.metadata.version("sspec-assist"))
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(_WELCOME)


@cli.command(epilog=_EPILOG)
@with_groups
def ask(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(help="The question; left out or `-`, it is read from standard input."),
    ] = None,
    question: QuestionOptions = QuestionOptions(),
    model: ModelOptions = ModelOptions(),
    decode: DecodeOptions = DecodeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
) -> None:
    """Answer a question. The answer goes to stdout, one line of statistics to stderr."""
    settings = _settings(model, decode, sampling)
    asked = asking.Question(
        text=asking.question_text(prompt, piped_text(sys.stdin, sys.stderr, prompt)),
        system=question.system,
        files=tuple(question.file or ()),
    )
    request = asking.build_request(
        asked, settings.sampling, route=settings.decode.route, k=decode.k
    )
    with _engine(ctx, settings) as engine:
        asking.answer(engine, request, sys.stdout, sys.stderr, as_json=question.json)


@cli.command(epilog=_EPILOG)
@with_groups
def complete(
    ctx: typer.Context,
    place: PlaceOptions = PlaceOptions(),
    model: ModelOptions = ModelOptions(),
    decode: DecodeOptions = DecodeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
) -> None:
    """Fill in the middle of a file and print only the insertion.

    The place is --file with --line and --column, both counted from 1 in characters, or a marker in
    the text on standard input.
    """
    settings = _settings(model, decode, sampling)
    if place.file is not None:
        hole = filling.hole_in_file(place.file, place.line, place.column)
    else:
        hole = filling.hole_at_marker(piped_text(sys.stdin, sys.stderr, None) or "", place.marker)
    drawn = settings.sampling
    if sampling.max_tokens is None:
        drawn = replace(drawn, max_tokens=filling.DEFAULT_MAX_TOKENS)
    request = filling.build_request(hole, drawn, route=settings.decode.route, k=decode.k)
    with _engine(ctx, settings) as engine:
        typer.echo(filling.complete(engine, request, hole), nl=False)


@cli.command(epilog=_EPILOG)
@with_groups
def verify(
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", min=1, help="Tokens that each run decodes.")
    ] = measure.VERIFY_TOKENS,
    k: DraftedTokens = None,
    exit_layer: ExitLayer = None,
    case: Cases = None,
    model: ModelOptions = ModelOptions(),
) -> None:
    """Show that speculation changes no text: greedy, every route, every k; exits with 1 if it does.

    Without --k all of 1 to 8 are run, and `auto`, where the engine chooses.
    """
    cases = measure.chosen_cases(case or ())
    settings = _settings(model, DecodeOptions(exit_layer=exit_layer))
    ks = measure.VERIFY_KS if k is None else (k,)
    session = _session(settings)
    if not measure.run_verify(session, cases, sys.stdout, tokens=tokens, ks=ks):
        raise typer.Exit(1)


@cli.command(epilog=_EPILOG)
@with_groups
def bench(
    repeats: Annotated[
        int, typer.Option("--repeats", metavar="N", min=1, help="Runs of each case and route.")
    ] = measure.BENCH_REPEATS,
    case: Cases = None,
    exit_layer: ExitLayer = None,
    as_json: AsJson = False,
    model: ModelOptions = ModelOptions(),
    sampling: SamplingOptions = SamplingOptions(),
) -> None:
    """Time every route on the built-in cases, taking turns; prints medians and × plain."""
    cases = measure.chosen_cases(case or ())
    settings = _settings(model, DecodeOptions(exit_layer=exit_layer), sampling)
    drawn = settings.sampling
    if sampling.max_tokens is None:
        drawn = replace(drawn, max_tokens=measure.BENCH_TOKENS)
    session = _session(settings)
    measure.run_bench(session, cases, sys.stdout, repeats=repeats, sampling=drawn, as_json=as_json)


cli.command("doctor", epilog=_EPILOG)(doctor_command)


@config.command("show")
def config_show() -> None:
    """Print the settings in force as TOML, each with where it comes from."""
    typer.echo(as_toml(user_settings({})), nl=False)


@config.command("path")
def config_path() -> None:
    """Print where the settings file is looked for."""
    typer.echo(user_paths().config_file())


@config.command("check")
def config_check() -> None:
    """Check the settings file and the environment; exit with 2 if something is wrong."""
    user_settings({})
    file = user_paths().config_file()
    typer.echo(f"{file} is in order" if file.exists() else f"{file} does not exist: defaults hold")


def _settings(
    model: ModelOptions,
    decode: DecodeOptions = DecodeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
) -> Settings:
    logs.configure(verbose=model.verbose)
    return user_settings(
        {"model": given(model), "decode": given(decode), "sampling": given(sampling)}
    )


def _engine(ctx: typer.Context, settings: Settings) -> AbstractContextManager[Engine]:
    """The engine for `settings`: the local one, or what the caller of the command put in `obj`."""
    if ctx.obj is not None:
        opened: OpenEngine = ctx.obj
        return opened(settings)
    from app.offline import open_engine

    return open_engine(settings)


def _session(settings: Settings) -> Session:
    from app.offline import open_session

    return open_session(settings)
