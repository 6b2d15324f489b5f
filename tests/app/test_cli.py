"""The command line as a user meets it: help, exit codes, and what reaches the engine."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from app.cli import EXIT_CODES, cli
from app.paths import user_paths
from engine.protocol import (
    ChatPrompt,
    EngineError,
    Failed,
    FillPrompt,
    MemoryLimitError,
    ModelError,
    RequestError,
    SamplingParams,
    Started,
)
from tests.fakes import ScriptedEngine, answer_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from app.settings import Settings
    from engine.protocol import Engine


class Opened:
    """Stands for `open_engine`: hands out one engine and keeps the settings it was asked with."""

    def __init__(self, engine: ScriptedEngine, error: BaseException | None = None) -> None:
        self.engine = engine
        self.error = error
        self.settings: Settings | None = None

    @contextmanager
    def __call__(self, settings: Settings) -> Iterator[Engine]:
        self.settings = settings
        if self.error is not None:
            raise self.error
        yield self.engine


def run(*arguments: str, opened: Opened | None = None, text: str | None = None) -> Result:
    given = opened or Opened(ScriptedEngine(answer_script("an answer")))
    result: Any = CliRunner().invoke(cli, arguments, obj=given, input=text)
    return result


def test_without_a_command_it_says_how_to_ask() -> None:
    result = run()
    assert result.exit_code == 0
    assert 'sspec-assist ask "' in result.stdout


def test_help_names_every_command_and_exit_code() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for word in ("ask", "complete", "models", "config", *map(str, EXIT_CODES)):
        assert word in result.stdout


def test_the_help_fits_one_screen() -> None:
    lines = run("--help").stdout.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80
    assert not any(line.endswith("...") for line in lines[1:])


@pytest.mark.parametrize("options", [("--model", "m"), ("--resume",), ("--quant", "int8")])
def test_options_of_the_chat_before_a_command_are_refused(options: tuple[str, ...]) -> None:
    result = run(*options, "ask", "q")
    assert result.exit_code == 2
    assert "before the command ask" in result.stderr


@pytest.mark.parametrize("command", ["ask", "complete"])
def test_every_command_that_decodes_has_the_common_options(command: str) -> None:
    help_text = run(command, "--help").stdout
    for option in ("--model", "--quant", "--route", "--k", "--temperature", "--no-daemon"):
        assert option in help_text


def test_ask_answers_on_stdout_and_counts_on_stderr() -> None:
    opened = Opened(ScriptedEngine(answer_script("an answer")))
    result = run("ask", "why?", opened=opened)
    assert (result.exit_code, result.stdout) == (0, "an answer\n")
    assert result.stderr.count("\n") == 1
    [request] = opened.engine.requests
    assert isinstance(request.prompt, ChatPrompt)
    assert request.prompt.turns[-1].content == "why?"
    assert request.sampling == SamplingParams()


def test_standard_input_follows_the_question() -> None:
    opened = Opened(ScriptedEngine(answer_script("x")))
    assert run("ask", "explain", opened=opened, text="code").exit_code == 0
    assert run("ask", "-", opened=opened, text="all of it").exit_code == 0
    contents = [r.prompt.turns[-1].content for r in opened.engine.requests if r.prompt.turns]
    assert contents == ["explain\n\ncode", "all of it"]


def test_options_reach_the_request_and_the_settings() -> None:
    opened = Opened(ScriptedEngine(answer_script("x")))
    options = (
        "--model m --quant int8 --device cpu --context 512 --threads 3 --route copy --exit-layer 4 "
        "--k 5 --policy window --temperature 0.5 --top-p 0.9 --top-k 40 --min-p 0.1 "
        "--repetition-penalty 1.1 --max-tokens 7 --seed 3 --stop A --stop B"
    )
    assert run("ask", "q", *options.split(), opened=opened).exit_code == 0
    [request] = opened.engine.requests
    assert (request.route, request.k) == ("copy", 5)
    assert request.sampling == SamplingParams(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.1,
        max_tokens=7,
        seed=3,
        stop=("A", "B"),
    )
    assert opened.settings is not None
    load = opened.settings.model.load()
    assert (load.quant, load.device, load.context_tokens, load.threads) == ("int8", "cpu", 512, 3)
    assert opened.settings.model.model == "m"
    draft = opened.settings.decode
    assert (draft.route, draft.exit_layer, draft.policy) == ("copy", 4, "window")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError("c", "it is wrong", "Do this."), 2),
        (ModelError("c", "it is wrong", "Do this."), 3),
        (MemoryLimitError("c", "it is wrong", "Do this."), 4),
        (EngineError("c", "it is wrong", "Do this."), 1),
    ],
)
def test_an_error_is_one_sentence_and_its_exit_code(error: EngineError, code: int) -> None:
    result = run("ask", "q", opened=Opened(ScriptedEngine([]), error))
    assert result.exit_code == code
    assert result.stderr == "sspec-assist: it is wrong. Do this.\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("failed_code", "exit_code"), [("context_full", 2), ("out_of_memory", 4), ("internal", 1)]
)
def test_a_failure_in_the_stream_has_its_exit_code_too(failed_code: str, exit_code: int) -> None:
    failed = Failed(code=failed_code, message="it stopped", hint="", exit_code=exit_code)
    engine = ScriptedEngine([Started(prompt_tokens=1, cached_tokens=0), failed])
    result = run("ask", "q", opened=Opened(engine))
    assert result.exit_code == exit_code
    assert result.stderr.endswith("sspec-assist: it stopped\n")


def test_an_interrupt_while_loading_exits_with_130() -> None:
    result = run("ask", "q", opened=Opened(ScriptedEngine([]), KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask", "q", "--route", "nope"], "nope"),
        (["ask", "q", "--k", "0"], "--k"),
        (["ask", "q", "--top-p", "7"], "--top-p: top_p is 7"),
        (["ask", "q", "--file", "absent.py"], "absent.py does not exist"),
        (["ask"], "no question"),
        (["complete", "--file", "absent.py", "--line", "1"], "absent.py does not exist"),
        (["complete"], "<CURSOR>"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_wrong_request_exits_with_2_before_any_model(arguments: list[str], said: str) -> None:
    opened = Opened(ScriptedEngine([]))
    result = run(*arguments, opened=opened, text="")
    assert result.exit_code == 2
    assert said in result.stderr
    assert opened.settings is None


def test_complete_prints_only_the_insertion(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = f()\ny = 2\n")
    opened = Opened(ScriptedEngine(answer_script("a, b)\nz = 3")))
    result = run("complete", "--file", str(file), "--line", "1", "--column", "7", opened=opened)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a, b", "")
    [request] = opened.engine.requests
    assert isinstance(request.prompt, FillPrompt)
    assert request.prompt.prefix == "x = f("
    assert request.sampling.max_tokens == 128


def test_complete_takes_a_marker_from_standard_input() -> None:
    opened = Opened(ScriptedEngine(answer_script("1")))
    result = run("complete", "--marker", "@@", "--max-tokens", "9", opened=opened, text="a = @@\n")
    assert (result.exit_code, result.stdout) == (0, "1")
    assert opened.engine.requests[0].sampling.max_tokens == 9


def test_an_empty_insertion_is_told_on_stderr() -> None:
    opened = Opened(ScriptedEngine(answer_script("\n")))
    result = run("complete", "--marker", "@@", opened=opened, text="f(@@)\n")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the model inserted nothing here" in result.stderr


def test_a_chat_without_a_terminal_is_refused_the_model_first() -> None:
    result = run("--model", "/nope/[x]")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "/nope/[x]" in result.stderr
    for arguments in (("--resume",), ("--model", "qwen2.5-coder-0.5b")):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "the chat needs a terminal" in result.stderr


def test_an_unknown_theme_fails_the_check_with_the_known_names() -> None:
    file = user_paths().config_file()
    file.parent.mkdir(parents=True)
    file.write_text('[chat]\ntheme = "textual-dakr"\n')
    result = run("config", "check")
    assert result.exit_code == 2
    assert "'textual-dakr'" in result.stderr
    assert "textual-dark" in result.stderr
    file.write_text('[chat]\ntheme = "nord"\n')
    assert run("config", "check").exit_code == 0


def test_a_folder_in_the_place_of_the_settings_is_told_in_a_sentence() -> None:
    file = user_paths().config_file()
    file.mkdir(parents=True)
    result = run("config", "check")
    assert result.exit_code == 2
    assert f"{file} is a folder. " in result.stderr
    assert "Errno" not in result.stderr


def test_config_shows_checks_and_finds_the_file() -> None:
    file = user_paths().config_file()
    assert run("config", "path").stdout == f"{file}\n"
    assert "does not exist" in run("config", "check").stdout
    file.parent.mkdir(parents=True)
    file.write_text('[model]\nquant = "int8"\n')
    assert f'quant = "int8"  # {file}' in run("config", "show").stdout
    assert "is in order" in run("config", "check").stdout
    file.write_text("[model]\nquantt = 1\n")
    for command in (("config", "check"), ("config", "show"), ("ask", "q")):
        result = run(*command)
        assert result.exit_code == 2
        assert "Did you mean quant?" in result.stderr


def test_settings_of_the_file_hold_for_a_request() -> None:
    file = user_paths().config_file()
    file.parent.mkdir(parents=True)
    file.write_text('[sampling]\ntemperature = 0.3\n[decode]\nroute = "plain"\n')
    opened = Opened(ScriptedEngine(answer_script("x")))
    assert run("ask", "q", "--temperature", "0.4", opened=opened).exit_code == 0
    [request] = opened.engine.requests
    assert (request.sampling.temperature, request.route) == (0.4, "plain")


def test_an_output_that_is_full_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from app.entry import main; main()", "models", "list"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "sspec-assist: the output can't be used: No space left on device. Free some space there, "
        "or give yourself the right to it.\n"
    )


def test_a_folder_of_nobody_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSPEC_ASSIST_DATA", "~nobody-of-that-name/x")
    result = run("engine", "status")
    assert result.exit_code == 2
    assert "SSPEC_ASSIST_DATA is '~nobody-of-that-name/x'" in result.stderr
