"""The editors' own parts and the server have the same settings, states and names."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import fields

from lsp.hello import ACCEPTED
from lsp.messages import SECTION
from lsp.settings import MAX_DEBOUNCE_MS, MAX_TOKENS, EditorSettings, Multiline, camel
from lsp.status import METHOD, State, Status
from tests.contracts.test_readme import rows, section, written_default

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "lsp" / "clients"
VSCODE = CLIENTS / "vscode"
PACKAGE = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))
DEFAULTS = {
    camel(field.name): getattr(EditorSettings(), field.name) for field in fields(EditorSettings)
}
STATES = set(get_args(State))


def source(name: str) -> str:
    return (VSCODE / "src" / name).read_text(encoding="utf-8")


def names_in(text: str, start: str, end: str) -> list[str]:
    """The quoted names between two pieces of a source."""
    return re.findall(r'"([\w/]+)"', text.partition(start)[2].partition(end)[0])


def properties() -> dict[str, Any]:
    return {
        name.removeprefix(f"{SECTION}."): schema
        for name, schema in PACKAGE["contributes"]["configuration"]["properties"].items()
    }


def test_vs_code_has_the_server_s_settings_and_those_of_the_start() -> None:
    names = source("names.ts")
    of_server = names_in(names, "SERVER_SETTINGS", "];")
    of_start = names_in(names, "START_SETTINGS", "];")
    assert sorted(of_server) == sorted(DEFAULTS)
    assert sorted(properties()) == sorted([*of_server, *of_start])
    restricted = PACKAGE["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"]
    assert restricted
    assert sorted(restricted) == sorted(f"{SECTION}.{name}" for name in of_start)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_a_setting_has_the_server_s_default(name: str) -> None:
    default = DEFAULTS[name]
    assert properties()[name]["default"] == (list(default) if default == () else default)


def test_settings_have_the_server_s_ranges_and_a_description() -> None:
    found = properties()
    assert (found["debounceMs"]["minimum"], found["debounceMs"]["maximum"]) == (0, MAX_DEBOUNCE_MS)
    assert (found["maxTokens"]["minimum"], found["maxTokens"]["maximum"]) == (1, MAX_TOKENS)
    assert found["multiline"]["enum"] == list(get_args(Multiline))
    assert len(found["multiline"]["enumDescriptions"]) == len(found["multiline"]["enum"])
    assert all(len(schema["markdownDescription"]) > 10 for schema in found.values())


def test_readme_has_every_setting_with_its_default() -> None:
    table = section("Editors").partition("### Settings of the editor")[2].partition("\n### ")[0]
    written = {name: written_default(value) for name, value in DEFAULTS.items()}
    assert {row[0]: row[1] for row in rows(table)} == written


def test_vs_code_knows_the_server_s_words() -> None:
    names = source("names.ts")
    assert names_in(names, "SECTION =", ";") == [SECTION]
    assert names_in(names, "STATUS_METHOD =", ";") == [METHOD]
    status = source("status.ts")
    assert set(names_in(status, "type State =", ";")) == STATES
    body = status.partition("export interface Status {")[2].partition("}")[0]
    assert re.findall(r"readonly (\w+):", body) == [camel(field.name) for field in fields(Status)]


def test_vs_code_registers_the_commands_that_it_names() -> None:
    named = {command["command"] for command in PACKAGE["contributes"]["commands"]}
    body = source("extension.ts").partition("const commands")[2].partition("};")[0]
    registered = {f"{SECTION}.{name}" for name in re.findall(r"^ +(\w+): \(\)", body, re.MULTILINE)}
    assert named == registered
    assert ACCEPTED not in named, "that one is registered for the server by its own client library"


def test_neovim_and_emacs_know_the_server_s_words() -> None:
    lua = (CLIENTS / "neovim" / "sspec_assist.lua").read_text(encoding="utf-8")
    words = re.findall(r"^  (\w+) = ", lua.partition("local words")[2].partition("}")[0], re.M)
    assert {*words, "loading", "ready"} == STATES
    assert set(re.findall(r"status\.(\w+)", lua)) <= {camel(field.name) for field in fields(Status)}
    elisp = (CLIENTS / "emacs" / "sspec-assist.el").read_text(encoding="utf-8")
    for text in (lua, elisp):
        assert f'"{METHOD}"' in text
    assert f"settings = {{ {SECTION} = " in lua


def test_the_extension_is_of_this_version_and_names_no_host_of_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert PACKAGE["version"] == project["version"]
    assert PACKAGE["license"] == project["license"]
    lock = (VSCODE / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert "dependencies" not in PACKAGE, "all of it is bundled"
