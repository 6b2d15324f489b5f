"""Whose turn it is and what the others are told: a small machine against rules read off its log."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.answer import Answer
from engine.jobs import Job, Jobs, in_turn
from engine.protocol import Event, Paused, Priority, Queued, Resumed, Steering

from .stream_rules import check_stream
from .tiny_session import ask, fill, tiny_session


@dataclass
class Reader:
    """Who reads the events of one job."""

    job: Job
    events: list[Event] = field(default_factory=list)
    gone: bool = False


def come(jobs: Jobs, name: str, priority: Priority = "chat") -> Reader:
    request = replace(ask(id=name) if priority == "chat" else fill(id=name), priority=priority)
    reader = Reader(
        Job(
            request=request,
            send=lambda event: reader.events.append(event),
            has_left=lambda: reader.gone,
        )
    )
    jobs.add(reader.job)
    return reader


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def new_jobs(*, one_row: bool = False) -> Jobs:
    return Jobs(one_row=one_row, clock=Clock())


def begin(jobs: Jobs) -> Answer:
    """Do what the engine does with a job that it chose and that has not begun."""
    job = jobs.choose()
    assert job is not None
    assert job.answer is None
    job.answer = tiny_session(rows=2).start(job.request)
    return job.answer


def aheads(reader: Reader) -> list[int]:
    return [event.ahead for event in reader.events if isinstance(event, Queued)]


def test_each_is_told_how_many_go_first_whenever_that_changes() -> None:
    jobs = new_jobs()
    first, second, third = (come(jobs, name) for name in ("1", "2", "3"))
    begin(jobs)
    jobs.choose()
    assert (aheads(first), aheads(second), aheads(third)) == ([], [1], [2])
    jobs.remove(first.job)
    begin(jobs)
    assert (aheads(second), aheads(third)) == ([1], [2, 1])
    jobs.remove(second.job)
    begin(jobs)
    assert aheads(third) == [2, 1]


def test_a_fill_goes_first_and_moves_those_who_wait() -> None:
    jobs = new_jobs()
    chat, waiting = come(jobs, "chat"), come(jobs, "waiting")
    begin(jobs)
    filling = come(jobs, "fill", "fill")
    begin(jobs)
    assert aheads(waiting) == [1, 2]
    assert chat.events == [Paused(by="editor")]
    assert filling.events == []
    assert (jobs.running(), jobs.paused(), jobs.queued()) == (("fill",), ("chat",), ("waiting",))
    jobs.remove(filling.job)
    assert jobs.choose() is chat.job
    assert chat.events[1:] == [Resumed(paused_ms=250.0)]
    assert aheads(waiting) == [1, 2, 1]
    assert (jobs.running(), jobs.paused()) == (("chat",), ())


def test_an_idle_fill_gives_way_to_all_who_come() -> None:
    jobs = new_jobs()
    idle = come(jobs, "idle", "idle")
    begin(jobs)
    chat = come(jobs, "chat")
    begin(jobs)
    assert idle.events == [Paused(by="chat")]
    assert (jobs.running(), jobs.paused()) == (("chat",), ("idle",))
    jobs.remove(chat.job)
    assert jobs.choose() is idle.job
    second = come(jobs, "second", "idle")
    come(jobs, "third")
    begin(jobs)
    assert aheads(second) == [2]


def test_an_idle_fill_whose_row_is_wanted_ends_first() -> None:
    jobs = new_jobs()
    chat, idle = come(jobs, "chat"), come(jobs, "idle", "idle")
    begin(jobs)
    assert aheads(idle) == [1]
    jobs.remove(chat.job)
    begin(jobs)
    chat, filling = come(jobs, "chat2"), come(jobs, "fill", "fill")
    assert jobs.choose() is idle.job
    assert (aheads(filling), aheads(chat)) == ([1], [2])
    jobs.remove(idle.job)
    begin(jobs)
    assert jobs.running() == ("fill",)


def test_one_who_is_next_is_not_told_to_wait() -> None:
    jobs = new_jobs()
    come(jobs, "chat")
    begin(jobs)
    filling = come(jobs, "fill", "fill")
    jobs.choose()
    assert filling.events == []


def test_a_pause_that_two_fills_make_is_one() -> None:
    jobs = new_jobs()
    chat = come(jobs, "chat")
    begin(jobs)
    fills = [come(jobs, name, "fill") for name in ("a", "b")]
    for filling in fills:
        begin(jobs)
        jobs.remove(filling.job)
    jobs.choose()
    assert [type(event) for event in chat.events] == [Paused, Resumed]


def test_with_one_row_its_holder_goes_first() -> None:
    jobs = new_jobs(one_row=True)
    chat = come(jobs, "chat")
    begin(jobs)
    filling, second = come(jobs, "fill", "fill"), come(jobs, "second")
    assert jobs.choose() is chat.job
    assert chat.events == []
    assert (aheads(filling), aheads(second)) == ([1], [2])
    jobs.remove(chat.job)
    assert jobs.choose() is filling.job


def test_those_who_left_are_gone_and_their_rows_free() -> None:
    jobs = new_jobs()
    chat, other = come(jobs, "chat"), come(jobs, "other")
    answer = begin(jobs)
    chat.gone = True
    jobs.remove_those_left()
    assert answer.done
    assert jobs.choose() is other.job
    assert (jobs.running(), jobs.queued()) == ((), ("other",))


def test_one_that_was_paused_and_left_takes_its_pause_along() -> None:
    jobs = new_jobs()
    chat = come(jobs, "chat")
    begin(jobs)
    filling = come(jobs, "fill", "fill")
    begin(jobs)
    chat.gone = True
    jobs.remove_those_left()
    assert (jobs.running(), jobs.paused()) == (("fill",), ())
    jobs.remove(filling.job)
    assert jobs.choose() is None


def test_steering_reaches_the_one_that_waits_and_the_one_that_runs() -> None:
    jobs = new_jobs()
    running, waiting = come(jobs, "running"), come(jobs, "waiting")
    answer = begin(jobs)
    for name in ("running", "waiting", "nobody"):
        jobs.steer(name, Steering(route="copy", k=3))
    assert set(answer.drafting.drafters) == {"copy"}
    assert (running.job.request.route, running.job.request.k) == ("auto", None)
    assert (waiting.job.request.route, waiting.job.request.k) == ("copy", 3)


MOVES: dict[str, Priority] = {"chat": "chat", "fill": "fill", "idle": "idle"}


class Table:
    """Jobs played the way the engine thread plays them, with real answers on real rows."""

    def __init__(self, *, one_row: bool) -> None:
        self.one_row = one_row
        self.session = tiny_session(rows=1 if one_row else 2)
        self.jobs = new_jobs(one_row=one_row)
        self.readers: list[Reader] = []

    def play(self, move: str, which: int) -> None:
        if move == "step":
            self.step()
        elif move == "leave":
            for reader in self.readers[which : which + 1]:
                reader.gone = True
        else:
            name = f"{move}{len(self.readers)}"
            self.readers.append(come(self.jobs, name, MOVES[move]))

    def step(self) -> bool:
        """One step of whoever's turn it is; False when nobody is there."""
        self.jobs.remove_those_left()
        job = self.jobs.choose()
        if job is None:
            return False
        here = [reader.job for reader in self.readers if reader.job in self.jobs]
        assert job is in_turn(here, one_row=self.one_row)[0]
        if job.answer is None:
            job.answer = self.session.start(job.request)
            job.send(job.answer.started())
            return True
        for event in job.answer.step():
            job.send(event)
        if job.answer.done:
            self.jobs.remove(job)
        return True


@pytest.mark.parametrize("one_row", [False, True])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(["chat", "fill", "idle", "step", "step", "step", "leave"]),
            st.integers(0, 5),
        ),
        max_size=25,
    )
)
def test_any_coming_and_going_keeps_the_rules(one_row: bool, moves: list[tuple[str, int]]) -> None:
    """Among them: the first in turn can always take a row, and every stream is a whole one."""
    table = Table(one_row=one_row)
    for move, which in moves:
        table.play(move, which)
    while table.step():
        pass
    assert len(table.jobs) == 0
    for reader in table.readers:
        if not reader.gone:
            check_stream(reader.events)
    slots = table.session.slots
    kinds: tuple[Priority, ...] = ("chat",) if slots.one_for_all else ("chat", "fill")
    for kind in kinds:
        slots.take([1], priority=kind)  # which fails where no row is free
