"""What a running chat costs an editor: one fill on an idle engine and beside a chat, pair by pair.

    python -m tests.measure.fill_beside_chat --pairs 10

A scratch daemon with the real model. Both fills of a pair have as many tokens to read, none of
them cached, and they take turns in who goes first; the chat is greedy and comes from a cold cache
each time. The bound is 1.25 × the time on the idle engine plus one of the chat's rounds, and the
chat's text has to be that of a chat that nobody interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from app.client import RemoteEngine
from app.settings import Settings
from engine.protocol import (
    ChatPrompt,
    Failed,
    FillPrompt,
    Finished,
    GenerateRequest,
    RoundDone,
    SamplingParams,
    Turn,
)
from tests.measure.live_editor import loaded, scratch

BOUND = 1.25
CHAT_TOKENS = 160
FILL_TOKENS = 32
ROUNDS_BEFORE = 12
"""Of the chat, before the editor asks."""
QUESTION = "Write a Python class for {} with a docstring, then explain it."
SUBJECTS = (
    "a matrix",
    "a priority queue",
    "a bank account",
    "a rational number",
    "a linked list",
    "a chess board",
    "a text editor's buffer",
    "a rate limiter",
    "a binary tree",
    "a calendar date",
    "a polynomial",
    "a shopping basket",
)
"""A new one for each pair, lest the chat copy its earlier answer in a few long rounds."""
PREFIX = '''"""Module {number:03}: what a shop sells."""

import math


def area(width: float, height: float) -> float:
    """The area of a rectangle."""
    return width * height


def total(prices: list[float], discount: float) -> float:
    """The sum of the prices, less a discount in per cent."""
'''
SUFFIX = """

def mean(values: list[float]) -> float:
    return total(values, 0.0) / len(values)
"""


class Pair(Struct, frozen=True, kw_only=True):
    """One fill asked both ways, in milliseconds from the request to its last event."""

    idle_ms: float
    beside_ms: float
    round_ms: float
    """The longest round of the chat before it was paused."""
    same_chat: bool

    @property
    def ratio(self) -> float:
        """Time beside the chat, less one round, by time on the idle engine."""
        return (self.beside_ms - self.round_ms) / self.idle_ms


def _fill(number: int) -> GenerateRequest:
    return GenerateRequest(
        id=f"fill-{number}",
        prompt=FillPrompt(prefix=PREFIX.format(number=number), suffix=SUFFIX, path="shop.py"),
        sampling=SamplingParams(max_tokens=FILL_TOKENS),
        priority="fill",
        client="editor",
    )


def _chat(number: int) -> GenerateRequest:
    question = QUESTION.format(SUBJECTS[number])
    return GenerateRequest(
        id=f"chat-{number}",
        prompt=ChatPrompt(turns=(Turn(role="user", content=question),)),
        sampling=SamplingParams(max_tokens=CHAT_TOKENS),
    )


async def _timed(engine: RemoteEngine, number: int) -> float:
    began = time.perf_counter()
    async with engine.generate(_fill(number)) as events:
        async for event in events:
            if isinstance(event, Failed):
                sys.exit(event.message)
    return 1e3 * (time.perf_counter() - began)


async def _beside(engine: RemoteEngine, chat: int, fill: int) -> tuple[float, float, str]:
    """Time of the fill, longest round of the chat before it, and the chat's text."""
    rounds, text, filling = list[float](), "", None
    async with engine.generate(_chat(chat)) as events:
        async for event in events:
            if isinstance(event, RoundDone) and filling is None:
                rounds.append(event.round_ms)
                if len(rounds) == ROUNDS_BEFORE:
                    filling = asyncio.create_task(_timed(engine, fill))
            elif isinstance(event, Finished):
                text = event.text
            elif isinstance(event, Failed):
                sys.exit(event.message)
    if filling is None:
        sys.exit("the chat ended before the editor asked")
    return await filling, max(rounds), text


async def _alone(engine: RemoteEngine, chat: int) -> str:
    """The chat's text when nobody interrupts."""
    async with engine.generate(_chat(chat)) as events:
        async for event in events:
            if isinstance(event, Finished):
                return event.text
    sys.exit("the chat did not end")


async def measured(settings: Settings, pairs: int) -> list[Pair]:
    """Ask both ways so many times."""
    engine = await loaded(settings, "measure")
    await _timed(engine, 0)
    found = list[Pair]()
    for number in range(pairs):
        fills = (2 * number + 1, 2 * number + 2)
        if number % 2:
            idle = await _timed(engine, fills[0])
            beside, round_ms, text = await _beside(engine, number, fills[1])
        else:
            beside, round_ms, text = await _beside(engine, number, fills[1])
            idle = await _timed(engine, fills[0])
        same = text == await _alone(engine, number)
        pair = Pair(idle_ms=idle, beside_ms=beside, round_ms=round_ms, same_chat=same)
        sys.stderr.write(
            f"{idle:6.0f} ms idle, {beside:6.0f} beside a chat (round {round_ms:.0f}):"
            f" {pair.ratio:.2f} ×{'' if same else ', the chat reads otherwise'}\n"
        )
        found.append(pair)
    return found


def summary(pairs: Sequence[Pair]) -> Iterator[str]:
    """The figures as lines."""
    ratios = sorted(pair.ratio for pair in pairs)
    yield (
        f"less one round, {statistics.median(ratios):.2f} × the idle engine's time"
        f" ({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(pairs)} pairs); bound {BOUND} ×"
    )
    yield f"chats that read as an undisturbed one: {sum(pair.same_chat for pair in pairs)}"


def main() -> int:
    """1 if a pair breaks the bound or a chat reads otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, choices=range(1, len(SUBJECTS) + 1))
    parser.add_argument("--model", help="the default model if not given")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="beside-") as place,
        scratch(Path(place), asked.model) as settings,
    ):
        pairs = asyncio.run(measured(settings, asked.pairs))
    sys.stdout.writelines(f"{line}\n" for line in summary(pairs))
    return 0 if all(pair.ratio <= BOUND and pair.same_chat for pair in pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
