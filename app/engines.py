"""Which engine a command gets: the shared one, or one in its own process alone.

It decides by the option and opens it; torch comes in only where the model runs in this process.
Invariant: where memory is short and the shared engine holds some, the refusal says how to free it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING

from app import instance
from app.paths import user_paths
from app.settings import Settings
from engine.protocol import Engine, MemoryLimitError

if TYPE_CHECKING:
    from pathlib import Path

    from engine.session import Session

OpenEngine = Callable[[Settings], AbstractContextManager[Engine]]


def engine_for(
    instead: OpenEngine | None, settings: Settings, client: str, *, alone: bool
) -> AbstractContextManager[Engine]:
    """The engine for `settings`, or what `instead` opens; `client` is the name others see."""
    if instead is not None:
        return instead(settings)
    if alone:
        return _alone(settings)
    from app.online import shared_engine

    return shared_engine(settings, client)


def session_for(settings: Settings) -> Session:
    """A session in this process, for commands that step answers themselves."""
    from app.offline import open_session

    with _memory_is_shared():
        return open_session(settings)


@contextmanager
def traced(settings: Settings, trace: Path) -> Iterator[Engine]:
    """An engine in this process whose rounds are written to `trace`. Raises `RequestError` for a
    file that can't be written, before anything is loaded."""
    from app.offline import open_engine
    from engine.trace import TraceFile

    with (
        closing(TraceFile(trace)) as file,
        _memory_is_shared(),
        open_engine(settings, file) as opened,
    ):
        yield opened


@contextmanager
def _alone(settings: Settings) -> Iterator[Engine]:
    from app.offline import open_engine

    with _memory_is_shared(), open_engine(settings) as opened:
        yield opened


@contextmanager
def _memory_is_shared() -> Iterator[None]:
    try:
        yield
    except MemoryLimitError as error:
        if not instance.listening(instance.place_of(user_paths().runtime)):
            raise
        also = "The shared engine holds memory too: `sspec-assist engine stop` frees it."
        raise MemoryLimitError(error.code, error.message, f"{error.hint} {also}") from error
