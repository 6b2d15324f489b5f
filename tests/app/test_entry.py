"""What goes straight into the chat, and what the command line has to look at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import completion
from app.entry import COMPLETION, ChatWish, chat_wish, is_plain_editor

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        ([], ChatWish()),
        (["--resume"], ChatWish(resume=True)),
        (["--model", "x"], ChatWish(model="x")),
        (["-m", "./folder", "--resume"], ChatWish(model="./folder", resume=True)),
        (["--model=x=y"], ChatWish(model="x=y")),
        (["--model", "a", "--model", "b"], ChatWish(model="b")),
    ],
)
def test_what_plainly_means_the_chat(arguments: list[str], wish: ChatWish) -> None:
    assert chat_wish(arguments) == wish


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["--help"],
        ["--version"],
        ["--model"],
        ["--model="],
        ["--model", "--resume"],
        ["--resume", "ask"],
        ["--quant", "int8"],
        ["--modle", "x"],
        ["x"],
    ],
)
def test_everything_else_is_left_to_the_command_line(arguments: list[str]) -> None:
    assert chat_wish(arguments) is None


@pytest.mark.parametrize(
    ("arguments", "plain"),
    [
        (["lsp"], True),
        (["lsp", "--stdio"], True),
        (["lsp", "--help"], False),
        (["lsp", "--model", "x"], False),
        (["lsp", "lsp"], False),
        (["ask", "lsp"], False),
        ([], False),
    ],
)
def test_what_plainly_means_the_editor_s_server(arguments: list[str], plain: bool) -> None:
    assert is_plain_editor(arguments) is plain


def test_the_way_to_the_editor_loads_no_command_line() -> None:
    probe = (
        "import sys, app.entry, app.editor, app.logs; "
        "print(*[name for name in ('typer', 'pydantic', 'httpx', 'app.cli', 'pygls') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_shell_s_question_is_known_by_the_same_name() -> None:
    assert completion.VARIABLE == COMPLETION


def test_without_a_terminal_it_says_how_to_begin() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from app.entry import main; main()"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sspec-assist ask" in done.stdout


def test_the_way_to_the_chat_loads_no_command_line() -> None:
    probe = (
        "import sys, app.entry, app.chat, app.settings, app.logs, tui.chat_app; "
        "print(*[name for name in ('typer', 'pydantic', 'httpx', 'app.cli') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("arguments", ["models list", ""])
def test_a_program_without_standard_input_is_told_as_one_without_a_terminal(
    arguments: str, tmp_path: Path
) -> None:
    start = "from app.entry import main; main()"
    done = subprocess.run(
        f'"{sys.executable}" -c "{start}" {arguments} <&-',
        shell=True,
        cwd=ROOT,
        env={**os.environ, "SSPEC_ASSIST_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_streams_that_were_closed_before_the_start_hold_nothing_up() -> None:
    program = (
        "import sys; from app.entry import fill_in; fill_in(); "
        "sys.stdout.write(sys.stdin.read()); sys.stderr.write('lost'); sys.exit(3)"
    )
    command = f'"{sys.executable}" -c "{program}" <&- >&- 2>&-'
    assert subprocess.run(command, shell=True, cwd=ROOT, check=False).returncode == 3
