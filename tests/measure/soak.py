"""Hours of typing in minutes: the recorded traces into a real server while a chat is answered.

    python -m tests.measure.soak --minutes 120 --speed 5

One language server, one daemon with the real model, and a chat that asks for long answers without
a pause. Every few seconds the resident memory of both processes is looked at. It ends with whether
memory stayed flat once the first third was over, which requests were lost and which processes were
left over; it fails if any of that is not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import Struct, field

from app import instance
from app.client import RemoteEngine
from app.editor_wire import EditorWire
from app.keystrokes import Answer, Player
from app.paths import user_paths
from app.settings import Settings
from app.traces import Trace, all_traces
from engine.protocol import ChatPrompt, Failed, Finished, GenerateRequest, SamplingParams, Turn
from tests.measure.live_editor import loaded, scratch, served

SAMPLE_S = 15.0
SETTLED = 1 / 3
"""Part of the time after which memory must not grow any more."""
FLAT = 0.05
NULLS = ("superseded",)
LOST = ("unanswered", "error")
FAULTS = ("stale", "leak", "duplicate")
GONE_S = 5.0
PATIENCE_S = 1200.0
"""A reply that comes late, on a machine that does other things too, is not a lost one."""
CHAT_TOKENS = 1024
TURNS = 4
"""Questions of one conversation."""
SUBJECTS = ("a text editor", "a key-value store", "a regular expression engine", "a web crawler")


class Sample(Struct, frozen=True, kw_only=True):
    """The two processes at one moment."""

    at_s: float
    daemon_bytes: int
    """0 for a process that is gone."""
    server_bytes: int


class Tally(Struct, kw_only=True):
    """What came of everything that was asked."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    lost: list[str] = []
    """Traces with a request that was lost or failed."""
    wrong_texts: list[str] = []
    traces: int = 0
    chats: int = 0
    chat_tokens: int = 0
    chat_failures: list[str] = []

    def add(self, trace: str, answers: Sequence[Answer], *, right_text: bool) -> None:
        """A trace was typed to its end."""
        self.traces += 1
        self.outcomes.update(one.outcome for one in answers)
        self.faults.update(name for one in answers for name in FAULTS if getattr(one, name))
        if any(one.outcome in LOST for one in answers):
            self.lost.append(trace)
        if not right_text:
            self.wrong_texts.append(trace)


def growth(samples: Sequence[int]) -> float:
    """By what part the highest of the samples after the first third is above the first of them."""
    settled = samples[round(len(samples) * SETTLED) :]
    if not settled or min(samples) == 0:
        return float("inf")
    return max(settled) / settled[0] - 1


def counts_of(tally: Tally) -> str:
    """The requests so far, in a line."""
    outcomes = tally.outcomes
    nulls = sum(outcomes[name] for name in NULLS)
    errors = outcomes["error"]
    silent = outcomes["unanswered"]
    cancelled = outcomes["cancelled"]
    sent = outcomes.total()
    answered = sent - nulls - errors - silent - cancelled
    return (
        f"{sent} sent: {answered} answered, {nulls} null, {cancelled} cancelled, {errors} errors, "
        f"{silent} without a reply; {tally.chats} chats of {tally.chat_tokens} tokens"
    )


def summary(samples: Sequence[Sample], tally: Tally, orphans: Sequence[str]) -> Iterator[str]:
    """The figures as lines."""
    for name in ("daemon", "server"):
        held = [getattr(one, f"{name}_bytes") for one in samples]
        settled = held[round(len(held) * SETTLED) :] or [0]
        flat = "flat" if growth(held) <= FLAT else "NOT FLAT"
        shown = [f"{amount / 2**20:.0f}" for amount in (settled[0], max(settled), settled[-1])]
        yield (
            f"{name}: {shown[0]} MiB after the first third, at most {shown[1]}, at last {shown[2]}"
            f" ({growth(held):+.1%}): {flat}"
        )
    yield f"{tally.traces} traces; {counts_of(tally)}"
    shown_wrong = [f"{tally.faults[name]} {name}" for name in FAULTS]
    yield f"faults: {', '.join(shown_wrong)}, {len(tally.wrong_texts)} wrong texts"
    yield f"lost requests: {len(tally.lost)}{_named(tally.lost)}"
    yield f"failed chats: {len(tally.chat_failures)}{_named(tally.chat_failures)}"
    yield f"orphans: {len(orphans)}{_named(orphans)}"


def holds(samples: Sequence[Sample], tally: Tally, orphans: Sequence[str]) -> bool:
    """Whether all is as it should be."""
    flat = all(
        growth([getattr(one, name) for one in samples]) <= FLAT
        for name in ("daemon_bytes", "server_bytes")
    )
    wrong = (tally.lost, tally.wrong_texts, tally.chat_failures, orphans, tally.faults)
    return flat and not any(wrong)


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(sorted(set(names)))})" if names else ""


