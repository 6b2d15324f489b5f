"""The command line: parses, calls one root, and turns what went wrong into a sentence and a code.

Nothing is decided here and nothing heavy is imported at the top: torch and transformers come in
only when a command needs a model, so `--help` answers at once. Invariant: a mistake of the user is
one sentence on stderr with the exit code of its kind, never a traceback.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Annotated

import typer
from msgspec.structs import replace

from app import ask as asking
from app import complete as filling
from app import logs, measure
from app.bench_cli import bench_command
from app.calibrate_cli import calibrate_command
from app.completion import VARIABLE, completion_command, get_ready
from app.config_cli import config
from app.doctor_cli import doctor_command
from app.engine_cli import engine
from app.engines import engine_for, session_for, traced
from app.entry import at_terminal
from app.inputs import piped_text
from app.models_cli import models
from app.options import (
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
from app.sentence_group import SentenceGroup
from app.settings import Settings, user_settings
from app.stats_cli import stats_command
from app.train_cli import train_command
from engine.protocol import RequestError

EXIT_CODES = {
    0: "ok",
    1: "a check failed",
    2: "usage: an option, a request or the settings file is wrong",
    3: "model: its files are missing, damaged or of a kind that can't run",
    4: "memory: the model or the context does not fit",
    130: "interrupted",
}
_EPILOG = "Exit: " + ", ".join(
    f"{code} {text.partition(':')[0]}" for code, text in EXIT_CODES.items()
)
_WELCOME = """\
sspec-assist answers coding questions with a model that runs on this machine.

  sspec-assist ask "Write a Python function that reverses the words of a sentence."

On a terminal, `sspec-assist` alone starts the chat. The first start fetches the default model.
All commands: sspec-assist --help"""

cli = typer.Typer(
    name="sspec-assist",
    cls=SentenceGroup,
    epilog=_EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.add_typer(models, name="models")
cli.add_typer(config, name="config")
cli.add_typer(engine, name="engine")


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal that can't show a character of the answer gets a question mark for it.
            reconfigure(errors="replace")
    if VARIABLE in os.environ:
        get_ready()
    cli()


@cli.callback(invoke_without_command=True)
@with_groups
def root(
    ctx: typer.Context,
    resume: Annotated[
        bool, typer.Option("--resume", help="Begin with the list of earlier conversations.")
    ] = False,
    # As every program's; the help has one screen.
    version: Annotated[
        bool, typer.Option("--version", hidden=True, help="Print the version and exit.")
    ] = False,
    model: ModelOptions = ModelOptions(),
) -> None:
    """Coding help on your own machine. Without a command the chat starts."""
    if version:
        typer.echo(importlib.metadata.version("sspec-assist"))
        raise typer.Exit
    if ctx.invoked_subcommand is not None:
        if resume or model != ModelOptions():
            raise RequestError(
                "misplaced_option",
                f"an option stands before the command {ctx.invoked_subcommand}",
                "Options of a command come after its name.",
            )
        return
    if not at_terminal() and not resume and model == ModelOptions():
        typer.echo(_WELCOME)
        return
    settings = _settings(model)
    if not at_terminal():
        from app.screen_guard import no_terminal
        from app.starting import wanted_by

        wanted_by(settings, user_paths())
        raise no_terminal()
    from app.chat import run_chat

    raise typer.Exit(run_chat(settings, resume=resume))


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
    with (
        traced(settings, question.trace)
        if question.trace is not None
        else engine_for(ctx.obj, settings, "ask", alone=question.no_daemon)
    ) as opened:
        asking.answer(opened, request, sys.stdout, sys.stderr, as_json=question.json)


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
    with engine_for(ctx.obj, settings, "complete", alone=place.no_daemon) as opened:
        insertion = filling.complete(opened, request, hole)
    typer.echo(insertion, nl=False)
    if not insertion:
        typer.echo("sspec-assist: the model inserted nothing here", err=True)


@cli.command(epilog=_EPILOG, short_help="Show that speculation changes no text.")
@with_groups
def verify(
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", min=1, help="Tokens that each run decodes.")
    ] = measure.VERIFY_TOKENS,
    k: DraftedTokens = None,
    exit_layer: ExitLayer = None,
    case: Cases = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every shipped case, not one of each kind.")
    ] = False,
    model: ModelOptions = ModelOptions(),
) -> None:
    """Show that speculation changes no text: greedy, every route, every k; exits with 1 if it does.

    Without --k all of 1 to 8 are run, and `auto`, where the engine chooses.
    """
    cases = measure.chosen_cases(case or (), most=None if everything else measure.VERIFY_CASES)
    settings = _settings(model, DecodeOptions(exit_layer=exit_layer))
    ks = measure.VERIFY_KS if k is None else (k,)
    session = session_for(settings)
    if not measure.run_verify(session, cases, sys.stdout, tokens=tokens, ks=ks):
        raise typer.Exit(1)


@cli.command("lsp", epilog=_EPILOG, short_help="Complete code in an editor.")
@with_groups
def language_server(
    model: ModelOptions = ModelOptions(),
    stdio: Annotated[bool, typer.Option("--stdio", hidden=True)] = True,
    client: Annotated[int | None, typer.Option("--clientProcessId", hidden=True)] = None,
) -> None:
    """Complete code in an editor, which starts this and talks to it over stdin and stdout.

    It speaks the language server protocol and shares the engine of the chat. What to write into
    the editor's own settings is in the README.
    """
    from app.editor import run_lsp

    logs.configure(verbose=model.verbose)
    # The last two are what some editors' libraries add of themselves; there is no other way.
    del stdio, client
    run_lsp(lambda: user_settings({"model": given(model)}))


cli.command("bench", epilog=_EPILOG, short_help="Time drafting against plain decoding.")(
    bench_command
)
cli.command("doctor", epilog=_EPILOG, short_help="Examine machine, model and memory.")(
    doctor_command
)
cli.command("calibrate", epilog=_EPILOG, short_help="Measure which drafting pays for you.")(
    calibrate_command
)
cli.command("train-head", epilog=_EPILOG, short_help="Fit a faster draft to this model.")(
    train_command
)
cli.command("stats", epilog=_EPILOG, short_help="Show how completions in editors have done.")(
    stats_command
)
cli.command("completion", short_help="Print a completion script for your shell.")(
    completion_command
)


def _settings(
    model: ModelOptions,
    decode: DecodeOptions = DecodeOptions(),
    sampling: SamplingOptions = SamplingOptions(),
) -> Settings:
    logs.configure(verbose=model.verbose)
    return user_settings(
        {"model": given(model), "decode": given(decode), "sampling": given(sampling)}
    )
