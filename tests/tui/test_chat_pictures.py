"""How the chat looks in its main states; the pictures were looked at before they were kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import TextArea

from engine.protocol import (
    EngineStatus,
    Event,
    Failed,
    LoadProgress,
    Paused,
    Resumed,
    RoundDone,
    Started,
)
from tests.fakes import STATUS, ScriptedEngine, answer_script, round_of
from tests.tui.chat_harness import ask, chat, screen_of, send, until
from tui.diff_screen import DiffScreen
from tui.first_run import CatalogueScreen
from tui.history import History

MIB = 1 << 20
STATUS_NOW = replace(
    STATUS,
    model="qwen2.5-coder-0.5b",
    memory_bytes=866 * MIB,
    plain_tokens_per_s=11.5,
    fallback_tokens=6200,
)
ANSWER = """\
The loop reads one element too many: `range` already leaves its end out.

```python calc.py
def total(values):
    return sum(values[i] for i in range(len(values)))
```

- [bold]markup[/bold] stays text, and so does 日本語 🙂
- `values` may be **empty**: the sum is then 0
"""
FILE = "def total(values):\n    return sum(values[i] for i in range(len(values) + 1))\n"

Prepare = Callable[[Pilot[int]], Awaitable[None]]


def rounds(*pairs: tuple[int, int]) -> list[RoundDone]:
    return [
        replace(round_of(drafted=drafted, accepted=accepted, context=1200 + 9 * n), route="copy")
        if drafted
        else round_of(drafted=0, accepted=0, context=1200 + 9 * n, reason="nothing to copy")
        for n, (drafted, accepted) in enumerate(pairs)
    ]


MIXED = rounds((4, 4), (4, 3), (0, 0), (4, 4), (2, 1), (4, 2), (0, 0), (4, 4), (4, 4), (4, 1)) * 4
LOSING = [
    round_of(drafted=0, accepted=0, context=6200, reason="context 6.2k, drafts would cost 8 %")
] * 40


def held(events: Sequence[Event], count: int) -> ScriptedEngine:
    return ScriptedEngine(events, hold_after=count, status=STATUS_NOW)


async def answering(pilot: Pilot[int]) -> None:
    """Ask, and wait until the script holds and all that came is shown."""
    await ready(pilot)
    await send(pilot, "Why is the last element counted twice?")
    engine = screen_of(pilot).opening.engine
    assert isinstance(engine, ScriptedEngine)
    await engine.holding.wait()
    await pilot.pause(0.3)


async def answered(pilot: Pilot[int]) -> None:
    await ready(pilot)
    await ask(pilot, "Why is the last element counted twice?")
    await pilot.pause(0.3)


async def still(pilot: Pilot[int]) -> None:
    """Keep the cursor from blinking."""
    await until(pilot, lambda: bool(screen_of(pilot).query(TextArea)))
    screen_of(pilot).query_one(TextArea).cursor_blink = False


async def ready(pilot: Pilot[int]) -> None:
    await still(pilot)
    await until(pilot, lambda: screen_of(pilot).asking.status is not None)


async def detailed(pilot: Pilot[int]) -> None:
    await answered(pilot)
    await pilot.press("f3")
    await pilot.pause(0.2)


async def with_provenance(pilot: Pilot[int]) -> None:
    await answered(pilot)
    await pilot.press("ctrl+t")
    await pilot.pause(0.2)


async def preview(pilot: Pilot[int]) -> None:
    await answered(pilot)
    screen_of(pilot).transcript.focus()
    await pilot.press("up", "enter")
    await until(pilot, lambda: pilot.app.screen is not screen_of(pilot))
    await pilot.press("end", "enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, DiffScreen))
    await pilot.pause(0.2)


async def catalogue(pilot: Pilot[int]) -> None:
    await still(pilot)
    await until(pilot, lambda: isinstance(pilot.app.screen, CatalogueScreen))
    await pilot.pause(0.2)


async def help_(pilot: Pilot[int]) -> None:
    await ready(pilot)
    await pilot.press("f1")
    await pilot.pause(0.3)


PAUSED = [*answer_script(ANSWER, MIXED)[:13], Paused(by="editor")]
RESUMED = [*PAUSED, Resumed(paused_ms=180.0), Started(prompt_tokens=1, cached_tokens=1)]
LOADING = EngineStatus(
    state="loading",
    model="qwen2.5-coder-0.5b",
    memory_bytes=147 * MIB,
    load=LoadProgress(stage="reading weights", done=290 * MIB, total=468 * MIB),
)
BROKEN = EngineStatus(
    state="failed",
    model="qwen",
    failure=Failed(
        code="model_incomplete",
        message="model-00002-of-00003.safetensors is missing from '[models]/qwen'",
        hint="Fetch the folder again, or choose another model with /model.",
    ),
)
WIDE, NARROW = (100, 30), (40, 12)

STATES: dict[str, tuple[Callable[[], ScriptedEngine], Prepare, tuple[int, int]]] = {
    "loading": (lambda: ScriptedEngine([], status=LOADING), ready, WIDE),
    "speculating": (lambda: held(answer_script(ANSWER, MIXED), 21), answering, WIDE),
    "plain": (lambda: held(answer_script(ANSWER, LOSING), 40), answering, WIDE),
    "paused": (lambda: held(RESUMED, 14), answering, WIDE),
    "resumed": (lambda: held(RESUMED, 15), answering, WIDE),
    "answered": (lambda: held(answer_script(ANSWER, MIXED), 10_000), answered, WIDE),
    "details": (lambda: held(answer_script(ANSWER, MIXED), 10_000), detailed, (120, 40)),
    "provenance": (lambda: held(answer_script(ANSWER, MIXED), 10_000), with_provenance, WIDE),
    "diff": (lambda: held(answer_script(ANSWER, MIXED), 10_000), preview, WIDE),
    "error": (lambda: ScriptedEngine([], status=BROKEN), ready, WIDE),
    "catalogue": (lambda: ScriptedEngine([], status=STATUS_NOW), catalogue, WIDE),
    "help": (lambda: ScriptedEngine([], status=STATUS_NOW), help_, WIDE),
    "narrow": (lambda: held(answer_script(ANSWER, MIXED), 10_000), answered, NARROW),
    "narrow_loading": (lambda: ScriptedEngine([], status=LOADING), ready, NARROW),
    "narrow_speculating": (lambda: held(answer_script(ANSWER, MIXED), 21), answering, NARROW),
    "narrow_catalogue": (lambda: ScriptedEngine([], status=STATUS_NOW), catalogue, NARROW),
    "narrow_error": (lambda: ScriptedEngine([], status=BROKEN), ready, NARROW),
}


@pytest.mark.parametrize("state", STATES)
def test_picture(state: str, tmp_path: Path, snap_compare: Callable[..., bool]) -> None:
    engine, prepare, size = STATES[state]
    history = History.open(tmp_path / "history.sqlite")
    model = "absent-7b" if "catalogue" in state else "scripted"
    app = chat(engine(), tmp_path, model=model, history=history)
    (tmp_path / "work" / "calc.py").write_text(FILE)
    try:
        assert snap_compare(app, terminal_size=size, run_before=prepare)
    finally:
        history.close()
