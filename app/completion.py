"""Completion by the shell: the scripts for bash, zsh and fish, and the names for `--model`.

The scripts are Typer's own; this chooses one. Invariant: completing reads no model and asks no
network, so a key press costs one start of Python.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from app.catalogue import CATALOGUE

Shell = Literal["bash", "zsh", "fish"]

PROGRAM = "sspec-assist"
VARIABLE = "_SSPEC_ASSIST_COMPLETE"


def completion_command(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell that will read it.")],
) -> None:
    """Print a script that teaches your shell this program's commands, options and models.

    For bash: sspec-assist completion bash >> ~/.bashrc
    """
    from typer.completion import shell_complete

    get_ready()
    root = ctx.find_root().command
    raise typer.Exit(shell_complete(root, {}, PROGRAM, VARIABLE, f"source_{shell}"))


def get_ready() -> None:
    """Have Typer know the shells; by itself it does so only for programs with its own options."""
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()


def model_names(incomplete: str) -> list[tuple[str, str]]:
    """The names of the catalogue that begin with what was typed, each with its description."""
    wish = incomplete.lower()
    return [(name, entry.title) for name, entry in CATALOGUE.items() if name.startswith(wish)]
