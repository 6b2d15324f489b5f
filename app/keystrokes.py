"""`bench --keystrokes`: recorded edits, typed at human speed into the real language server.

It starts the server as an editor would, over pipes, beside the user's own engine, types every
trace, and tells how long each key waited for its answer and what was wrong with the answers. The
server's own counts go to a folder that is thrown away. Owns the measuring; what is wrong is
`trace_judge`'s to say.

Invariant: a reply is judged by the document as it was when the reply came.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.editor_stats import completions_file
from app.editor_wire import EditorWire
from app.paths import user_paths
from app.settings import ENVIRONMENT
from app.trace_editor import TraceEditor
from app.trace_judge import Item, duplicates, is_stale, leaks
from app.traces import Trace, chosen_traces
from app.typist import READ_S, Stroke, Typist
from engine.protocol import EngineError, FillPrompt

if TYPE_CHECKING:
    from app.paths import Paths
    from app.settings import Settings

READY_S = 300.0
LAST_S = 5.0
"""How long the last answers of a trace are waited for."""
CANCELLED = -32800


class Answer(Struct, kw_only=True):
    """One request and what came of it."""

    trace: str
    outcome: str = "unanswered"
    """`model`, `memory`, `prefetch`, `nothing`, `superseded`, `cancelled` or `error`."""
    ms: float = 0.0
    """From the key to the answer."""
    lines: int = 0
    stale: bool = False
    leak: bool = False
    duplicate: bool = False


class Played(Struct, frozen=True, kw_only=True):
    """What came of all traces."""

    answers: tuple[Answer, ...]
    typed_chars: int
    accepted_chars: int
    overruns: tuple[int, ...]
    """Tokens computed after a cancel, for each cancel after which the engine could be looked at."""
    wrong_texts: tuple[str, ...]
    """Traces whose document did not end as it should have."""


class Player:
    """Types one trace."""

    def __init__(self, wire: EditorWire, trace: Trace, uri: str, speed: float) -> None:
        self.answers: list[Answer] = []
        self.accepted = 0
        self.trace = trace
        self._wire = wire
        self._speed = speed
        self.editor = TraceEditor(wire, trace, uri)
        self._typist = Typist(trace.name, trace.written(trace.types))
        self._shown: Item | None = None
        self._open: dict[int, asyncio.Task[None]] = {}
        self._newest = 0

    async def play(self, last_s: float = LAST_S) -> None:
        """Type all of it, and wait so long for the last answers."""
        self.editor.note(time.monotonic())
        self._wish(time.monotonic())
        while not self._typist.done:
            await asyncio.sleep(self._typist.pause_s() / self._speed)
            offered = self._shown
            stroke = self._typist.next(self._offered())
            if stroke.kind.startswith("accept"):
                await asyncio.sleep(READ_S / self._speed)
            self._do(stroke, offered)
        if self._open:
            await asyncio.wait(self._open.values(), timeout=last_s)
        for task in self._open.values():
            task.cancel()
        self.editor.close()

    def _offered(self) -> str:
        item = self._shown
        if item is None or is_stale(item, self.editor.states[-1:], time.monotonic()):
            return ""
        return item.text[self.editor.cursor - item.start :]

    def _do(self, stroke: Stroke, offered: Item | None) -> None:
        now = time.monotonic()
        if self.trace.client == "vscode":
            for number in self._open:
                self._wire.notify("$/cancelRequest", {"id": number})
        self._shown = None
        if stroke.kind == "delete":
            self.editor.delete()
        elif offered is not None and stroke.kind != "type":
            self.editor.accept(offered, stroke.text)
            self.accepted += len(stroke.text)
        else:
            self.editor.type(stroke.text)
        self.editor.note(now)
        self._wish(now)

    def _wish(self, now: float) -> None:
        number, reply = self._wire.ask("textDocument/inlineCompletion", self.editor.wish())
        self._newest = number
        answer = Answer(trace=self.trace.name)
        self.answers.append(answer)
        task = asyncio.get_running_loop().create_task(self._take(number, reply, answer, now))
        self._open[number] = task

    async def _take(
        self, number: int, reply: asyncio.Future[dict[str, Any]], answer: Answer, asked: float
    ) -> None:
        try:
            message = await reply
        except EngineError:
            answer.outcome = "error"
            return
        finally:
            del self._open[number]
        now = time.monotonic()
        answer.ms = (now - asked) * 1000
        if "error" in message:
            answer.outcome = "cancelled" if message["error"]["code"] == CANCELLED else "error"
        elif message["result"] is None:
            answer.outcome = "superseded"
        elif not message["result"]:
            answer.outcome = "nothing"
        else:
            self._judge(message["result"][0], answer, now, number)

    def _judge(self, told: dict[str, Any], answer: Answer, now: float, number: int) -> None:
        item = self.editor.item(told)
        answer.outcome = str(told["command"]["arguments"][0]).rpartition("-")[2]
        answer.lines = item.text.count("\n") + 1
        answer.stale = is_stale(item, self.editor.states, now)
        answer.leak = leaks(item)
        answer.duplicate = duplicates(item, self.editor.states[-1])
        if number == self._newest:
            self._shown = item


def run_keystrokes(
    names: Sequence[str], settings: Settings, out: TextIO, *, speed: float, as_json: bool
) -> None:
    """Type the named traces, or all, and print what came of it. Raises `EngineError`."""
    from app.keystroke_report import figures, lines_of

    traces = chosen_traces(names)
    player = play(traces, settings, speed, lambda line: sys.stderr.write(f"{line}\n"))
    played = asyncio.run(player)
    if as_json:
        told = {"traces": [trace.name for trace in traces], "speed": speed} | figures(played)
        out.write(msgspec.json.format(msgspec.json.encode(told)).decode() + "\n")
    else:
        out.writelines(line + "\n" for line in lines_of(played))


async def play(
    traces: Sequence[Trace], settings: Settings, speed: float, said: Callable[[str], object]
) -> Played:
    """Type the traces one after another into a server of its own. Raises `EngineError`."""
    paths = user_paths()
    await _wake(settings, paths)
    with tempfile.TemporaryDirectory(prefix="sspec-assist-keys-") as scratch:
        folder, data = Path(scratch) / "project", Path(scratch) / "data"
        folder.mkdir()
        for trace in traces:
            text = trace.written(f"{trace.before}\n{trace.after}")
            (folder / trace.file).write_bytes(text.encode())
        ready = asyncio.Event()
        wire = EditorWire(lambda method, params: _told(method, params, ready))
        await wire.start(_command(), _environment(settings, data))
        try:
            await _greet(wire, folder, ready)
            players = []
            for number, trace in enumerate(traces, start=1):
                said(f"{number}/{len(traces)} {trace.name}")
                players.append(await _played(wire, trace, folder, speed))
        finally:
            await wire.close()
        return _sums(players, _overruns(completions_file(replace(paths, data=data))))


async def _wake(settings: Settings, paths: Paths) -> None:
    """Have the model loaded, so that loading it is not measured."""
    from app.client import RemoteEngine

    engine = RemoteEngine(settings, paths, client="bench")
    await engine.measure(FillPrompt(prefix="", suffix=""))


def _command() -> list[str]:
    return [sys.executable, "-P", "-c", "from app.entry import main; main()", "lsp"]


def _environment(settings: Settings, data: Path) -> dict[str, str]:
    """This process's own, with the options of its command line and a data folder to throw away."""
    own = {
        variable: str(value)
        for variable, (table, key) in ENVIRONMENT.items()
        if (value := getattr(getattr(settings, table), key)) is not None
    }
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return os.environ | own | {"SSPEC_ASSIST_DATA": str(data), "PYTHONPATH": path}


