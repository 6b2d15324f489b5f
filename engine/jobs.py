"""Who runs next: the engine's requests in the order they are served, and what each is told of it.

A fill goes before a chat, both before an idle fill, and within one kind the first come runs first
and to its end. One that is overtaken keeps its cache row and is told who goes before it; one that
has not begun is told how many do. Owned by the engine thread; knows no thread, no loop and no
torch.

Invariant: the first in turn can always take a row: of each kind at most one holds one, and where
there is a single row for both its holder is the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import Event, GenerateRequest, Paused, Priority, Queued, Resumed, Steering

if TYPE_CHECKING:
    from engine.answer import Answer


_ORDER: dict[Priority, int] = {"fill": 0, "chat": 1, "idle": 2}


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A request on its way."""

    request: GenerateRequest
    send: Callable[[Event], None]
    has_left: Callable[[], bool]
    """Whether nobody reads the events any more."""
    answer: Answer | None = None
    ahead: int = 0
    """How many go before it, as it was last told; 0 before that."""
    paused_at: float | None = None


def in_turn(jobs: Sequence[Job], *, one_row: bool) -> list[Job]:
    """`jobs`, given in the order they came, in the order they are to run.

    An idle fill that has the row of a fill that waits for it goes in that one's place.
    """
    wanted = any(job.answer is None and job.request.priority == "fill" for job in jobs)

    def rank(job: Job) -> tuple[bool, int]:
        priority = job.request.priority
        if priority == "idle" and job.answer is not None and wanted:
            priority = "fill"
        return one_row and job.answer is None, _ORDER[priority]

    return sorted(jobs, key=rank)


class Jobs:
    """All requests that are not over."""

    def __init__(self, *, one_row: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        """`one_row`: chats and fills share a single cache row. `clock` counts seconds."""
        self._one_row = one_row
        self._clock = clock
        self._jobs: list[Job] = []
        self._running: Job | None = None

    def __len__(self) -> int:
        """How many requests are not over."""
        return len(self._jobs)

    def __contains__(self, job: object) -> bool:
        """Whether a request is not over."""
        return job in self._jobs

    def add(self, job: Job) -> None:
        """Take in a request that has just come."""
        self._jobs.append(job)

    def steer(self, request_id: str, steering: Steering) -> None:
        """Let a request draft otherwise from its next round on; one that is over is left alone."""
        for job in self._jobs:
            if job.request.id != request_id:
                continue
            if job.answer is not None:
                job.answer.steer(steering)
            else:
                job.request = replace(job.request, route=steering.route, k=steering.k)

    def remove(self, job: Job) -> None:
        """End a request: its row is free again, and it is listed no more."""
        self._jobs.remove(job)
        if self._running is job:
            self._running = None
        if job.answer is not None:
            job.answer.close()

    def remove_those_left(self) -> None:
        """End the requests that nobody waits for."""
        for job in [job for job in self._jobs if job.has_left()]:
            self.remove(job)

    def remove_all(self) -> list[Job]:
        """Let go of every request and its answer, where no other will run; returns them."""
        ended, self._jobs, self._running = self._jobs, [], None
        for job in ended:
            job.answer = None
        return ended

    def choose(self) -> Job | None:
        """The request whose turn it is; tells the others what that means for them."""
        turns = in_turn(self._jobs, one_row=self._one_row)
        for ahead, job in enumerate(turns):
            if job.answer is None and ahead not in (0, job.ahead):
                job.ahead = ahead
                job.send(Queued(ahead=ahead))
        if not turns:
            return None
        self._switch(turns[0])
        return turns[0]

    def running(self) -> tuple[str, ...]:
        """Ids of the answers that were begun and are not paused."""
        return self._ids(lambda job: job.answer is not None and job.paused_at is None)

    def paused(self) -> tuple[str, ...]:
        """Ids of the answers that wait for a request of higher priority."""
        return self._ids(lambda job: job.paused_at is not None)

    def queued(self) -> tuple[str, ...]:
        """Ids of the requests that have not begun, the next one first."""
        turns = in_turn(self._jobs, one_row=self._one_row)
        return tuple(job.request.id for job in turns if job.answer is None)

    def _ids(self, wanted: Callable[[Job], bool]) -> tuple[str, ...]:
        return tuple(job.request.id for job in self._jobs if wanted(job))

    def _switch(self, chosen: Job) -> None:
        before, self._running = self._running, chosen
        now = self._clock()
        if before is not None and before is not chosen:
            before.paused_at = now
            before.send(Paused(by=chosen.request.client))
        if chosen.paused_at is not None:
            chosen.send(Resumed(paused_ms=(now - chosen.paused_at) * 1e3))
            chosen.paused_at = None
