"""A local engine whose rounds wait for permission, so that tests need no clock to be in step."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable

from torch import Tensor

from engine.loading import Loaded
from engine.model import Model
from engine.protocol import Event
from engine.service import LocalEngine

from .tiny import tiny_architecture, tiny_tensors
from .tiny_session import LAYERS, tiny_loaded, tiny_session, vocabulary


class PacedModel(Model):
    """Counts its scoring passes (one a plain round) and, once held, asks leave for each."""

    def __init__(self) -> None:
        arch = tiny_architecture(layers=LAYERS, vocab=vocabulary())
        super().__init__(arch, tiny_tensors(arch, "nf4"), context_tokens=512)
        self.passes = 0
        self.error: BaseException | None = None
        """Raised by the next pass."""
        self._held = False
        self._leave = threading.Semaphore(0)
        self._waiting = threading.Event()

    def logits(self, hidden: Tensor) -> Tensor:
        if self._held:
            self._waiting.set()
            self._leave.acquire()
            self._waiting.clear()
        self.passes += 1
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return super().logits(hidden)

    def hold(self) -> None:
        """From now on every pass waits for leave."""
        self._held = True

    def allow(self, passes: int) -> None:
        """Give leave for so many passes."""
        self._leave.release(passes)

    def free(self) -> None:
        """Let it run."""
        self._held = False
        self._leave.release(10_000)

    def wait_until_held(self) -> None:
        """Block until a pass waits for leave: the engine is in the middle of a round."""
        assert self._waiting.wait(timeout=60), "no pass came"


def paced_engine(*, rows: int = 2) -> tuple[LocalEngine, PacedModel]:
    """An engine over a model of its own."""
    model = PacedModel()
    fields = {name: getattr(tiny_loaded(), name) for name in Loaded.__dataclass_fields__}
    loaded = Loaded(**(fields | {"model": model}))
    return LocalEngine(tiny_session(loaded, rows=rows)), model


async def all_of(stream: AsyncIterator[Event]) -> list[Event]:
    """Every event that is still to come."""
    return [event async for event in stream]


async def up_to(stream: AsyncIterator[Event], wanted: Callable[[Event], bool]) -> list[Event]:
    """The events up to and with the first wanted one."""
    seen: list[Event] = []
    async for event in stream:
        seen.append(event)
        if wanted(event):
            return seen
    raise AssertionError(f"the stream ended without the wanted event: {seen[-3:]}")
