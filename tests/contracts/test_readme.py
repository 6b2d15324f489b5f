"""README's commands and tables say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
import typer
from msgspec.structs import fields

from app.cli import EXIT_CODES, cli
from app.options import DecodeOptions, ModelOptions, SamplingOptions
from app.settings import ENVIRONMENT, TABLES, option_name

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GROUPS = (ModelOptions, DecodeOptions, SamplingOptions)


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Cells of the table rows of `text`, without header and rule."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def written_default(value: object) -> str:
    if value is None:
        return "open"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def test_the_settings_table_is_the_code_s() -> None:
    variables = {f"{t}.{k}": name for name, (t, k) in ENVIRONMENT.items()}
    options = {name for group in GROUPS for name in group.__dataclass_fields__}
    expected = [
        [
            f"{table}.{field.name}",
            option_name(field.name) if field.name in options else "",
            variables.get(f"{table}.{field.name}", ""),
            written_default(field.default),
        ]
        for table, struct in TABLES.items()
        for field in fields(struct)
    ]
    found = [row[:4] for row in rows(section("Settings"))]
    assert sorted(found) == sorted(expected)


def test_every_option_has_the_name_of_its_key() -> None:
    for group in GROUPS:
        for name, hint in get_type_hints(group, include_extras=True).items():
            [option] = [m for m in hint.__metadata__ if isinstance(m, typer.models.OptionInfo)]
            assert option_name(name) in (option.default, *(option.param_decls or ()))


def test_the_exit_codes_are_the_code_s() -> None:
    assert [(int(code), text) for code, text in rows(section("Exit codes"))] == list(
        EXIT_CODES.items()
    )


def test_every_command_is_explained() -> None:
    commands = set(typer.main.get_group(cli).commands)
    assert commands == set(re.findall(r"^### `([\w-]+)`", section("Use"), re.MULTILINE))


def test_the_examples_use_real_commands_and_options() -> None:
    group = typer.main.get_group(cli)
    for line in re.findall(r"^.*sspec-assist \w.*$", README, re.MULTILINE):
        found = re.search(r"sspec-assist (\w+)", line)
        assert found is not None
        if "`" in line or found[1] not in group.commands:
            continue
        known = {name for p in group.commands[found[1]].params for name in p.opts}
        assert set(re.findall(r" (--[a-z-]+)", line.partition("sspec-assist ")[2])) <= known, line


def test_ci_runs_the_test_command_word_for_word() -> None:
    [command] = re.findall(r"^python3 -m venv.* -m tests\.check$", README, re.MULTILINE)
    assert command in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()


def test_the_main_job_is_one_command() -> None:
    [command] = re.findall(r"^python3 -m venv.* ask .*$", README, re.MULTILINE)
    assert command.count("\n") == 0
    assert "-e ." in command


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:app|engine)/[\w/]+(?:\.py|/))`", README)))
)
def test_the_files_it_names_exist(path: str) -> None:
    assert (ROOT / path).exists()


def test_measured_blocks_are_whole() -> None:
    opened = re.findall(r"<!-- measured:([\w-]+) -->", README)
    closed = re.findall(r"<!-- /measured:([\w-]+) -->", README)
    assert opened == closed
    assert len(opened) == len(set(opened))
