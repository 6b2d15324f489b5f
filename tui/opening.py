"""From the first paint to an engine that has its model: opened, watched, loaded, exchanged.

Owns which model is wanted, whether it may be loaded or fetched by itself, and the task that watches
the engine. It must not know conversations.

Invariant: nothing is fetched for a model of the catalogue that is not here unless the user chose
it; an engine that was put to sleep or stopped is left so until a question needs it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.protocol import EngineError, EngineStatus, RequestError
from tui.stream import watch_engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.protocol import Failed, ModelInfo, SharedEngine
    from tui.chat_app import ChatStart
    from tui.chat_parts import ChatParts

LOST = "engine_lost"


class Opening:
    """The engine of one window."""

    def __init__(self, screen: ChatParts, start: ChatStart) -> None:
        self._screen = screen
        self._start = start
        self._engine: SharedEngine | None = None
        self._model = start.model
        self._model_before: str | None = None
        """What was wanted before a change whose end is not known yet."""
        self._status: EngineStatus | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop_settings: Callable[[], None] | None = None
        self._load_when_asleep = False
        self._was_lost = False
        self._declined = False
        """The wanted model is not here and was not chosen to be fetched."""

    @property
    def engine(self) -> SharedEngine:
        """The engine. Raises `RequestError` in the moment before it is known."""
        if self._engine is None:
            raise RequestError("not_ready", "the engine is not reached yet", "Wait a moment.")
        return self._engine

    @property
    def loading(self) -> bool:
        """Whether a load or a download is under way."""
        return self._status is not None and self._status.state == "loading"

    async def run(self) -> None:
        """Reach the engine, have a model chosen if there is none, and begin to watch."""
        self._engine = await asyncio.to_thread(self._start.open_engine)
        models = await asyncio.to_thread(self._start.models)
        if self._is_absent(models):
            chosen = await self._chosen_of(models, first=True)
            self._screen.prompt.focus()
            if chosen is None:
                self._screen.note("No model was chosen. /model asks again.")
            self._model = chosen or self._model
            self._declined = chosen is None
            self._load_when_asleep = chosen is not None
        else:
            self._load_when_asleep = True
        self._watch()
        if self._start.watch_settings is not None:
            self._stop_settings = await asyncio.to_thread(
                self._start.watch_settings, self._screen.post_message
            )

    def close(self) -> None:
        """End what was begun here."""
        if self._watching is not None:
            self._watching.cancel()
        if self._stop_settings is not None:
            self._stop_settings()
        if self._engine is not None:
            self._engine.close()

    def status_changed(self, status: EngineStatus) -> None:
        """Act on what the engine says of itself."""
        before, self._status = self._status, status
        was_loading = before is not None and before.state == "loading"
        if status.state == "failed" and status.failure is not None and status.failure.code == LOST:
            # The watch starts a lost engine once; its model is to be loaded again then.
            self._was_lost = self._load_when_asleep = True
        elif status.state == "asleep" and self._load_when_asleep:
            self._screen.act(self.use(self._model))
        elif status.state == "asleep" and was_loading and self._screen.asking.waiting:
            self._screen.act(self._wake())  # another window gave up what is waited for here
        elif status.state == "ready":
            self._load_when_asleep = False
            self._end_change(status, was_loading=was_loading)
            if self._was_lost:
                self._was_lost = False
                self._tell_back()
        if status.notice and (before is None or before.notice != status.notice):
            self._screen.note(status.notice)

    def gone(self, failure: Failed) -> None:
        """The engine can't be started or watched: say so, and leave it until it is needed."""
        error = EngineError(failure.code, failure.message, failure.hint)
        self._status = None
        self._watching = None
        self._screen.tell(error)

    def wake(self) -> None:
        """A question was asked: see to it that there is, or will be, a model."""
        if self._watching is None and self._engine is not None:
            self._watch()
        if self._status is None:
            self._load_when_asleep = True
        elif self._status.state in ("asleep", "failed"):
            self._screen.act(self._wake())

    async def use(self, name: str) -> None:
        """Have a model loaded, fetched if need be. Raises `EngineError`."""
        self._load_when_asleep = False
        await self.engine.use_model(name)
        if name != self._model:
            self._model_before = self._model
        self._model, self._declined = name, False
        if self._watching is None:
            self._watch()

    def _end_change(self, status: EngineStatus, *, was_loading: bool) -> None:
        """Want the model again that came back for one that could not be loaded."""
        if status.failure is not None and self._model_before is not None:
            self._model = self._model_before
        if status.failure is not None or was_loading:
            self._model_before = None

    async def _wake(self) -> None:
        try:
            if self._declined:
                await self.choose()
            else:
                await self.use(self._model)
        except EngineError:
            self._screen.asking.take_back()
            raise
        if self._declined:
            self._screen.asking.take_back()

    async def choose(self) -> None:
        """Have the user choose a model, and load it."""
        models = await asyncio.to_thread(self._start.models)
        chosen = await self._chosen_of(models, first=False)
        if chosen is not None:
            await self.use(chosen)

    async def stop_loading(self) -> None:
        """Give up a load; what was fetched is kept."""
        await self.engine.stop_loading()
        self._screen.note(
            "Loading was stopped; what was fetched is kept. /model or a question begins it again."
        )

    async def _chosen_of(self, models: tuple[ModelInfo, ...], *, first: bool) -> str | None:
        from tui.first_run import CatalogueScreen

        catalogue = CatalogueScreen(models, self._model, first=first)
        return await self._screen.app.push_screen_wait(catalogue)

    def _watch(self) -> None:
        self._watching = asyncio.create_task(
            watch_engine(self.engine, self._screen.post_message), name="watch the engine"
        )

    def _is_absent(self, models: tuple[ModelInfo, ...]) -> bool:
        wish = self._model.lower()
        return any(model.name.lower() == wish and not model.here for model in models)

    def _tell_back(self) -> None:
        lost = self._screen.asking.engine_back()
        offer = ""
        if lost is not None:
            goes_on = " /continue goes on from the text so far."
            offer = goes_on if lost else " /regenerate asks again."
        self._screen.note(f"The engine is back.{offer}")
