"""Options that several commands share, each defined once, as groups of fields.

A command takes a whole group as one parameter; `with_groups` spreads its fields over the signature
that Typer reads and puts them together again at the call. The field names of a group are the key
names of the settings table of the same name, so a group becomes a layer of settings without a
second list of names. This module decides nothing: an option left out is `None` and stays open.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from app.completion import model_names
from engine.config import MAX_DRAFT_TOKENS, Device, DraftPolicy, Quant
from engine.protocol import RouteChoice

_MODEL = "Model"
_DECODE = "Decoding"
_SAMPLING = "Sampling"


ExitLayer = Annotated[
    int | None,
    typer.Option(
        "--exit-layer",
        metavar="L",
        help="Layers that the layer_skip draft runs.",
        rich_help_panel=_DECODE,
    ),
]
DraftedTokens = Annotated[
    int | None,
    typer.Option(
        "--k",
        metavar="K",
        min=1,
        max=MAX_DRAFT_TOKENS,
        help="Draft K tokens a round at most; chosen by the policy if left out.",
        rich_help_panel=_DECODE,
    ),
]
NoDaemon = Annotated[
    bool,
    typer.Option(
        "--no-daemon",
        help="Run the model in this process, not in the one that all clients share.",
        rich_help_panel=_MODEL,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case", metavar="NAME", help="Only this built-in case; may be given more than once."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which model, and how it is brought into memory."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="M",
            help="A name of `models list`, hub id, folder or .gguf file.",
            autocompletion=model_names,
            rich_help_panel=_MODEL,
        ),
    ] = None
    quant: Annotated[
        Quant | None,
        typer.Option("--quant", help="Weights of body and head.", rich_help_panel=_MODEL),
    ] = None
    device: Annotated[
        Device | None, typer.Option("--device", help="Where to run.", rich_help_panel=_MODEL)
    ] = None
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            metavar="N",
            help="Tokens that prompt and answer may take together.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            help="CPU threads; physical cores if left out.",
            rich_help_panel=_MODEL,
        ),
    ] = None
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log on stderr what is being done.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """How tokens are drafted. None of these changes what the answer may say."""

    route: Annotated[
        RouteChoice | None,
        typer.Option("--route", help="How to draft.", rich_help_panel=_DECODE),
    ] = None
    exit_layer: ExitLayer = None
    k: DraftedTokens = None
    policy: Annotated[
        DraftPolicy | None,
        typer.Option("--policy", help="How k follows the record.", rich_help_panel=_DECODE),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn from the model's law."""

    temperature: Annotated[
        float | None,
        typer.Option("--temperature", metavar="T", help="0 is greedy.", rich_help_panel=_SAMPLING),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p",
            metavar="P",
            help="Keep the likeliest tokens that make up P.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="N",
            help="Keep the N likeliest tokens; 0 keeps all.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(
            "--min-p",
            metavar="P",
            help="Drop tokens less likely than P × the likeliest.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            "--repetition-penalty",
            metavar="X",
            help="Above 1, tokens seen before become less likely.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens", metavar="N", help="Longest answer.", rich_help_panel=_SAMPLING
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Repeats the draw for a fixed route and k.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(
            "--stop",
            metavar="TEXT",
            help="End before TEXT; may be given more than once.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """What goes with a question, and how the answer is shown."""

    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="System message.")
    ] = None
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", metavar="PATH", help="Attach a text file; may be given more than once."
        ),
    ] = None
    json: Annotated[
        bool, typer.Option("--json", help="Print every event as one line of JSON instead.")
    ] = False
    no_daemon: NoDaemon = False
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Write what was decided, one line per round, to FILE; runs the model in this "
            "process. `bench --replay` sums it up.",
            rich_help_panel=_DECODE,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOptions:
    """Where the insertion goes."""

    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="F", help="The file to complete.")
    ] = None
    line: Annotated[
        int | None, typer.Option("--line", metavar="N", help="Line of the cursor, from 1.")
    ] = None
    column: Annotated[
        int | None,
        typer.Option(
            "--column",
            metavar="M",
            help="Character that the insertion goes before, from 1; the line's end if left out.",
        ),
    ] = None
    marker: Annotated[
        str,
        typer.Option("--marker", metavar="TEXT", help="Marks the cursor in standard input."),
    ] = "<CURSOR>"
    no_daemon: NoDaemon = False


def given(group: ModelOptions | DecodeOptions | SamplingOptions) -> dict[str, Any]:
    """The fields of `group` that were given, by name; flags of the command itself left out."""
    values = asdict(group).items()
    return {name: v for name, v in values if name not in {"verbose", "k"} and v not in (None, [])}


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with every parameter that is a group replaced by the group's own fields."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    groups = {n: hints[n] for n in signature.parameters if is_dataclass(hints[n])}
    spread: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in groups:
            spread += _parameters_of(groups[name])
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            spread.append(parameter.replace(kind=kind, annotation=hints[name]))

    def call(**values: Any) -> None:
        built = {
            name: group(**{f.name: values.pop(f.name) for f in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **built)

    call.__name__ = command.__name__
    call.__doc__ = command.__doc__
    call.__annotations__ = {p.name: p.annotation for p in spread}
    vars(call)["__signature__"] = inspect.Signature(spread)
    return call


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name])
        for f in fields(group)
    ]
