"""Where this application keeps its files: the user's own cache, data, config and runtime folders.

It owns the names of the folders and the four variables that move them, and it is the only place
that reads those variables:

    SSPEC_ASSIST_CACHE    downloaded models and quantized results; safe to delete at any time
    SSPEC_ASSIST_DATA     what the user would miss (conversations), and logs
    SSPEC_ASSIST_CONFIG   the folder of `config.toml`
    SSPEC_ASSIST_RUNTIME  socket and locks of the engine, gone after a restart

Invariant: asking for a path creates nothing; whoever writes makes the folder.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from platformdirs import PlatformDirs

from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

APP_NAME = "sspec-assist"


class Paths(Struct, frozen=True, kw_only=True):
    """The four folders, and the places inside them that more than one module needs."""

    cache: Path
    data: Path
    config: Path
    runtime: Path

    def cache_dir(self) -> Path:
        """Everything that can be fetched or computed again."""
        return self.cache

    def models_dir(self) -> Path:
        """Models as they were downloaded."""
        return self.cache / "models"

    def converted_dir(self) -> Path:
        """Models after conversion and quantization."""
        return self.cache / "converted"

    def heads_dir(self) -> Path:
        """Exit heads that this user trained."""
        return self.cache / "heads"

    def kernels_dir(self) -> Path:
        """C kernels compiled for this machine."""
        return self.cache / "kernels"

    def log_file(self) -> Path:
        """What the engine's process logs, with older parts beside it."""
        return self.data / "logs" / "engine.log"

    def config_file(self) -> Path:
        """The settings file; it need not exist."""
        return self.config / "config.toml"


def user_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """The folders of this user, after the variables named above; `~` is expanded.

    Raises `RequestError` for the home of a user that there is not.
    """
    values = os.environ if environ is None else environ
    standard = PlatformDirs(APP_NAME, appauthor=False)

    def folder(variable: str, usual: str) -> Path:
        wanted = values.get(variable) or usual
        try:
            return Path(wanted).expanduser().absolute()
        except RuntimeError as error:
            raise RequestError(
                "bad_setting", f"{variable} is '{wanted}': {error}", "Give the folder's full path."
            ) from error

    with warnings.catch_warnings():
        # Where a session has no runtime folder, platformdirs names another and warns about it.
        warnings.simplefilter("ignore")
        runtime = standard.user_runtime_dir
    return Paths(
        cache=folder("SSPEC_ASSIST_CACHE", standard.user_cache_dir),
        data=folder("SSPEC_ASSIST_DATA", standard.user_data_dir),
        config=folder("SSPEC_ASSIST_CONFIG", standard.user_config_dir),
        runtime=folder("SSPEC_ASSIST_RUNTIME", runtime),
    )
