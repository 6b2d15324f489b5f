"""What clients send as settings and as capabilities, in all the shapes that were seen or feared."""

from __future__ import annotations

from typing import Any

import pytest

from lsp.hello import hello_from
from lsp.settings import EditorSettings, read_settings


@pytest.mark.parametrize(
    "layer",
    [
        None,
        [],
        {},
        {"sspecAssist": None},
        {"sspecAssist": {}},
        {"sspecAssist": [], "other": 1},
        {"languages": [], "ignore": [], "model": "", "arguments": []},
        {"path": "/usr/bin/x", "trace": {"server": "off"}, "statusBar": True, "enabled": None},
    ],
)
def test_nothing_said_is_no_mistake(layer: Any) -> None:
    assert read_settings(layer) == read_settings()
    assert read_settings().settings == EditorSettings()


@pytest.mark.parametrize(
    ("layer", "complaint"),
    [
        (
            {"maxTokens": 0},
            "sspecAssist.maxTokens is 0: Expected a number from 1 up to 1024. It stays 96.",
        ),
        (
            {"multiline": "maybe"},
            "sspecAssist.multiline is 'maybe': Expected one of auto, never, always. "
            'It stays "auto".',
        ),
        (
            {"debounce": 5},
            "sspecAssist.debounce is not a setting. Did you mean debounceMs?",
        ),
        (
            {"debounceMs": -1},
            "sspecAssist.debounceMs is -1: Expected a number from 0 up to 5000. "
            "It stays what adapts itself.",
        ),
        ("on", "The settings are 'on'; an object was expected, defaults hold."),
        (
            {"sspecAssist": 3},
            "The settings are 3; an object was expected, defaults hold.",
        ),
        (
            {"languages": {"python": "no"}},
            "sspecAssist.languages is {'python': 'no'}: Expected `bool`, got `str`. It stays {}.",
        ),
    ],
)
def test_a_mistake_is_told_with_its_value_and_what_holds_instead(
    layer: Any, complaint: str
) -> None:
    reading = read_settings(layer)
    assert reading.complaints == (complaint,)
    assert reading.settings == EditorSettings()


def test_later_layers_win_key_by_key_and_a_mistake_keeps_what_was_said_before() -> None:
    reading = read_settings(
        {"maxTokens": 40, "debounceMs": 10, "ignore": ["*.gen.py"]},
        {"sspecAssist": {"debounce_ms": 20, "log_code": True}},
        {"maxTokens": "x", "multiline": "never"},
    )
    assert reading.settings == EditorSettings(
        max_tokens=40, debounce_ms=20, ignore=("*.gen.py",), log_code=True, multiline="never"
    )
    assert reading.complaints == (
        "sspecAssist.maxTokens is 'x': Expected `int`, got `str`. It stays 40.",
    )


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        {},
        {"capabilities": None, "clientInfo": None, "workspaceFolders": None, "rootUri": None},
        {"capabilities": {"general": {"positionEncodings": [None, 3]}}, "processId": "4"},
        {"capabilities": {"general": {"positionEncodings": []}}, "rootPath": ""},
        {"workspaceFolders": [None, {"uri": 3}], "clientInfo": {"name": 3}},
    ],
)
def test_a_client_that_says_little_is_understood(params: Any) -> None:
    hello = hello_from(params)
    assert (hello.encoding, hello.process_id, hello.folders) == ("utf-16", None, ())
    assert not any((hello.progress, hello.pulls, hello.registers))


def test_the_root_stands_in_for_folders() -> None:
    assert hello_from({"rootUri": "file:///p", "rootPath": "/q"}).folders == ("file:///p",)
    assert hello_from({"rootPath": "/a b"}).folders == ("file:///a%20b",)
    listed = [{"uri": "file:///x", "name": "x"}, {"uri": "file:///y", "name": "y"}]
    both = {"rootUri": "file:///p", "workspaceFolders": listed}
    assert hello_from(both).folders == ("file:///x", "file:///y")


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("Visual Studio Code", None, True),
        ("emacs", None, False),
        ("emacs", {"status": True}, True),
        ("Neovim", {"status": False}, False),
    ],
)
def test_who_is_told_the_status(name: str, options: Any, told: bool) -> None:
    hello = hello_from({"clientInfo": {"name": name}, "initializationOptions": options})
    assert hello.status is told