async def soak(
    settings: Settings, folder: Path, minutes: float, speed: float, every_s: float
) -> tuple[list[Sample], Tally]:
    """Type and chat for so long."""
    engine, tally, samples = await loaded(settings, "chat"), Tally(), list[Sample]()
    traces = all_traces()
    for trace in traces:
        text = trace.written(f"{trace.before}\n{trace.after}")
        (folder / trace.file).write_bytes(text.encode())
    async with served(folder, {}, lambda line: None) as wire:
        beside = [
            asyncio.create_task(_chat(engine, tally)),
            asyncio.create_task(_look(engine, samples, tally, every_s)),
        ]
        try:
            await _type(wire, traces, folder, tally, (time.monotonic() + 60 * minutes, speed))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
        for task in beside:
            if not task.cancelled():
                task.result()  # it failed before its time
    return samples, tally


async def _type(
    wire: EditorWire,
    traces: Sequence[Trace],
    folder: Path,
    tally: Tally,
    pace: tuple[float, float],
) -> None:
    until, speed = pace
    for trace in itertools.cycle(traces):
        if time.monotonic() > until:
            return
        player = Player(wire, trace, (folder / trace.file).as_uri(), speed)
        await player.play(PATIENCE_S)
        right = player.editor.text == player.editor.goal
        tally.add(trace.name, player.answers, right_text=right)


async def _chat(engine: RemoteEngine, tally: Tally) -> None:
    """Ask one question after another; a conversation has a few of them."""
    for number in itertools.count():
        turns: tuple[Turn, ...] = ()
        for turn in range(TURNS):
            subject = SUBJECTS[(number + turn) % len(SUBJECTS)]
            asked = f"Explain at length, with code, part {number + turn} of how to write {subject}."
            turns = (*turns, Turn(role="user", content=asked))
            request = GenerateRequest(
                id=f"soak-{number}-{turn}",
                prompt=ChatPrompt(turns=turns),
                sampling=SamplingParams(temperature=0.7, max_tokens=CHAT_TOKENS, seed=number),
                conversation=f"soak-{number}",
            )
            text = await _answer(engine, request, tally)
            turns = (*turns, Turn(role="assistant", content=text))


async def _answer(engine: RemoteEngine, request: GenerateRequest, tally: Tally) -> str:
    text = ""
    async with engine.generate(request) as events:
        async for event in events:
            text += getattr(event, "text", "")
            if isinstance(event, Finished):
                tally.chats += 1
                tally.chat_tokens += event.usage.output_tokens
            elif isinstance(event, Failed):
                tally.chat_failures.append(f"{event.code}: {event.message}")
                await asyncio.sleep(1.0)
    return text


async def _look(engine: RemoteEngine, samples: list[Sample], tally: Tally, every_s: float) -> None:
    began, server = time.monotonic(), server_pid()
    record = instance.read_record(instance.place_of(user_paths().runtime))
    daemon = 0 if record is None else record.pid
    while True:
        await asyncio.sleep(every_s)
        sample = Sample(
            at_s=time.monotonic() - began,
            daemon_bytes=resident_bytes(daemon),
            server_bytes=resident_bytes(server),
        )
        samples.append(sample)
        sys.stderr.write(
            f"{sample.at_s:6.0f} s  daemon {sample.daemon_bytes / 2**20:.0f} MiB "
            f"(of it cached tokens {(await engine.status()).cache_bytes / 2**20:.0f}), "
            f"server {sample.server_bytes / 2**20:.0f} MiB; {counts_of(tally)}\n"
        )


def server_pid() -> int:
    """The language server that this process has started; 0 for none."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.cmdline()[-1:] == ["lsp"]:
                return int(child.pid)
    return 0


def resident_bytes(pid: int) -> int:
    """Of a process; 0 for one that is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss) if pid else 0
    except psutil.Error:
        return 0


def orphans_of(runtime: Path, patience_s: float = GONE_S) -> list[str]:
    """Processes that still belong to a runtime folder, after a while in which they may end."""
    deadline = time.monotonic() + patience_s
    while True:
        found = list[str]()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                owner = process.environ().get("SSPEC_ASSIST_RUNTIME")
                if owner == str(runtime) and process.pid != psutil.Process().pid:
                    found.append(f"{process.pid} {process.name()}")
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def main() -> int:
    """1 if something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--speed", type=float, default=5.0)
    parser.add_argument("--model", help="the default model if not given")
    parser.add_argument("--every", type=float, default=SAMPLE_S, metavar="SECONDS")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        folder = Path(place) / "project"
        folder.mkdir()
        with scratch(Path(place), asked.model) as settings:
            run = soak(settings, folder, asked.minutes, asked.speed, asked.every)
            samples, tally = asyncio.run(run)
            runtime = user_paths().runtime
        orphans = orphans_of(runtime)
    sys.stdout.writelines(f"{line}\n" for line in summary(samples, tally, orphans))
    return 0 if holds(samples, tally, orphans) else 1


if __name__ == "__main__":
    sys.exit(main())
