"""The keystroke benchmark: its typist, its editor, its judge, and runs into made-up servers."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.editor_wire import EditorWire
from app.keystroke_report import figures, lines_of
from app.keystrokes import Answer, Played, Player
from app.trace_editor import TraceEditor
from app.trace_judge import Item, State, duplicates, is_stale, leaks
from app.traces import Trace, all_traces, chosen_traces
from app.typist import Typist
from engine.protocol import EngineError, RequestError

TRACES = all_traces()


class Pipe(EditorWire):
    """A wire to nobody, which keeps what is said."""

    def __init__(self) -> None:
        super().__init__(lambda method, params: None)
        self.said: list[tuple[str, Any]] = []

    def notify(self, method: str, params: Any) -> None:
        self.said.append((method, params))


def typed_out(trace: Trace, suggest: bool) -> TraceEditor:
    editor = TraceEditor(Pipe(), trace, "file:///x")
    typist = Typist(trace.name, trace.written(trace.types))
    while not typist.done:
        rest = editor.goal[editor.cursor :]
        offered = rest[:9] if suggest else ""
        assert typist.pause_s() > 0
        stroke = typist.next(offered)
        if stroke.kind == "delete":
            editor.delete()
        elif stroke.kind == "type":
            editor.type(stroke.text)
        else:
            editor.accept(Item(start=editor.cursor, end=editor.cursor, text=offered), stroke.text)
    return editor


def test_there_are_enough_traces_of_all_kinds() -> None:
    assert len(TRACES) >= 20
    assert len({trace.name for trace in TRACES}) == len(TRACES)
    languages = {trace.language for trace in TRACES}
    assert {"python", "typescript", "rust", "go", "markdown"} <= languages
    assert any(trace.newline == "\r\n" for trace in TRACES)
    assert {trace.client for trace in TRACES} == {"vscode", "neovim"}
    assert chosen_traces(["go-cache"])[0].language == "go"
    with pytest.raises(RequestError, match="go-cache"):
        chosen_traces(["nobody"])


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_however_it_is_typed_the_document_ends_as_it_should(trace: Trace) -> None:
    editor = typed_out(trace, suggest=False)
    assert editor.text == editor.goal
    if not trace.pairs:
        assert typed_out(trace, suggest=True).text == editor.goal
    assert ("\r\n" in editor.text) == (trace.newline == "\r\n")


def test_a_typist_is_the_same_person_every_time_and_slips_now_and_then() -> None:
    strokes = []
    for _ in range(2):
        typist, seen = Typist("someone", "the weather is rather nice today " * 20), []
        while not typist.done:
            seen.append(typist.next())
        strokes.append(seen)
    assert strokes[0] == strokes[1]
    assert any(one.kind == "delete" for one in strokes[0])


@given(text=st.text("ab \n(", max_size=30), name=st.text(max_size=3))
def test_what_a_typist_types_is_the_text(text: str, name: str) -> None:
    typist, now = Typist(name, text), ""
    while not typist.done:
        stroke = typist.next(text[len(now) : len(now) + 7])
        now = now[:-1] if stroke.kind == "delete" else now + stroke.text
    assert now == text


def state(text: str, at: float = 0.0) -> State:
    before, _, after = text.partition("▮")
    return State(at=at, text=before + after, cursor=len(before))


def item(text: str, start: int, end: int | None = None) -> Item:
    return Item(start=start, end=start if end is None else end, text=text)


def test_the_judge_knows_a_stale_suggestion() -> None:
    now = state("x = fo▮", at=10.0)
    assert not is_stale(item("o()", 6), [now], 10.5)
    assert not is_stale(item("foo()", 4, 6), [now], 10.5)
    assert is_stale(item("bar()", 4, 6), [now], 10.5)
    assert is_stale(item("oo()", 5), [now], 10.5)
    before = state("x = f▮", at=9.0)
    assert is_stale(item("oo()", 5), [before, now], 10.5)
    assert not is_stale(item("oo()", 5), [before, now], 10.01)


def test_the_judge_knows_leaks_and_duplicates() -> None:
    assert leaks(item("a<|fim_middle|>b", 0))
    assert leaks(item("<file_sep>", 0))
    assert not leaks(item("a <| b |> c < d", 0))
    assert duplicates(item("a, b)", 2), state("f(▮, b)"))
    assert not duplicates(item("a, b)", 2, 6), state("f(▮, b)"))
    assert duplicates(item("x = 1\n    return x", 0), state("▮\n    return x\n"))
    assert not duplicates(item("}", 0), state("▮\n}\n"))


class Echo(EditorWire):
    """A server that knows the goal, and answers with the rest of the line, or late, or wrong."""

    def __init__(self, mood: str) -> None:
        super().__init__(lambda method, params: None)
        self.mood = mood
        self.editor: TraceEditor | None = None
        self.cancelled: set[int] = set()
        self._number = 0

    def notify(self, method: str, params: Any) -> None:
        if method == "$/cancelRequest":
            self.cancelled.add(params["id"])

    def ask(self, method: str, params: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        self._number += 1
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self.mood == "gone":
            reply.set_exception(EngineError("server_gone", "it is gone", ""))
        else:
            asyncio.get_running_loop().call_soon(reply.set_result, self._reply(params))
        return self._number, reply

    def _reply(self, params: Any) -> dict[str, Any]:
        if self.mood == "silent":
            return {"result": None if self._number % 2 else []}
        if self.mood == "cancelling":
            return {"error": {"code": -32800}}
        assert self.editor is not None
        rest = self.editor.goal[self.editor.cursor :].partition("\n")[0].rstrip("\r")
        text = rest if self.mood == "right" else "<|im_end|>"
        place = params["position"]
        command = {"arguments": ["1-memory" if self._number % 2 else "1-model"]}
        return {
            "result": [
                {"insertText": text, "range": {"start": place, "end": place}, "command": command}
            ]
        }


def played(mood: str, name: str = "md-changes") -> dict[str, Any]:
    async def run() -> Player:
        wire = Echo(mood)
        player = Player(wire, chosen_traces([name])[0], "file:///x", speed=400.0)
        wire.editor = player.editor
        await player.play()
        return player

    player = asyncio.run(run())
    wrong = () if player.editor.text == player.editor.goal else (name,)
    return figures(
        Played(
            answers=tuple(player.answers),
            typed_chars=len(player.trace.types),
            accepted_chars=player.accepted,
            overruns=(0, 1),
            wrong_texts=wrong,
        )
    )


def test_right_suggestions_are_accepted_and_counted_by_where_they_came_from() -> None:
    told = played("right")
    assert told["accepted_chars"] > 0.3 * told["typed_chars"]
    assert set(told["outcomes"]) <= {"memory", "model", "cancelled"}
    assert told["share_from_memory"] == pytest.approx(0.5, abs=0.1)
    assert not told["stale"] + told["leaks"] + told["duplicates"] + told["wrong_texts"]
    assert told["most_tokens_after_a_cancel"] == 1


def test_leaks_show() -> None:
    assert len(played("leaky")["leaks"]) > 10


def test_silence_cancels_and_errors_are_told_apart() -> None:
    assert set(played("silent")["outcomes"]) == {"superseded", "nothing"}
    assert set(played("cancelling")["outcomes"]) == {"cancelled"}
    assert set(played("gone")["outcomes"]) == {"error"}


def test_the_report_is_read_by_people_too() -> None:
    answers = [Answer(trace="t", outcome="memory", ms=float(ms), lines=1) for ms in range(100)]
    answers.append(Answer(trace="t", outcome="model", ms=300.0, lines=2, stale=True))
    lines = list(
        lines_of(
            Played(
                answers=tuple(answers),
                typed_chars=10,
                accepted_chars=5,
                overruns=(),
                wrong_texts=(),
            )
        )
    )
    assert lines[1].split() == ["from", "memory", "50", "90", "95", "100"]
    assert "served from memory: 99% of 101 shown" in lines
    assert "stale: 1 (t)" in lines
    assert "leaks: 0" in lines


ECHO_SERVER = """
import sys
while (line := sys.stdin.buffer.readline()):
    length = int(line.split(b":")[1])
    sys.stdin.buffer.readline()
    body = sys.stdin.buffer.read(length)
    if b"exit" in body:
        break
    reply = body.replace(b'"method": "ask"', b'"result": 1')
    reply = reply.replace(b'"method": "shutdown"', b'"result": null')
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(reply), reply))
    sys.stdout.buffer.flush()
