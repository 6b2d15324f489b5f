"""The commands `config show`, `path` and `check`: what is set, and where it comes from.

Reading and checking are `settings`' business; a mistake ends in its sentence and exit code 2.
"""

from __future__ import annotations

import typer

from app.paths import user_paths
from app.settings import as_toml, user_settings
from engine.protocol import RequestError

config = typer.Typer(
    name="config",
    help="Show, find or check the settings file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@config.command("show")
def config_show() -> None:
    """Print the settings in force as TOML, each with where it comes from."""
    typer.echo(as_toml(user_settings({})), nl=False)


@config.command("path")
def config_path() -> None:
    """Print where the settings file is looked for."""
    typer.echo(user_paths().config_file())


def check_theme(theme: str, origin: str) -> None:
    """Raise `RequestError` for a theme that the chat does not have. Only a check pays for loading
    what knows them; a chat with an unknown theme begins with the usual one and says so."""
    from textual.theme import BUILTIN_THEMES

    if theme not in BUILTIN_THEMES:
        raise RequestError(
            "bad_setting",
            f"chat.theme in {origin} is {theme!r}, and there is no such theme",
            f"Choose one of {', '.join(sorted(BUILTIN_THEMES))}.",
        )


@config.command("check")
def config_check() -> None:
    """Check the settings file and the environment; exit with 2 if something is wrong."""
    settings = user_settings({})
    check_theme(settings.chat.theme, settings.origins.get("chat.theme", "default"))
    file = user_paths().config_file()
    typer.echo(f"{file} is in order" if file.exists() else f"{file} does not exist: defaults hold")
