"""The command `lsp` as an editor starts it, as far as that needs no engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAIN = "import sys; from app.cli import main; sys.argv[0] = 'sspec-assist'; main()"


def talk(messages: list[dict[str, Any]], *options: str) -> tuple[int, list[dict[str, Any]], str]:
    """Say all of `messages` to a server, and tell its exit code, what it said and its stderr."""
    said = b""
    for message in messages:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        said += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    done = subprocess.run(
        [sys.executable, "-P", "-c", MAIN, "lsp", *options],
        input=said,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    heard, left = [], done.stdout
    while left:
        head, _, left = left.partition(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        heard.append(json.loads(left[:length]))
        left = left[length:]
    return done.returncode, heard, done.stderr.decode()


def session(options: dict[str, Any]) -> list[dict[str, Any]]:
    wish = {"textDocument": {"uri": "file:///a.py"}, "position": {"line": 0, "character": 1}}
    item = {"uri": "file:///a.py", "languageId": "python", "version": 1, "text": "x"}
    return [
        {
            "id": 1,
            "method": "initialize",
            "params": {"capabilities": {}, "initializationOptions": options},
        },
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": item}},
        {"id": 2, "method": "textDocument/inlineCompletion", "params": wish},
    ]


@pytest.mark.parametrize("options", [(), ("--stdio", "--clientProcessId=1")])
def test_a_session_with_completions_off_starts_no_engine(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    code, heard, err = talk(session({"enabled": False}), *options)
    assert code == 1, "the input ended without a word"
    assert heard[0]["id"] == 1
    assert "inlineCompletionProvider" in heard[0]["result"]["capabilities"]
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.sock"))


def test_a_mistake_in_the_settings_file_is_told_in_the_editor(tmp_path: Path) -> None:
    config = tmp_path / "home" / "config" / "sspec-assist" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[model]\nquant = 'nf5'\n", encoding="utf-8")
    # Nothing follows the wish, so the server has to be kept until it has replied to it.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, "lsp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for message in session({}):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    process.stdin.flush()
    told, reply = "", None
    while reply is None:
        length = int(process.stdout.readline().split(b":")[1])
        while process.stdout.readline().strip():
            pass
        message = json.loads(process.stdout.read(length))
        if message.get("method") == "window/logMessage":
            told = message["params"]["message"]
        elif message.get("id") == 2:
            reply = message
    process.stdin.close()
    process.wait(timeout=10)
    process.stdout.close()
    assert reply["result"] == []
    assert "quant" in told
    assert "nf5" in told
