"""Logging, configured once per process: standard library, never to stdout.

A command logs to stderr, the engine's own process to a file that rotates; what torch, transformers
and bitsandbytes have to say is kept away unless `verbose` asks for it. Imports none of them.
Invariant: the log file is readable by its user alone, and what C code writes to stderr lands in the
file that is being written, not in one that was rotated away.
"""

from __future__ import annotations

import logging
import os
import warnings
from logging.handlers import RotatingFileHandler
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MAX_LOG_BYTES = 1 << 20
OLDER_LOGS = 2
"""Three files in all."""

_NOISY = ("torch", "transformers", "bitsandbytes", "huggingface_hub", "urllib3", "filelock", "gguf")
_QUIET_ENVIRONMENT = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def configure(*, verbose: bool) -> None:
    """Send records to stderr, from INFO on if `verbose`, otherwise from WARNING on."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        force=True,
    )
    logging.captureWarnings(True)
    if not verbose:
        _quieten()


def configure_file(file: Path) -> None:
    """Send records, and all that anything writes to stdout or stderr, to a file that rotates.

    Raises `OSError` if the file can't be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s",
        handlers=[_OwnFile(file)],
        force=True,
    )
    logging.captureWarnings(True)
    # A disk that is full must not fill the same file with complaints about itself.
    logging.raiseExceptions = False
    _quieten()


def open_private(file: str | Path, flags: int) -> int:
    """An opener for files that only their user may read."""
    return os.open(file, flags, 0o600)


def last_lines(file: Path, count: int, *, since: int = 0, until: int | None = None) -> list[str]:
    """The last lines of a log, of its bytes from `since` to `until`; none if it can't be read."""
    try:
        with file.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            # A file smaller than it was has been rotated, and is new from its start.
            begin = max(since if since <= end else 0, end - (1 << 16))
            end = end if until is None else min(until, end)
            log.seek(begin)
            lines = log.read(max(0, end - begin)).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return lines[-count:] if count else []


class _OwnFile(RotatingFileHandler):
    """A rotating file that the process's stdout and stderr go to as well."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, maxBytes=MAX_LOG_BYTES, backupCount=OLDER_LOGS, encoding="utf-8")

    def _open(self) -> Any:
        stream: IO[str] = open(  # noqa: SIM115 - the handler closes it
            self.baseFilename, "a", encoding="utf-8", errors="replace", opener=open_private
        )
        os.fchmod(stream.fileno(), 0o600) if hasattr(os, "fchmod") else None
        _send_output(stream)
        return stream

    def doRollover(self) -> None:  # noqa: N802
        # Windows renames no file that anything still has open.
        with open(os.devnull, "w", encoding="utf-8") as nothing:  # noqa: PTH123
            _send_output(nothing)
        super().doRollover()


def _send_output(to: IO[str]) -> None:
    """Have all that the process writes to stdout and stderr go there."""
    for descriptor in (1, 2):
        os.dup2(to.fileno(), descriptor)


def _quieten() -> None:
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module=rf"{name}(\.|$)")
    for variable, value in _QUIET_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
