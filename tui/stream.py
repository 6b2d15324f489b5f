"""Where the engine meets Textual: events come in here and leave as messages to the screen.

Owns one asyncio task per answer, the pace at which its text reaches the widgets and the history,
and the task that watches the engine. It must not know widgets, and nothing else in `tui` awaits
the engine's streams.

Invariant: every answer that was begun ends in exactly one `AnswerOver`, after what came of it was
handed to the history, whether it ended by itself, was stopped, or the engine was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import EngineError, Failed, Finished, TextDelta
from tui.messages import AnswerOver, AnswerProgress, EngineChanged, EngineGone, Outcome
from tui.meter_state import MeterState, leave, observe

if TYPE_CHECKING:
    from textual.message import Message

    from engine.protocol import Engine, Event, GenerateRequest, SharedEngine, Steering
    from tui.answer_record import AnswerRecord, Write

SHOW_EVERY_S = 0.1
"""Text reaches the screen at most this often: ten updates a second are smooth and cheap."""
KEEP_EVERY_S = 0.7
"""Text reaches the history at least this often, and a write may take the rest of the second."""

Post = Callable[["Message"], object]

log = logging.getLogger(__name__)


class Throttle:
    """Calls `action` soon after it was asked to, and never twice within `seconds`."""

    def __init__(self, seconds: float, action: Callable[[], object]) -> None:
        self._seconds = seconds
        self._action = action
        self._last = float("-inf")
        self._handle: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Have the action called when its time has come; costs nothing if that is arranged."""
        if self._handle is None:
            loop = asyncio.get_running_loop()
            due = max(loop.time(), self._last + self._seconds)
            self._handle = loop.call_at(due, self.now)

    def now(self) -> None:
        """Call the action at once instead of later."""
        self.cancel()
        self._last = asyncio.get_running_loop().time()
        self._action()

    def cancel(self) -> None:
        """Forget that the action was asked for."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class AnswerStream:
    """One answer on its way: from the engine to the screen and into the history."""

    def __init__(
        self,
        engine: Engine,
        request: GenerateRequest,
        record: AnswerRecord,
        post: Post,
        meter: MeterState,
    ) -> None:
        self.request = request
        self.answer = record.answer
        self._engine = engine
        self._record = record
        self._post = post
        self._meter = meter
        self._new: list[TextDelta] = []
        self._finished: Finished | None = None
        self._failed: Failed | None = None
        self._unsaved = ""
        self._stopped = False
        self._show = Throttle(SHOW_EVERY_S, self._post_progress)
        self._keep = Throttle(KEEP_EVERY_S, self._begin_journal)
        self._journalling: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; needs a running loop."""
        self._task = asyncio.create_task(self._run(), name=f"answer {self.answer}")

    def cancel(self) -> None:
        """Have it stop; `AnswerOver` follows when what came is kept."""
        if self._task is None or self._stopped or self._finished or self._failed:
            return  # a second cancel would break off the keeping
        self._stopped = True
        self._task.cancel()

    async def stopped(self) -> None:
        """Stop it and wait until what came is kept."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def steer(self, steering: Steering) -> None:
        """Have the rest of the answer drafted differently. Raises `EngineError`."""
        await self._engine.steer(self.request.id, steering)

    async def _run(self) -> None:
        try:
            async with self._engine.generate(self.request) as events:
                async for event in events:
                    self._take(event)
        except asyncio.CancelledError:
            log.debug("answer %s was stopped", self.answer)
        except EngineError as error:
            self._take(error.as_event())
        except Exception as error:
            # A fault of ours must still end the answer on the screen, and keep its text.
            log.exception("answer %s broke off", self.answer)
            self._take(Failed(code="internal", message=repr(error), hint="See the log."))
        self._meter = leave(self._meter)
        self._show.now()
        outcome = self._outcome()
        await self._save(outcome)
        outcome = replace(outcome, unsaved=self._unsaved)
        self._post(AnswerOver(self.answer, outcome, self._meter))

    def _take(self, event: Event) -> None:
        self._meter = observe(self._meter, event)
        match event:
            case TextDelta():
                self._record.take(event)
                self._new.append(event)
                self._keep.ask()
            case Finished():
                self._finished = event
            case Failed():
                self._failed = event
            case _:
                pass
        self._show.ask()

    def _post_progress(self) -> None:
        deltas, self._new = tuple(joined(self._new)), []
        self._post(AnswerProgress(self.answer, deltas, self._meter))

    def _begin_journal(self) -> None:
        if self._journalling is not None and not self._journalling.done():
            # The disk is slower than the pace; what it has not seen goes with the next write.
            self._journalling.add_done_callback(lambda _done: self._keep.ask())
            return
        write = self._record.journal()
        if write is not None:
            self._journalling = asyncio.create_task(self._write(write))

    async def _write(self, write: Write) -> None:
        try:
            await asyncio.to_thread(write)
            self._unsaved = ""
        except EngineError as error:
            self._unsaved = str(error)

    def _outcome(self) -> Outcome:
        ended = self._finished
        if ended is not None and ended.reason != "cancelled":
            return Outcome(
                state="whole" if ended.reason in ("stop", "stop_string") else "partial",
                text=self._record.text(ended.text),
                finished=ended,
            )
        return Outcome(
            state="failed" if self._failed is not None else "partial",
            text=self._record.text(),
            finished=ended,
            failed=self._failed,
        )

    async def _save(self, outcome: Outcome) -> None:
        self._keep.cancel()
        if self._journalling is not None:
            await asyncio.wait([self._journalling])
            self._keep.cancel()
        usage = None if self._finished is None else self._finished.usage
        write = self._record.finish(outcome, usage)
        if write is not None:
            await self._write(write)


def joined(deltas: list[TextDelta]) -> list[TextDelta]:
    """The same text and tokens in as few deltas as their spans allow, mostly one."""
    done: list[TextDelta] = []
    for delta in deltas:
        beyond = len(delta.text) - sum(delta.spans)
        spans = delta.spans
        if beyond and spans:
            # Text beyond the spans belongs to the token told last: made part of its own span, it
            # stays there whatever is joined on behind.
            spans = (*spans[:-1], spans[-1] + beyond)
        last = done[-1] if done else None
        if last is None or not last.kinds:
            done.append(TextDelta(text=delta.text, kinds=delta.kinds, spans=spans))
            continue
        before = last.spans
        if not delta.kinds:
            before = (*before[:-1], before[-1] + beyond)
        done[-1] = TextDelta(
            text=last.text + delta.text, kinds=last.kinds + delta.kinds, spans=before + spans
        )
    return done


async def watch_engine(engine: SharedEngine, post: Post) -> None:
    """Tell the screen each state of the engine until it is lost or the task is cancelled; however
    the watch ends, the screen hears of it."""
    try:
        async with engine.watch() as statuses:
            async for status in statuses:
                post(EngineChanged(status))
    except EngineError as error:
        post(EngineGone(error.as_event()))
    except Exception as error:
        log.exception("the watch on the engine broke off")
        what, hint = f"the engine can't be watched: {error!r}", "The next question tries again."
        post(EngineGone(Failed(code="internal", message=what, hint=hint)))