"""


def test_a_wire_gives_each_request_its_reply_and_survives_the_server() -> None:
    async def run() -> None:
        wire = EditorWire(lambda method, params: None)
        await wire.start([sys.executable, "-c", ECHO_SERVER], {})
        replies = [wire.ask("ask", {"number": n})[1] for n in range(20)]
        for number, reply in enumerate(await asyncio.gather(*replies)):
            assert reply["params"] == {"number": number}
        await wire.close()
        with pytest.raises(EngineError, match="ended"):
            await wire.ask("ask", None)[1]

    asyncio.run(asyncio.wait_for(run(), 20))


@settings(max_examples=30, deadline=None)
@given(text=st.text('a("é😀\n', max_size=20))
def test_the_editor_tells_the_server_each_change_as_it_is(text: str) -> None:
    """Checked with a model of the server's text that counts bytes."""
    trace = Trace(
        name="t", file="t.py", language="python", before="x\n😀", types=text, after="y", pairs=True
    )
    wire = Pipe()
    editor = TraceEditor(wire, trace, "file:///x")
    for character in text:
        editor.type(character)
    there = wire.said[0][1]["textDocument"]["text"]
    for _, params in wire.said[1:]:
        (change,) = params["contentChanges"]
        lines = there.split("\n")
        spots = []
        for side in ("start", "end"):
            place = change["range"][side]
            units = lines[place["line"]].encode("utf-16-le")[: 2 * place["character"]]
            spots.append(
                sum(len(line) + 1 for line in lines[: place["line"]])
                + len(units.decode("utf-16-le"))
            )
        there = there[: spots[0]] + change["text"] + there[spots[1] :]
    assert there == editor.text
