"""A real VS Code with the packaged extension and the real default model.

Each test leaves a picture of the window in pytest's temporary folder (`--basetemp` says where).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.editors import installed, vscode
from tests.e2e.editors.programs import (
    MODEL_S,
    engine_of_its_own,
    environment,
    program,
    servers_of,
    settled,
    until,
)
from tests.e2e.editors.vscode import VSCode

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(900)]

HEADER = "def subtract(a: int, b: int) -> int:\n"
QUIET_S = 2.0
"""Longer than a completion takes on an idle machine; what has not come by then does not come."""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSCode]:
    """One window for all tests of this module, with the model in memory.

    The program lies in the project's own `.venv`, one of the places where the extension looks.
    """
    folder = tmp_path_factory.mktemp("vscode")
    file = folder / "project" / "sums.py"
    file.parent.mkdir()
    file.write_text("")
    program(file.parent / ".venv" / "bin" / "sspec-assist")
    editor = installed.vscode()
    with (
        engine_of_its_own(folder),
        vscode.running(editor, installed.vsix(editor), file, environment(folder)) as window,
    ):
        until(lambda: "sspec" in window.status(), "the item in the status bar")
        window.screenshot(folder / "starting.png")
        until(lambda: "is ready" in window.about(), "the model", MODEL_S)
        yield window
        said = " ".join(window.ask("texts", ".notifications-toasts"))
        assert "sspec" not in said, "nothing is to disturb who types"


@pytest.fixture
def empty(
    window: VSCode, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VSCode]:
    """The window with an empty document."""
    window.clear()
    yield window
    name = request.node.name.removeprefix("test_")
    window.screenshot(tmp_path_factory.getbasetemp() / f"vscode_{name}.png")


def test_a_header_brings_a_body_which_is_taken_as_it_was_seen(empty: VSCode) -> None:
    empty.type(HEADER)
    ghost = settled(empty.ghost, "grey text")
    assert "a - b" in ghost
    empty.becomes(HEADER + "    ")
    empty.press("Tab")
    empty.becomes(HEADER + "    " + ghost)
    empty.type("\n\n")
    settled(lambda: (empty.ghost(),), "rest")
    assert not empty.ghost().startswith(ghost)


def test_what_is_typed_along_stays_and_what_differs_ends_it(empty: VSCode) -> None:
    empty.type(HEADER)
    whole = settled(empty.ghost, "grey text")
    for index, key in enumerate(whole[:4], start=1):
        empty.type(key)
        rest = whole[index:]
        until(lambda rest=rest: empty.ghost() == rest, f"{rest!r} after {whole[:index]!r}")
    empty.type("zq")
    rest = whole[4:]
    until(lambda: not empty.ghost() or not rest.startswith(empty.ghost()), "the end of the old")


def test_words_are_taken_one_by_one(empty: VSCode) -> None:
    empty.type(HEADER)
    rest = settled(empty.ghost, "grey text")
    taken = HEADER + "    "
    for _ in range(4):
        empty.becomes(taken)
        empty.press("Control+ArrowRight")
        now = until(lambda taken=taken: empty.longer_than(taken), "a part of it")
        part = now.removeprefix(taken)
        assert rest.startswith(part)
        assert len(part) < len(rest)
        taken, rest = taken + part, rest.removeprefix(part)
        until(lambda rest=rest: empty.ghost() == rest, f"{rest!r} after {part!r}")


def test_asked_for_explicitly_there_are_alternatives(empty: VSCode) -> None:
    empty.type("def greeting(name: str, hour: int) -> str:\n")
    settled(empty.ghost, "grey text")
    empty.press("Escape")
    until(lambda: not empty.ghost(), "the end of the grey text")
    empty.command("Trigger Inline Suggestion")
    seen = {settled(empty.ghost, "grey text that was asked for")}
    for _ in range(2):
        empty.press("Alt+]")
        seen.add(settled(empty.ghost, "another one"))
    assert len(seen) > 1, seen


def test_a_storm_of_cancelled_requests_leaves_all_well(empty: VSCode) -> None:
    line = "numbers = sorted(value for value in range(100) if value % 7 == 3)\n"
    for pause_ms in (5, 30, 60):
        for _ in range(3):
            empty.type(line, pause_ms)
    empty.becomes(line * 9)
    empty.type("\n" + HEADER)
    ghost = settled(empty.ghost, "grey text")
    assert "a - b" in ghost
    empty.press("Tab")
    empty.becomes(line * 9 + "\n" + HEADER + "    " + ghost)
    assert empty.status().startswith("sspec")


def test_the_menu_turns_completions_off_and_on(empty: VSCode) -> None:
    empty.choose("Turn completions off")
    until(lambda: empty.status() == "sspec off", "that they are off")
    empty.type(HEADER)
    empty.becomes(HEADER + "    ")
    empty.stays_without_grey_text(QUIET_S)
    empty.choose("Turn completions on")
    until(lambda: "is ready" in empty.about(), "that they are on")
    empty.choose("Turn completions off for python")
    until(lambda: "off for python" in empty.about(), "that they are off for one language")
    empty.choose("Turn completions on for python")
    until(lambda: "is ready" in empty.about(), "that they are on for it")
    empty.clear()
    empty.type(HEADER)
    settled(empty.ghost, "grey text")


def test_a_restart_and_the_log(empty: VSCode) -> None:
    empty.choose("Restart")
    until(lambda: "is ready" in empty.about(), "the server that was started again")
    empty.type(HEADER)
    settled(empty.ghost, "grey text")
    empty.choose("Show log")
    # What is in it can't be seen here: VS Code writes it with a native part that is not installed.
    until(lambda: "sspec-assist" in empty.ask("texts", ".panel select option:checked"), "the log")


def test_a_server_that_dies_is_started_again(empty: VSCode) -> None:
    folder = empty.file.parents[1]
    [server] = servers_of(folder)
    server.kill()
    until(lambda: [one for one in servers_of(folder) if one.pid != server.pid], "another server")
    until(lambda: "is ready" in empty.about(), "the model")
    empty.type(HEADER)
    settled(empty.ghost, "grey text")
