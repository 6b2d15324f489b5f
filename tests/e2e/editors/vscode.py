"""A real VS Code in a browser without a screen: code-server with the packaged extension, and keys.

What is read is what is drawn: lines, grey text and the status bar, out of the page. The document
itself is read from its file, which is saved after each change.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.e2e.editors.installed import CHROMIUM, HERE
from tests.e2e.editors.programs import ANSWER_S, until

KEY_MS = 60
"""Between two keys of someone who types fast."""

ITEM = '[id="sspec-assist.sspec-assist.sspecAssist.status"]'
ENTRIES = ".quick-input-widget .monaco-list-row .label-name"

SETTINGS = {
    "chat.disableAIFeatures": True,
    "extensions.autoUpdate": False,
    "files.autoSave": "afterDelay",
    "files.autoSaveDelay": 50,
    "telemetry.telemetryLevel": "off",
    "workbench.startupEditor": "none",
    "window.autoDetectColorScheme": False,
    "editor.minimap.enabled": False,
}

CLEARINGS = 6
"""How often the keys that empty a document are pressed before that is given up."""


class VSCode:
    """One window with one file open."""

    def __init__(self, driver: subprocess.Popen[str], file: Path) -> None:
        self._driver = driver
        self.file = file

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One verb of the driver."""
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps([verb, *arguments]) + "\n")
        self._driver.stdin.flush()
        line = self._driver.stdout.readline()
        assert line, f"the browser ended at {verb}"
        answer = json.loads(line)
        assert "error" not in answer, f"{verb}{arguments}: {answer['error']}"
        return answer["value"]

    def press(self, *keys: str) -> None:
        for key in keys:
            self.ask("press", key)

    def type(self, text: str, pause_ms: int = KEY_MS) -> None:
        """Type a text, a key at a time."""
        self.ask("type", text, pause_ms)

    def command(self, title: str) -> None:
        """Run a command by its title, from the palette."""
        self.press("F1")
        until(lambda: self.ask("texts", ".quick-input-widget input") != [], "the palette")
        self.type(title, 5)
        until(lambda: any(title in entry for entry in self.ask("texts", ENTRIES)), title)
        self.press("Enter")

    def ghost(self) -> str:
        """The grey text that is shown now."""
        return str(self.ask("seen")["ghost"])

    def lines(self) -> list[str]:
        """The lines as they are drawn, the grey text of one line among them."""
        return list(self.ask("seen")["lines"])

    def status(self) -> str:
        """What the item in the status bar says."""
        return " ".join(self.ask("texts", ITEM)).strip()

    def about(self) -> str:
        """What the item's tooltip says, as a screen reader is told it."""
        return " ".join(map(str, self.ask("labels", f"{ITEM} a")))

    def choose(self, label: str) -> None:
        """Click on the item and choose from its menu."""
        self.press("Escape")
        self.ask("click", ITEM)
        until(lambda: label in [entry.strip() for entry in self.ask("texts", ENTRIES)], label)
        self.ask("click_text", ENTRIES, label)
        self.ask("click", ".editor-instance .view-lines")

    def stays_without_grey_text(self, seconds: float) -> None:
        """Look for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.ghost() == ""

    def document(self) -> str:
        """The document, as it was saved after the last change."""
        return self.file.read_text()

    def longer_than(self, text: str) -> str:
        """The document if it goes on after `text`; empty if not, or in the middle of saving."""
        now = self.document()
        return now if now.startswith(text) and now != text else ""

    def becomes(self, text: str) -> None:
        """Wait until the document is this text."""
        deadline = time.monotonic() + ANSWER_S
        while (now := self.document()) != text:
            assert time.monotonic() < deadline, f"{now!r} did not become {text!r}"
            time.sleep(0.05)

    def clear(self) -> None:
        """Empty the document, wherever the last test left the focus and whatever is still drawn."""
        for _ in range(CLEARINGS):
            self.press("Escape", "Escape")
            self.ask("click", ".editor-instance .view-lines")
            self.press("Control+a", "Delete")
            with suppress(AssertionError):
                until(lambda: self.document() == "", "an empty document", ANSWER_S / CLEARINGS)
                return
        self.becomes("")

    def screenshot(self, file: Path) -> None:
        self.ask("screenshot", str(file))


@contextmanager
def running(
    installed: Path, extension: Path, file: Path, environment: Mapping[str, str]
) -> Iterator[VSCode]:
    """A VS Code with one file open, which is gone afterwards, and all that it started."""
    place = file.parents[1]
    node = str(installed / "node" / "bin" / "node")
    server = [node, str(installed / "node_modules/code-server/out/node/entry.js")]
    config = place / "code-server.yaml"
    config.write_text("{}\n")
    user = place / "user" / "User"
    user.mkdir(parents=True)
    (user / "settings.json").write_text(json.dumps(SETTINGS))
    # No gallery: nothing is to be looked up anywhere.
    environment = dict(environment) | {"EXTENSIONS_GALLERY": '{"serviceUrl": ""}'}
    options = [
        *("--config", str(config), "--auth", "none", "--disable-telemetry"),
        *("--user-data-dir", str(user.parent), "--extensions-dir", str(place / "extensions")),
    ]
    _install(server + options, extension, environment)
    port = _free_port()
    more = [
        *("--bind-addr", f"127.0.0.1:{port}", "--disable-update-check"),
        *("--disable-workspace-trust", "--disable-getting-started-override"),
    ]
    with (
        (place / "code-server.log").open("w") as log,
        _started([*server, *options, *more, str(file.parent)], environment, stdout=log, stderr=log),
        _started(
            [node, str(HERE / "browser.mjs"), str(installed), CHROMIUM], environment
        ) as driver,
    ):
        until(lambda: _healthy(port), "code-server")
        window = VSCode(driver, file)
        payload = json.dumps([["openFile", f"vscode-remote://127.0.0.1:{port}{file}"]])
        query = urllib.parse.urlencode({"folder": str(file.parent), "payload": payload})
        window.ask("open", f"http://127.0.0.1:{port}/?{query}")
        yield window
        assert driver.stdin is not None
        driver.stdin.close()
        driver.wait(timeout=30)


def _install(server: list[str], extension: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [*server, "--install-extension", str(extension)],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _started(
    command: list[str], environment: Mapping[str, str], **streams: Any
) -> Iterator[subprocess.Popen[str]]:
    pipes = streams or {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE}
    process = subprocess.Popen(
        command, env=dict(environment), text=True, start_new_session=True, **pipes
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # What it started is in its process group; a language server may be among it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
