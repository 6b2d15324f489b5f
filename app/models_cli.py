"""The commands `models list`, `pull`, `rm` and `path`: what can be had, and what is here.

Results go to stdout, progress and remarks to stderr. What a name means and what lies on disk is
`model_store`'s business. Invariant: only `pull` uses the network.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from app import model_store
from app.catalogue import DEFAULT
from app.download import readable
from app.paths import user_paths
from app.progress import shown_on

if TYPE_CHECKING:
    from app.model_store import Listed

models = typer.Typer(
    name="models",
    help="List, fetch, find or remove models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Name = Annotated[str, typer.Argument(help="A name from `models list`, or a hub id (org/name).")]


@models.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show every known model with its size, licence and state on this machine."""
    listed = model_store.listing(user_paths())
    if as_json:
        for model in listed:
            typer.echo(msgspec.json.encode(model).decode())
        return
    rows = [("NAME", "SIZE", "LICENCE", "STATE", "MODEL"), *(_row(model) for model in listed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


@models.command("pull")
def pull(
    name: Annotated[
        str, typer.Argument(help="A name from `models list`, or a hub id (org/name).")
    ] = DEFAULT,
) -> None:
    """Fetch a model, going on from an interrupted try, and print where it lies."""
    with shown_on(sys.stderr) as progress:
        source = model_store.pull(name, user_paths(), progress)
    typer.echo(source.path)


@models.command("rm")
def remove(name: Name) -> None:
    """Delete a model from this machine, parts of an unfinished download included."""
    with shown_on(sys.stderr) as progress:
        freed = model_store.remove(name, user_paths(), progress)
    typer.echo(f"removed {name}, {readable(freed)} freed")


@models.command("path")
def path(name: Name = DEFAULT) -> None:
    """Print where a model lies; it is an error if it does not."""
    typer.echo(model_store.path(name, user_paths()))


def _row(model: Listed) -> tuple[str, str, str, str, str]:
    state: str = model.state
    if state == "partial":
        state = f"partial ({readable(model.disk_bytes)} on disk)"
    title = f"{model.title} (default)" if model.default else model.title
    return (model.name, readable(model.size_bytes), model.licence, state, title)
