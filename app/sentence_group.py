"""How a command that can't go on ends: in one sentence on stderr and the exit code of its kind.

It owns that translation for the whole command line, and a help of the program that fits one
screen. Invariant: a mistake of the user never ends in a traceback.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import Any

import typer
from typer.core import TyperGroup

from app.options import ModelOptions
from engine.protocol import EngineError


class SentenceGroup(TyperGroup):
    """A group whose commands end in a sentence and an exit code when they can't go on, and whose
    help fits one screen."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for parameter in self.params:
            # The chat takes these as well; `ask --help` explains them.
            if parameter.name in {field.name for field in fields(ModelOptions)} - {"model"}:
                vars(parameter)["hidden"] = True

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            # Who reads the help has found it; the line is worth more to a command.
            vars(option)["hidden"] = True
        return option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        usual, self.rich_markup_mode = self.rich_markup_mode, None
        super().format_help(ctx, formatter)
        self.rich_markup_mode = usual

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
        except OSError as error:
            # What was not written would be tried again at the end, and fail again.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
            what = f"'{error.filename}'" if error.filename else "the output"
            why = error.strerror or error
            typer.echo(
                f"sspec-assist: {what} can't be used: {why}. Free some space there, or give "
                "yourself the right to it.",
                err=True,
            )
            raise typer.Exit(1) from error
