"""Answers as deltas, and a stage to show them on. Shared by the tests of the transcript."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle

from msgspec import Struct
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from engine.protocol import Role, Snippet, TextDelta, TokenKind
from tui.answer_view import AnswerView
from tui.transcript import Transcript

KINDS: tuple[TokenKind, ...] = ("accepted", "accepted", "recovered", "accepted", "bonus", "plain")

DOCUMENT = """\
# Adding a cache

Wrap the **slow** call, as in [the docs](https://example.org/cache), and keep <b>raw</b> text.

1. Install it:
   ```bash
   pip install cachetools
   ```
2. Use it
   - with a limit that you choose so that the memory it takes stays within what you can spare
   - and a *time to live*

> Measure `before` and
> after.

| option | default | meaning |
|--------|--------:|---------|
| `size` | 128 | entries kept |
| ttl | 60 | **seconds** |

```python title="cache.py"
@cached(cache=TTLCache(maxsize=128, ttl=60))
def slow(x: int) -> int:
\treturn x + 1  # a comment that is long enough to be folded at the edge of the pane
```

### Mind

[bold]no markup[/bold], \x1b[31mno escapes\x1b[0m, \u202eno overrides, 日本語 and 👍.
"""


def deltas(text: str, words: int = 3, characters: int = 4) -> Iterator[TextDelta]:
    """The text in deltas of `words` tokens of `characters` each, the kinds taking turns."""
    kinds = cycle(KINDS)
    for start in range(0, len(text), words * characters):
        part = text[start : start + words * characters]
        spans = tuple(len(part[at : at + characters]) for at in range(0, len(part), characters))
        yield TextDelta(text=part, kinds=tuple(next(kinds) for _ in spans), spans=spans)


def snippet(path: str) -> Snippet:
    """An attached file."""
    return Snippet(path=path, text="x = 1\n")


class Stage(App[None]):
    """A transcript and nothing else; keeps what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript()
        self.acted: list[Transcript.Acted] = []

    def compose(self) -> ComposeResult:
        yield self.transcript

    def on_transcript_acted(self, event: Transcript.Acted) -> None:
        self.acted.append(event)

    def lines(self) -> list[str]:
        """What is on the screen, line by line, without the scrollbar."""
        strips = self.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip(" ▁▂▃▄▅▆▇█") for strip in strips]


def on_stage(
    play: Callable[[Stage, Pilot[None]], Awaitable[None]], size: tuple[int, int] = (80, 30)
) -> None:
    """Run a scene to its end."""

    async def run() -> None:
        stage = Stage()
        async with stage.run_test(size=size) as pilot:
            await play(stage, pilot)

    asyncio.run(run())


async def settle(stage: Stage, pilot: Pilot[None]) -> None:
    """Wait until everything asked for is on the screen."""
    for _ in range(2):
        await pilot.pause()
        await stage.workers.wait_for_complete()
    await pilot.pause()


class Kept(Struct, frozen=True, kw_only=True):
    """A message as the history gives it."""

    id: int
    role: Role
    content: str
    snippets: tuple[Snippet, ...] = ()
    state: str = "whole"
    kinds: bytes = b""


def thread(count: int, answer: str = "Answer **{}**.") -> list[Kept]:
    return [
        Kept(
            id=number,
            role="assistant" if number % 2 else "user",
            content=answer.format(number) if number % 2 else f"Question {number}?",
        )
        for number in range(count)
    ]


async def say(view: AnswerView, text: str) -> None:
    await view.append(TextDelta(text=text, kinds=("plain",), spans=(len(text),)))


def mixed_thread() -> Sequence[Kept]:
    return [
        Kept(id=1, role="user", content="How do I cache [this]?", snippets=(snippet("src/a.py"),)),
        Kept(id=2, role="assistant", content="Like so:\n\n```python\n@cache\ndef f(): ...\n```\n"),
        Kept(id=3, role="user", content="And 日本語?\n\tIndented."),
        Kept(id=4, role="assistant", content="- a\n- b, cut in the mid", state="partial"),
    ]
