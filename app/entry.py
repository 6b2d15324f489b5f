"""Where the program begins: straight to chat or editor where that is plainly meant, else to `cli`.

The command line's own machinery takes longer to import than the chat has for its first paint, or
the editor's server for its first reply. So the few forms that only start one of them are told here,
and everything else (options to be checked, commands, help, a wrong word) goes to `cli`, which knows
them all, these forms too. Invariant: what is told here means the same there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from engine.protocol import EngineError

if TYPE_CHECKING:
    from app.settings import Settings

COMPLETION = "_SSPEC_ASSIST_COMPLETE"
"""Set by a shell that asks what may follow."""


class ChatWish(Struct, frozen=True, kw_only=True):
    """A chat that was asked for."""

    model: str | None = None
    resume: bool = False


def main() -> None:
    """Entry point of the console script."""
    fill_in()
    arguments = sys.argv[1:]
    if is_plain_editor(arguments) and COMPLETION not in os.environ:
        start_editor()
    wish = chat_wish(arguments)
    if wish is None or not at_terminal() or COMPLETION in os.environ:
        from app.cli import main as run_command

        run_command()
        return
    try:
        sys.exit(start_chat(wish))
    except EngineError as error:
        sys.stderr.write(f"sspec-assist: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def chat_wish(arguments: Sequence[str]) -> ChatWish | None:
    """The chat that the arguments ask for, or None where `cli` has to look at them."""
    wish = ChatWish()
    left = list(arguments)
    while left:
        option = left.pop(0)
        name, equals, value = option.partition("=")
        if option == "--resume":
            wish = ChatWish(model=wish.model, resume=True)
        elif name == "--model" and equals and value:
            wish = ChatWish(model=value, resume=wish.resume)
        elif option in ("--model", "-m") and left and not left[0].startswith("-"):
            wish = ChatWish(model=left.pop(0), resume=wish.resume)
        else:
            return None
    return wish


def fill_in() -> None:
    """Have all three standard streams: one that was closed before the start holds nothing, and what
    is opened next must not get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def at_terminal() -> bool:
    """Whether somebody sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_plain_editor(arguments: Sequence[str]) -> bool:
    """Whether the arguments only start the editor's server, with what an editor adds of itself."""
    return arguments[:1] == ["lsp"] and set(arguments[1:]) <= {"--stdio"}


def start_editor() -> NoReturn:
    """Serve the editor at the other end of stdin and stdout until it leaves."""
    from app import logs
    from app.editor import run_lsp

    def settings() -> Settings:
        from app.settings import user_settings

        return user_settings({})

    logs.configure(verbose=False)
    run_lsp(settings)


def start_chat(wish: ChatWish) -> int:
    """Run the chat and return the exit code. Raises `EngineError` where it can't begin."""
    from app import logs
    from app.chat import run_chat
    from app.settings import user_settings

    logs.configure(verbose=False)
    options = {"model": {"model": wish.model}} if wish.model is not None else {}
    return run_chat(user_settings(options), resume=wish.resume)