def _told(method: str, params: Any, ready: asyncio.Event) -> None:
    if method == "sspecAssist/status" and params.get("state") == "ready":
        ready.set()


async def _greet(wire: EditorWire, folder: Path, ready: asyncio.Event) -> None:
    root = {"uri": folder.as_uri(), "name": folder.name}
    await wire.ask(
        "initialize",
        {
            "processId": os.getpid(),
            "clientInfo": {"name": "bench"},
            "workspaceFolders": [root],
            "capabilities": {"general": {"positionEncodings": ["utf-16"]}},
        },
    )[1]
    wire.notify("initialized", {})
    try:
        await asyncio.wait_for(ready.wait(), READY_S)
    except TimeoutError:
        raise EngineError(
            "engine_away",
            f"the language server had no engine within {READY_S:.0f} s",
            "`sspec-assist engine status` tells how it is.",
        ) from None


async def _played(wire: EditorWire, trace: Trace, folder: Path, speed: float) -> Player:
    player = Player(wire, trace, (folder / trace.file).as_uri(), speed)
    await player.play()
    return player


def _sums(players: Sequence[Player], overruns: Sequence[int]) -> Played:
    return Played(
        answers=tuple(answer for player in players for answer in player.answers),
        typed_chars=sum(len(player.trace.types) for player in players),
        accepted_chars=sum(player.accepted for player in players),
        overruns=tuple(overruns),
        wrong_texts=tuple(
            player.trace.name for player in players if player.editor.text != player.editor.goal
        ),
    )


def _overruns(file: Path) -> list[int]:
    """What the server has counted; it has been shut down, so all of it is written."""
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as store:
        rows = store.execute("SELECT tokens_after FROM cancels").fetchall()
    return [int(tokens) for (tokens,) in rows]
