"""The server as an editor meets it: what it answers, to whom, and when it goes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import EngineError, EngineStatus, LoadProgress
from lsp.complete import Selected, Suggestion, Wanted
from lsp.document import Edit, Snapshot
from lsp.positions import ENCODINGS
from lsp.server import Host, Parts
from tests.fakes import STATUS, ScriptedEngine, answer_script
from tests.lsp.editor_side import (
    URI,
    Fixed,
    Process,
    Talk,
    at_cursor,
    insertion,
    parts_of,
    wish,
)
from tests.lsp.served import digest

INLINE = "textDocument/inlineCompletion"


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def talking(
    suggest: Callable[[Wanted], list[Suggestion] | None], **params: Any
) -> tuple[Talk, Fixed]:
    completer = Fixed(suggest)
    talk = Talk(parts_of(completer), **params)
    talk.notify("initialized", {})
    return talk, completer


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_item_has_a_range_in_the_client_s_own_units(encoding: str) -> None:
    async def work() -> None:
        def whole_word(wanted: Wanted) -> list[Suggestion]:
            end = wanted.snapshot.offset
            return [Suggestion(start=end - 2, end=end, text="😀é!", source="model", id="s1")]

        talk, _ = talking(
            whole_word, capabilities={"general": {"positionEncodings": [encoding, "utf-16"]}}
        )
        talk.open('x = "😀é";\ny')
        columns = {"utf-8": (5, 11), "utf-16": (5, 8), "utf-32": (5, 7)}[encoding]
        items = await talk.result(INLINE, wish(0, columns[1]))
        assert items == [
            {
                "insertText": "😀é!",
                "range": {
                    "start": {"line": 0, "character": columns[0]},
                    "end": {"line": 0, "character": columns[1]},
                },
                "command": {
                    "title": "Accepted",
                    "command": "sspecAssist.accepted",
                    "arguments": ["s1"],
                },
            }
        ]

    run(work)


def test_nothing_is_an_empty_list_and_superseded_is_null() -> None:
    async def work() -> None:
        for given, told in (([], []), (None, None)):
            talk, _ = talking(lambda _, given=given: given)
            talk.open("x")
            assert await talk.result(INLINE, wish(0, 1)) == told

    run(work)


def test_an_unknown_document_has_nothing_to_complete() -> None:
    async def work() -> None:
        talk, completer = talking(lambda wanted: [at_cursor(wanted)])
        assert await talk.result(INLINE, wish(0, 0)) == []
        talk.change(insertion(0, 0, "x"))
        talk.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
        assert await talk.result(INLINE, wish(0, 0)) == []
        assert completer.wanted == []

    run(work)


def test_a_document_whose_change_could_not_be_read_is_left_alone_until_its_whole_text_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Ear:
        heard: list[str] = []  # noqa: RUF012

        def opened(self, snapshot: Snapshot) -> None:
            self.heard.append(f"opened {snapshot.text} {snapshot.version} {snapshot.language}")

        def changed(self, snapshot: Snapshot, edits: tuple[Edit, ...]) -> None:
            self.heard.append(f"changed {snapshot.text}")

        def closed(self, uri: str) -> None:
            self.heard.append("closed")

        def folders_changed(self, folders: tuple[Path, ...]) -> None:
            pass

    async def work() -> None:
        completer, ear = Fixed(lambda wanted: [at_cursor(wanted)]), Ear()
        talk = Talk(parts_of(completer, listeners=(ear,)))
        talk.notify("initialized", {})
        talk.open("x = 1\n")
        assert await talk.result(INLINE, wish(0, 5)) != []
        talk.change({"range": "nowhere", "text": "y"}, version=2)
        for version in (3, 4):
            talk.change(insertion(0, 0, "z"), version=version)
            assert await talk.result(INLINE, wish(0, 0)) == []
        assert len(completer.wanted) == 1
        talk.change(insertion(0, 0, "?"), {"text": "new"}, insertion(0, 3, "!"), version=5)
        assert len(await talk.result(INLINE, wish(0, 4))) == 1
        snapshot = completer.wanted[-1].snapshot
        assert (snapshot.text, snapshot.version, snapshot.language) == ("new!", 5, "python")
        assert ear.heard == ["opened x = 1\n 1 python", "closed", "opened new! 5 python"]
        told = [record for record in caplog.records if "left alone" in record.message]
        assert len(told) == 1

    run(work)


def test_cells_of_a_notebook_whose_change_could_not_be_read_are_left_alone() -> None:
    async def work() -> None:
        talk, completer = talking(lambda wanted: [at_cursor(wanted)])
        cell = "vscode-notebook-cell:/project/n.ipynb#c1"
        item = {"uri": cell, "languageId": "python", "version": 1, "text": "x = "}
        talk.notify(
            "notebookDocument/didOpen",
            {
                "notebookDocument": {
                    "uri": "file:///project/n.ipynb",
                    "cells": [{"document": cell}],
                },
                "cellTextDocuments": [item],
            },
        )
        assert await talk.result(INLINE, wish(0, 4, uri=cell)) != []
        talk.notify(
            "notebookDocument/didChange",
            {
                "notebookDocument": {"uri": "file:///project/n.ipynb", "version": 2},
                "change": {"cells": {"textContent": 7}},
            },
        )
        assert await talk.result(INLINE, wish(0, 4, uri=cell)) == []
        assert len(completer.wanted) == 1

    run(work)


def test_a_document_closed_in_the_meantime_has_nothing_to_complete() -> None:
    async def work() -> None:
        talk, completer = talking(lambda wanted: [at_cursor(wanted)])
        completer.gate.clear()
        talk.open("x")
        asked = talk.ask(INLINE, wish(0, 1))
        await asyncio.sleep(0.05)
        talk.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
        completer.gate.set()
        assert (await talk.reply(asked))["result"] == []

    run(work)


def test_a_suggestion_over_two_lines_is_never_sent() -> None:
    async def work() -> None:
        wrong = Suggestion(start=0, end=4, text="x", source="model", id="1")
        talk, _ = talking(lambda _: [wrong])
        talk.open("ab\ncd")
        assert await talk.result(INLINE, wish(1, 2)) == []

    run(work)


def test_a_failing_engine_or_completer_is_nothing_and_is_told_once() -> None:
    async def work() -> None:
        def away(wanted: Wanted) -> list[Suggestion]:
            raise EngineError("engine_lost", "the engine is gone", "It starts again.")

        talk, _ = talking(away)
        talk.open("x")
        for _ in range(3):
            assert await talk.result(INLINE, wish(0, 1)) == []
        assert [told["message"] for told in talk.of("window/logMessage")] == [
            "the engine is gone. It starts again."
        ]
        assert not talk.of("window/showMessage")

        talk, _ = talking(lambda wanted: [at_cursor(wanted)][1:][0])
        talk.open("x")
        assert await talk.result(INLINE, wish(0, 1)) == []

    run(work)


def test_a_session_that_can_t_be_built_says_so_and_completes_nothing() -> None:
    async def work() -> None:
        def build(host: Host) -> Parts:
            raise EngineError("bad_config", "the settings file is broken", "Put it right.")

        talk = Talk(build)
        talk.notify("initialized", {})
        talk.open("x")
        assert await talk.result(INLINE, wish(0, 1)) == []
        assert [told["state"] for told in talk.of("sspecAssist/status")] == ["away"]
        assert talk.of("window/logMessage")[0]["message"] == (
            "the settings file is broken. Put it right."
        )

    run(work)


def test_line_ends_are_the_document_s_except_where_a_buffer_has_none() -> None:
    async def work() -> None:
        for name, text in (("Visual Studio Code", "a\r\nb"), ("Neovim", "a\nb")):
            talk, _ = talking(
                lambda wanted: [at_cursor(wanted, "a\r\nb")], clientInfo={"name": name}
            )
            talk.open("x\r\n")
            assert (await talk.result(INLINE, wish(0, 1)))[0]["insertText"] == text

    run(work)


# --- what clients send -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "explicit"),
    [
        ([2, 1, 2], [False, True, False]),  # as the protocol has it
        ([0, 1, 0], [True, False, True]),  # vscode-languageclient 9
        ([1, 2, 1], [True, False, True]),  # asked for before anything was typed
        ([None, 3, "x"], [False, False, False]),
    ],
)
def test_trigger_kinds_of_old_and_new_clients(kinds: list[Any], explicit: list[bool]) -> None:
    async def work() -> None:
        talk, completer = talking(lambda _: [])
        talk.open("x")
        for kind in kinds:
            await talk.result(INLINE, wish(0, 1, context={"triggerKind": kind}))
        assert [wanted.explicit for wanted in completer.wanted] == explicit

    run(work)


def test_kind_one_right_after_a_key_is_typing_until_more_is_known() -> None:
    async def work() -> None:
        talk, completer = talking(lambda _: [])
        talk.open("x")
        talk.change(insertion(0, 1, "y"))
        await talk.result(INLINE, wish(0, 2, context={"triggerKind": 1}))
        assert [wanted.explicit for wanted in completer.wanted] == [False]

    run(work)


@pytest.mark.parametrize("array", [False, True])
def test_the_selected_entry_in_either_shape(array: bool) -> None:
    async def work() -> None:
        talk, completer = talking(lambda _: [])
        talk.open("é = re")
        start, end = {"line": 0, "character": 4}, {"line": 0, "character": 6}
        place: Any = [start, end] if array else {"start": start, "end": end}
        info = {"range": place, "text": "result"}
        await talk.result(INLINE, wish(0, 6, context={"selectedCompletionInfo": info}))
        assert completer.wanted[0].selected == Selected(start=4, end=6, text="result")

    run(work)


@pytest.mark.parametrize(
    "context",
    [
        None,
        [],
        {"selectedCompletionInfo": None},
        {"selectedCompletionInfo": {"range": [1], "text": "a"}},
        {"selectedCompletionInfo": {"range": {"start": {}}, "text": 3}},
    ],
)
def test_a_context_of_any_shape_is_answered(context: Any) -> None:
    async def work() -> None:
        talk, completer = talking(lambda wanted: [at_cursor(wanted)])
        talk.open("x")
        assert len(await talk.result(INLINE, wish(0, 1, context=context))) == 1
        assert completer.wanted[0].selected is None

    run(work)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (INLINE, None),
        (INLINE, []),
        (INLINE, {"textDocument": {"uri": URI}}),
        (INLINE, {"textDocument": {"uri": 4}, "position": {"line": 0, "character": 0}}),
        (INLINE, {"textDocument": {"uri": URI}, "position": {"line": "x", "character": 0}}),
        ("workspace/executeCommand", {"arguments": []}),
    ],
)
def test_a_request_that_cannot_be_read_gets_an_error_reply(method: str, params: Any) -> None:
    async def work() -> None:
        talk, _ = talking(lambda wanted: [at_cursor(wanted)])
        talk.open("x")
        reply = await talk.reply(talk.ask(method, params))
        assert reply["error"]["code"] == -32602
        assert method in reply["error"]["message"]
        assert len(await talk.result(INLINE, wish(0, 1))) == 1
        assert not talk.of("window/showMessage")

    run(work)


def test_unknown_requests_are_refused_and_notifications_ignored() -> None:
    async def work() -> None:
        talk, _ = talking(lambda _: [])
        assert (await talk.reply(talk.ask("x/y", {})))["error"]["code"] == -32601
        talk.notify("x/y", {"z": 1})
        talk.notify("textDocument/didChange", {"textDocument": 3})
        talk.notify("$/cancelRequest", {"id": 999})
        talk.notify("$/setTrace", {"value": "off"})
        talk.raw({"jsonrpc": "2.0", "id": 77, "result": None})
        talk.raw({"jsonrpc": "2.0", "id": "78", "error": {"code": "x"}})
        assert (await talk.reply(talk.ask("initialize", {})))["error"]["code"] == -32600
        assert await talk.result("workspace/executeCommand", {"command": "none"}) is None

    run(work)


# --- cancelling ------------------------------------------------------------------------------


def test_cancelling_reaches_the_completer_and_every_request_is_answered_once() -> None:
    """A storm: each key cancels the wish of the one before."""

    async def work() -> None:
        talk, completer = talking(lambda wanted: [at_cursor(wanted)])
        completer.gate.clear()
        talk.open("")
        asked = []
        for step in range(100):
            talk.change(insertion(0, step, "k"), version=step + 2)
            asked.append(talk.ask(INLINE, wish(0, step + 1, context={"triggerKind": 2})))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if step:
                talk.notify("$/cancelRequest", {"id": asked[-2]})
        completer.gate.set()
        replies = [await talk.reply(one) for one in asked]
        assert [one["error"]["code"] for one in replies[:-1]] == [-32800] * 99
        assert replies[-1]["result"][0]["range"]["start"] == {"line": 0, "character": 100}
        ids = [one["id"] for one in talk.heard if "id" in one and "method" not in one]
        assert sorted(ids) == asked
        assert completer.cancelled == len(completer.wanted) - 1 > 50

    run(work)


def test_a_request_sees_the_document_as_it_was_when_it_came() -> None:
    async def work() -> None:
        talk, completer = talking(lambda wanted: [at_cursor(wanted)])
        talk.open("a")
        first = talk.ask(INLINE, wish(0, 1))
        await asyncio.sleep(0)
        talk.change(insertion(0, 1, "b"))
        second = talk.ask(INLINE, wish(0, 2))
        await talk.reply(first)
        await talk.reply(second)
        assert [one.snapshot.prefix for one in completer.wanted] == ["a", "ab"]
        assert [one.snapshot.version for one in completer.wanted] == [1, 2]

    run(work)


# --- documents, notebooks, folders -----------------------------------------------------------


class Heard:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def opened(self, snapshot: Snapshot) -> None:
        self.told.append(("opened", snapshot.name or snapshot.uri, snapshot.text))

    def changed(self, snapshot: Snapshot, edits: tuple[Edit, ...]) -> None:
        self.told.append(("changed", snapshot.text, snapshot.offset, edits))

    def closed(self, uri: str) -> None:
        self.told.append(("closed", uri))

    def folders_changed(self, folders: tuple[Path, ...]) -> None:
        self.told.append(("folders", folders))


class Failing(Heard):
    def opened(self, snapshot: Snapshot) -> None:
        raise RuntimeError("this listener fails")


def test_listeners_hear_everything_in_order_late_or_not() -> None:
    async def work() -> None:
        heard = Heard()
        talk = Talk(
            parts_of(Fixed(lambda _: []), listeners=(Failing(), heard)),
            workspaceFolders=[{"uri": "file:///project", "name": "project"}],
        )
        talk.open("one", uri="file:///project/src/a.py")
        talk.notify("initialized", {})
        await talk.hear(lambda one: one.get("method") == "sspecAssist/status")
        talk.open("two", uri="untitled:Untitled-1")
        talk.change(
            insertion(0, 0, "x"), insertion(0, 4, "y\n"), uri="untitled:Untitled-1", version=9
        )
        talk.notify(
            "workspace/didChangeWorkspaceFolders",
            {"event": {"added": [{"uri": "file:///project/src"}], "removed": []}},
        )
        talk.notify("textDocument/didClose", {"textDocument": {"uri": "untitled:Untitled-1"}})
        talk.open("three", uri="file:///project/src/a.py")
        edits = (Edit(start=0, end=0, text="x"), Edit(start=4, end=4, text="y\n"))
        assert heard.told == [
            ("folders", (Path("/project"),)),
            ("opened", "src/a.py", "one"),
            ("opened", "untitled:Untitled-1", "two"),
            ("changed", "xtwoy\n", 6, edits),
            ("folders", (Path("/project"), Path("/project/src"))),
            ("closed", "untitled:Untitled-1"),
            ("opened", "a.py", "three"),
        ]

    run(work)


def test_a_notebook_s_earlier_cells_come_before() -> None:
    async def work() -> None:
        talk, completer = talking(lambda _: [])
        cells = [f"vscode-notebook-cell:/project/n.ipynb#{name}" for name in "abcd"]
        kinds = ["python", "markdown", "python", "python"]
        items = [
            {"uri": uri, "languageId": kind, "version": 1, "text": f"{uri[-1]} = 1"}
            for uri, kind in zip(cells, kinds, strict=True)
        ]
        talk.notify(
            "notebookDocument/didOpen",
            {
                "notebookDocument": {
                    "uri": "file:///project/n.ipynb",
                    "notebookType": "jupyter-notebook",
                    "version": 1,
                    "cells": [{"kind": 2, "document": uri} for uri in cells[:3]],
                },
                "cellTextDocuments": items[:3],
            },
        )
        structure = {
            "array": {"start": 0, "deleteCount": 1, "cells": [{"kind": 2, "document": cells[3]}]},
            "didOpen": [items[3]],
            "didClose": [{"uri": cells[0]}],
        }
        await talk.result(INLINE, wish(0, 5, uri=cells[2]))
        text = [
            {
                "document": {"uri": cells[3], "version": 2},
                "changes": [insertion(0, 5, "23")],
            }
        ]
        talk.notify(
            "notebookDocument/didChange",
            {
                "notebookDocument": {"uri": "file:///project/n.ipynb", "version": 2},
                "change": {"cells": {"structure": structure, "textContent": text}},
            },
        )
        await talk.result(INLINE, wish(0, 5, uri=cells[2]))
        assert await talk.result(INLINE, wish(0, 5, uri=cells[0])) == []
        seen = [one.snapshot for one in completer.wanted]
        assert [one.before for one in seen] == ["a = 1\n", "d = 123\n"]
        assert seen[0].path == Path("/project/n.ipynb")
        assert (seen[0].text, seen[0].offset) == ("c = 1", 5)

    run(work)


def test_cells_opened_as_documents_come_in_the_order_of_opening() -> None:
    async def work() -> None:
        talk, completer = talking(lambda _: [])
        for name in "ab":
            talk.open(f"{name} = 1", uri=f"vscode-notebook-cell:/project/n.ipynb#{name}")
        talk.open("z = 1", uri="vscode-notebook-cell:/project/other.ipynb#z")
        await talk.result(INLINE, wish(0, 5, uri="vscode-notebook-cell:/project/n.ipynb#b"))
        assert completer.wanted[0].snapshot.before == "a = 1\n"

    run(work)


# --- settings --------------------------------------------------------------------------------


def test_settings_by_every_road_and_wrong_ones_told_once() -> None:
    async def work() -> None:
        talk, completer = talking(
            lambda wanted: [at_cursor(wanted)],
            capabilities={
                "workspace": {
                    "configuration": True,
                    "didChangeConfiguration": {"dynamicRegistration": True},
                }
            },
            initializationOptions={"languages": {"python": False}, "maxTokens": "many"},
        )
        talk.answers = {"workspace/configuration": [None], "client/registerCapability": None}
        talk.open("x")
        assert await talk.result(INLINE, wish(0, 1)) == []
        await talk.hear(lambda one: one.get("method") == "client/registerCapability")
        talk.notify(
            "workspace/didChangeConfiguration",
            {"settings": {"sspecAssist": {"languages": {"python": True}}}},
        )
        await asyncio.sleep(0.05)
        assert len(await talk.result(INLINE, wish(0, 1))) == 1
        talk.answers["workspace/configuration"] = [{"enabled": False}]
        talk.notify("workspace/didChangeConfiguration", {"settings": None})
        await talk.hear(
            lambda one: (
                one.get("method") == "sspecAssist/status" and one["params"]["state"] == "off"
            )
        )
        assert await talk.result(INLINE, wish(0, 1)) == []
        assert len(completer.wanted) == 1
        assert [told["message"] for told in talk.of("window/logMessage")] == [
            "sspecAssist.maxTokens is 'many': Expected `int`, got `str`. It stays 96."
        ]
        assert talk.of("workspace/configuration")[0] == {"items": [{"section": "sspecAssist"}]}

    run(work)


def test_a_language_is_known_by_all_its_names_where_the_others_are_off() -> None:
    async def work() -> None:
        languages = {"*": False, "shellscript": True}
        talk, _ = talking(
            lambda wanted: [at_cursor(wanted)], initializationOptions={"languages": languages}
        )
        for name, kind, found in (("a", "sh", 1), ("b", "python", 0)):
            uri = f"file:///project/{name}"
            item = {"uri": uri, "languageId": kind, "version": 1, "text": "x"}
            talk.notify("textDocument/didOpen", {"textDocument": item})
            assert len(await talk.result(INLINE, wish(0, 1, uri=uri))) == found

    run(work)


def test_an_engine_is_not_looked_for_while_completions_are_off() -> None:
    async def work() -> None:
        engine = Watched(answer_script("a"))
        talk = Talk(
            parts_of(Fixed(lambda _: []), engine=engine), initializationOptions={"enabled": False}
        )
        talk.notify("initialized", {})
        await talk.hear(lambda one: one.get("method") == "sspecAssist/status")
        assert engine.watches == 0
        talk.notify("workspace/didChangeConfiguration", {"settings": {"enabled": True}})
        await talk.hear(lambda one: one.get("params", {}).get("state") == "ready")
        assert engine.watches == 1

    run(work)


class Watched(ScriptedEngine):
    """An engine that counts its watchers, and may refuse the first ones."""

    watches = 0
    refusals = 0

    def watch(self) -> Any:
        self.watches += 1
        if self.watches <= self.refusals:
            raise EngineError("no_engine", "the engine can't be started", "Look at its log.")
        return super().watch()


# --- status and progress ---------------------------------------------------------------------


def test_loading_is_shown_as_progress_and_as_status() -> None:
    async def work() -> None:
        loading = EngineStatus(
            state="loading", model="m", load=LoadProgress(stage="reading", done=1, total=4)
        )
        engine = ScriptedEngine(answer_script("a"), status=loading)
        talk = Talk(
            parts_of(Fixed(lambda _: []), engine=engine),
            capabilities={"window": {"workDoneProgress": True}},
        )
        talk.answers = {"window/workDoneProgress/create": None}
        talk.notify("initialized", {})
        await talk.hear(lambda one: one.get("method") == "$/progress")
        engine.statuses.put_nowait(
            EngineStatus(state="loading", model="m", load=LoadProgress(stage="packing"))
        )
        engine.statuses.put_nowait(STATUS)
        await talk.hear(lambda one: one.get("params", {}).get("value", {}).get("kind") == "end")
        token = talk.of("window/workDoneProgress/create")[0]["token"]
        told = talk.of("$/progress")
        assert {one["token"] for one in told} == {token}
        assert [one["value"] for one in told] == [
            {
                "kind": "begin",
                "title": "sspec-assist: m",
                "message": "reading: 25 %",
                "cancellable": False,
            },
            {"kind": "report", "message": "packing"},
            {"kind": "end", "message": "scripted is ready on cpu."},
        ]
        assert [one["state"] for one in talk.of("sspecAssist/status")] == [
            "loading",
            "loading",
            "ready",
        ]

    run(work)


def test_clients_without_progress_or_with_no_wish_for_status_hear_none() -> None:
    async def work() -> None:
        engine = ScriptedEngine(answer_script("a"), status=EngineStatus(state="loading", model="m"))
        talk = Talk(parts_of(Fixed(lambda _: []), engine=engine), clientInfo={"name": "emacs"})
        talk.notify("initialized", {})
        talk.open("x")
        assert await talk.result(INLINE, wish(0, 0)) == []
        await asyncio.sleep(0.05)
        assert [one for one in talk.heard if "method" in one] == []

    run(work)


# --- the end ---------------------------------------------------------------------------------


def test_shutdown_cancels_what_runs_and_closes_what_was_built() -> None:
    async def work() -> None:
        closed: list[bool] = []

        async def close() -> None:
            closed.append(True)

        completer = Fixed(lambda wanted: [at_cursor(wanted)])
        completer.gate.clear()
        talk = Talk(parts_of(completer, close=close))
        talk.notify("initialized", {})
        talk.open("x")
        asked = talk.ask(INLINE, wish(0, 1))
        await talk.hear(lambda one: one.get("method") == "sspecAssist/status")
        await asyncio.sleep(0.02)
        assert await talk.result("shutdown") is None
        assert (await talk.reply(asked))["error"]["code"] == -32800
        assert (await talk.reply(talk.ask(INLINE, wish(0, 1))))["error"]["code"] == -32600
        assert closed == [True]
        assert completer.cancelled == 1

    run(work)


def test_an_accepted_item_is_told_by_its_id() -> None:
    async def work() -> None:
        ids: list[str] = []
        talk = Talk(parts_of(Fixed(lambda _: []), accepted=ids.append))
        talk.notify("initialized", {})
        await talk.hear(lambda one: one.get("method") == "sspecAssist/status")
        command = {"command": "sspecAssist.accepted", "arguments": ["s7"]}
        assert await talk.result("workspace/executeCommand", command) is None
        assert ids == ["s7"]

    run(work)


# --- a process of its own --------------------------------------------------------------------


def begin(server: Process, **params: Any) -> dict[str, Any]:
    server.send({"id": 0, "method": "initialize", "params": {"capabilities": {}, **params}})
    result = server.reply(0)["result"]
    server.send({"method": "initialized", "params": {}})
    assert isinstance(result, dict)
    return result


def test_initialize_is_answered_at_once_and_before_anything_heavy_is_loaded() -> None:
    begun = time.perf_counter()
    with Process("echo") as server:
        result = begin(server)
        print(f"initialize was answered after {time.perf_counter() - begun:.3f} s")
        assert result["capabilities"]["inlineCompletionProvider"] == {"workDoneProgress": False}
        assert result["capabilities"]["positionEncoding"] == "utf-16"
        assert result["capabilities"]["textDocumentSync"] == {"openClose": True, "change": 2}
        server.send({"id": 1, "method": "shutdown"})
        server.reply(1)
        assert server.errors[0] == "loaded:\n"


def test_standard_output_is_the_protocol_s_alone() -> None:
    with Process("echo") as server:
        begin(server)
        item = {"uri": URI, "languageId": "python", "version": 1, "text": "é\n"}
        server.send({"method": "textDocument/didOpen", "params": {"textDocument": item}})
        server.send({"id": 1, "method": INLINE, "params": wish(0, 1)})
        assert server.reply(1)["result"][0]["insertText"] == digest("é\n", 1)
        server.send({"id": 2, "method": "shutdown"})
        server.reply(2)
        server.send({"method": "exit"})
        server.process.wait(timeout=10)
        told = "".join(server.errors)
        assert "a stray line" in told
        assert "native code" in told


def test_too_early_too_late_and_broken_messages_are_answered() -> None:
    with Process("echo") as server:
        server.send({"id": 7, "method": INLINE, "params": wish(0, 0)})
        assert server.reply(7)["error"]["code"] == -32002
        server.send({"method": "textDocument/didOpen", "params": {}})
        server.send_bytes(b"{not json")
        assert server.hear()["error"]["code"] == -32700
        server.send_bytes(b"[" * 100_000)
        assert server.hear()["error"]["code"] == -32700
        begin(server)
        for broken in (b"{not json either", b"[" * 100_000):
            server.send_bytes(broken)
            while "error" not in (message := server.hear()):
                pass
            assert (message["id"], message["error"]["code"]) == (None, -32700)
        server.send({"id": {"a": 1}, "method": INLINE, "params": wish(0, 0)})
        while "error" not in (message := server.hear()):
            pass
        assert (message["id"], message["error"]["code"]) == (None, -32600)
        server.send_bytes(b"[1, 2]")
        while "error" not in (message := server.hear()):
            pass
        assert message["error"]["code"] == -32600
        server.send({"id": 8, "method": INLINE, "params": wish(0, 0)})
        assert server.reply(8)["result"] == []


@pytest.mark.parametrize("way", ["exit", "shutdown, exit", "end of input", "early exit"])
def test_the_process_ends_within_a_second(way: str) -> None:
    with Process("echo") as server:
        if way != "early exit":
            begin(server)
            server.send({"id": 1, "method": INLINE, "params": wish(0, 0)})
            server.reply(1)
        if way == "shutdown, exit":
            server.send({"id": 2, "method": "shutdown"})
            server.reply(2)
        begun = time.perf_counter()
        if way == "end of input":
            assert server.process.stdin is not None
            server.process.stdin.close()
        else:
            server.send({"method": "exit"})
        code = server.process.wait(timeout=10)
        took = time.perf_counter() - begun
        assert code == (0 if way == "shutdown, exit" else 1)
        assert took < 1.0, f"{way}: {took:.2f} s"


def test_the_server_follows_an_editor_that_died_without_a_word() -> None:
    editor = subprocess.Popen(["sleep", "60"])
    with Process("echo") as server:
        begin(server, processId=editor.pid)
        server.send({"id": 1, "method": INLINE, "params": wish(0, 0)})
        server.reply(1)
        editor.send_signal(signal.SIGKILL)
        editor.wait()
        assert server.process.wait(timeout=10) == 1


def test_a_file_of_a_megabyte_is_answered_while_it_is_typed_into() -> None:
    with Process("echo") as server:
        begin(server)
        text = "x = 1  # é\n" * 90_000
        item = {"uri": URI, "languageId": "python", "version": 1, "text": text}
        server.send({"method": "textDocument/didOpen", "params": {"textDocument": item}})
        begun = time.perf_counter()
        for step in range(50):
            change = insertion(45_000, step, "k")
            which = {"uri": URI, "version": step + 2}
            params = {"textDocument": which, "contentChanges": [change]}
            server.send({"method": "textDocument/didChange", "params": params})
        server.send({"id": 1, "method": INLINE, "params": wish(45_000, 50)})
        lines = text.split("\n")
        lines[45_000] = "k" * 50 + lines[45_000]
        expected = digest("\n".join(lines), len("\n".join(lines[:45_000])) + 51)
        assert server.reply(1)["result"][0]["insertText"] == expected
        print(f"50 keys in a megabyte took {time.perf_counter() - begun:.3f} s")
        assert json.dumps(server.errors).count("Traceback") == 0
