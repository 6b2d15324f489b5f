"""A local engine whose rounds wait for permission, so that tests need no clock to be in step."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from torch import Tensor

from engine.cache import Span
from engine.loading import Loaded
from engine.model import Model
from engine.protocol import Event
from engine.service import LocalEngine

from .tiny import tiny_architecture, tiny_tensors
from .tiny_session import LAYERS, tiny_loaded, tiny_session, vocabulary


class PacedModel(Model):
    """Counts its scoring passes (one a plain round) and, once held, asks leave for each."""

    def __init__(self, context: int = 512) -> None:
        arch = tiny_architecture(layers=LAYERS, vocab=vocabulary())
        super().__init__(arch, tiny_tensors(arch, "nf4"), context_tokens=context)
        self.passes = 0
        self.errors: list[BaseException] = []
        """Raised by the next scoring passes, one each."""
        self.trace: list[tuple[int, int]] = []
        """Cache row and width of every pass that began at the first layer: every step of a plain
        answer."""
        self._held = self._held_in_prefill = False
        self._leave = threading.Semaphore(0)
        self._waiting = threading.Event()

    def run_layers(
        self, hidden: Tensor, spans: Sequence[Span], *rest: Any, first: int, stop: int
    ) -> Tensor:
        if first == 0:
            self.trace += [(span.row, span.count) for span in spans]
            if self._held_in_prefill and len(hidden) > 1:
                self._ask_leave()
        return super().run_layers(hidden, spans, *rest, first=first, stop=stop)

    def logits(self, hidden: Tensor, vocab: int | None = None) -> Tensor:
        if self._held:
            self._ask_leave()
        self.passes += 1
        if self.errors:
            raise self.errors.pop(0)
        return super().logits(hidden, vocab)

    def hold(self, *, prefill: bool = False) -> None:
        """From now on every scoring pass waits for leave, and with `prefill` every wide one."""
        self._held, self._held_in_prefill = True, prefill

    def allow(self, passes: int) -> None:
        """Give leave for so many passes."""
        self._leave.release(passes)

    def free(self) -> None:
        """Let it run."""
        self._held = self._held_in_prefill = False
        self._leave.release(10_000)

    def wait_until_held(self) -> None:
        """Block until a pass waits for leave: the engine is in the middle of a step."""
        assert self._waiting.wait(timeout=60), "no pass came"

    def _ask_leave(self) -> None:
        self._waiting.set()
        self._leave.acquire()
        self._waiting.clear()


def paced_engine(*, rows: int = 2, context: int = 512) -> tuple[LocalEngine, PacedModel]:
    """An engine over a model of its own."""
    model = PacedModel(context)
    return LocalEngine(tiny_session(with_model(model), rows=rows)), model


def with_model(model: Model) -> Loaded:
    """The tiny model's surroundings with another model in them."""
    fields = {name: getattr(tiny_loaded(), name) for name in Loaded.__dataclass_fields__}
    return Loaded(**(fields | {"model": model, "context_tokens": model.context_tokens}))


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
