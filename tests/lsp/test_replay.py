"""What real editors sent, sent again: VS Code 1.100 and 1.139, Neovim 0.12 and Emacs 30.

`captures/` holds the messages of real sessions in their order, and the places at which the editor
had its reply. The editor's text is kept beside the server's by a model that counts bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lsp.positions import chosen
from tests.lsp.editor_side import NaiveText, Process
from tests.lsp.served import digest, prompt_digest

CAPTURES = sorted(Path(__file__).with_name("captures").glob("*.jsonl"))
INLINE = "textDocument/inlineCompletion"
HURRIED = ("emacs_lspmode10", "nvim0124", "vscode139_lc11")
CASES = [
    *(pytest.param(one, True, id=one.stem) for one in CAPTURES),
    *(
        pytest.param(one, False, id=f"{one.stem} without a pause")
        for one in CAPTURES
        if one.stem in HURRIED
    ),
]
ENCODING_OF = {"emacs": "utf-32", "nvim0": "utf-8", "vscod": "utf-16"}


def steps_of(capture: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capture.read_text(encoding="utf-8").splitlines()]


class Replay:
    """One captured session, sent to a server."""

    def __init__(self, server: Process, capture: Path, **options: Any) -> None:
        self.server = server
        self.steps = steps_of(capture)
        if options:
            self._first("initialize")["initializationOptions"] = options
        self.lines: list[str] = []
        """What was written into the client's log."""
        offered = self._first("initialize")["capabilities"]["general"]["positionEncodings"]
        self.encoding = chosen(offered)
        self.texts: dict[str, NaiveText] = {}
        self.seen: dict[int | str, tuple[str, int, dict[str, Any]]] = {}
        """Request → the document's text, the offset in it and the parameters, as it was sent."""
        self.replies: dict[int | str, dict[str, Any]] = {}

    def run(self, *, wait: bool) -> None:
        """Send everything; take each reply where the editor had it, or only the first few."""
        for step in self.steps:
            if step.get("send", {}).get("method") == "shutdown":
                self._until(*self.seen)
            if "send" in step:
                self._note(step["send"])
                self.server.send(step["send"])
                if step["send"].get("method") == "initialize":
                    self._until(step["send"]["id"])
            elif "await" in step and (wait or len(self.replies) < 3):
                self._until(step["await"])

    def _until(self, *requests: int | str) -> None:
        while not self.replies.keys() >= set(requests):
            message = self.server.hear()
            if "method" not in message:
                self.replies[message["id"]] = message
            elif message["method"] == "window/logMessage":
                self.lines.append(message["params"]["message"])
            elif "id" in message:
                self.server.send({"id": message["id"], "result": None})

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params")
        if method == "textDocument/didOpen":
            item = params["textDocument"]
            self.texts[item["uri"]] = NaiveText(item["text"], self.encoding)
        elif method == "textDocument/didChange":
            self.texts[params["textDocument"]["uri"]].apply(params["contentChanges"])
        elif method == INLINE:
            text = self.texts[params["textDocument"]["uri"]]
            # An id may be used again once its reply was had.
            self.replies.pop(message["id"], None)
            self.seen[message["id"]] = (text.text, text.offset(params["position"]), params)

    def _first(self, method: str) -> Any:
        for step in self.steps:
            if step.get("send", {}).get("method") == method:
                return step["send"]["params"]
        raise AssertionError(method)


@pytest.mark.parametrize(("capture", "wait"), CASES)
def test_every_wish_is_answered_for_the_text_and_the_place_it_was_about(
    capture: Path, wait: bool
) -> None:
    with Process("echo") as server:
        replay = Replay(server, capture)
        replay.run(wait=wait)
        assert replay.encoding == ENCODING_OF[capture.stem[:5]]
        outcomes: Counter[str] = Counter()
        for request, (text, offset, params) in replay.seen.items():
            reply = replay.replies[request]
            if "error" in reply:
                assert reply["error"]["code"] == -32800, reply
                outcomes["cancelled"] += 1
                continue
            if reply["result"] is None:
                outcomes["superseded"] += 1
                continue
            (item,) = reply["result"]
            assert item["insertText"] == digest(text, offset)
            place = {
                "line": params["position"]["line"],
                "character": item["range"]["end"]["character"],
            }
            assert item["range"] == {"start": place, "end": place}
            assert offset == NaiveText(text, replay.encoding).offset(place)
            outcomes["answered"] += 1
        print(capture.stem, dict(outcomes))
        assert outcomes["answered"] > 0
        assert not wait or outcomes["answered"] == len(replay.seen) - outcomes["cancelled"]
        assert not [line for line in server.errors if "Traceback" in line]


@pytest.mark.parametrize(("capture", "wait"), CASES)
def test_no_completion_is_stale_or_out_of_place(capture: Path, wait: bool) -> None:
    """The engine answers each prompt with a digest of it, so an answer tells what it was for."""
    with Process("complete") as server:
        replay = Replay(server, capture, debounceMs=0, multiline="never")
        replay.run(wait=wait)
        shown = 0
        for request, (text, offset, params) in replay.seen.items():
            reply = replay.replies[request]
            assert reply.get("error", {"code": -32800})["code"] == -32800, reply
            for item in reply.get("result") or ():
                naive = NaiveText(text, replay.encoding)
                start, end = (naive.offset(item["range"][side]) for side in ("start", "end"))
                assert item["range"]["start"]["line"] == params["position"]["line"]
                assert item["range"]["end"]["line"] == params["position"]["line"]
                assert start <= offset <= end
                typed = text[start:offset]
                assert item["insertText"].startswith(typed)
                entry = params["context"].get("selectedCompletionInfo", {}).get("text", "")
                before = text[:start] + entry if entry else text[:offset]
                rest = item["insertText"][len(entry or typed) :]
                assert rest.startswith(prompt_digest(before, text[offset:]))
                shown += 1
        print(capture.stem, f"{shown} shown for {len(replay.seen)} wishes")
        assert shown or not wait
        assert len(replay.lines) >= len(replay.seen) / 2
        assert not [line for line in server.errors if "Traceback" in line], server.errors


def test_the_captures_hold_what_they_are_kept_for() -> None:
    contents = {capture.stem: capture.read_text(encoding="utf-8") for capture in CAPTURES}
    assert len(contents) == 6
    assert '"triggerKind":0' in contents["vscode139_lc9"]
    assert '"selectedCompletionInfo"' in contents["vscode139_lc11"]
    assert '"inlineCompletion":null' in contents["emacs_lspmode10"]
    assert all("$/cancelRequest" in contents[name] for name in ("vscode139_lc11", "nvim0124"))
    assert all("😀" in contents[name] for name in ("vscode139_lc11", "nvim0124", "emacs_lspmode10"))
