"""`ask` against a scripted engine: what goes in, what goes where, and what an interrupt leaves."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from app.ask import Question, answer, build_request, question_text
from app.inputs import MAX_FILE_BYTES, piped_text
from engine.protocol import (
    ChatPrompt,
    Event,
    Failed,
    GenerateRequest,
    RequestError,
    SamplingParams,
    Snippet,
    Started,
    Turn,
)
from tests.fakes import ScriptedEngine, answer_script, round_of
from tests.processes import interruptible

ROOT = Path(__file__).parents[2]


def request_for(text: str = "q") -> GenerateRequest:
    return build_request(Question(text=text), SamplingParams(), route="auto", k=None)


def test_the_answer_goes_out_and_one_line_of_statistics_to_err() -> None:
    out, err = io.StringIO(), io.StringIO()
    engine = ScriptedEngine(answer_script("one two three", [round_of(drafted=2, accepted=1)]))
    statistics = answer(engine, request_for(), out, err)
    assert out.getvalue() == "one two three\n"
    assert err.getvalue().count("\n") == 1
    assert "α 0.50 (1/2 tested)" in err.getvalue()
    assert "/16,384" in err.getvalue()
    assert statistics.output_tokens == 3
    assert engine.cancelled == []


def test_json_gives_back_every_event_and_nothing_else() -> None:
    out, err = io.StringIO(), io.StringIO()
    script = answer_script("one two\nthree")
    answer(ScriptedEngine(script), request_for(), out, err, as_json=True)
    lines = out.getvalue().splitlines()
    assert [msgspec.json.decode(line, type=Event) for line in lines] == script
    assert json.loads(lines[0])["type"] == "started"


def test_a_failure_is_raised_with_its_sentence_after_the_statistics() -> None:
    out, err = io.StringIO(), io.StringIO()
    failed = Failed(
        code="context_full", message="the prompt has 9 tokens", hint="Shorten it.", exit_code=2
    )
    script = [Started(prompt_tokens=9, cached_tokens=0), failed]
    with pytest.raises(RequestError, match=r"the prompt has 9 tokens\. Shorten it\."):
        answer(ScriptedEngine(script), request_for(), out, err)
    assert out.getvalue() == ""
    assert "0 tokens" in err.getvalue()


def test_the_request_carries_system_files_and_sampling(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes("\ufeffx = 'é'\r\n".encode())
    question = Question(text="why?", system="be short", files=(file, file))
    sampling = SamplingParams(temperature=0.5, stop=("END",))
    request = build_request(question, sampling, route="copy", k=3)
    assert request.prompt == ChatPrompt(
        turns=(Turn(role="system", content="be short"), Turn(role="user", content="why?")),
        snippets=(Snippet(path=str(file), text="x = 'é'\r\n"),),
    )
    assert (request.sampling, request.route, request.k) == (sampling, "copy", 3)
    assert request.id != build_request(question, sampling, route="copy", k=3).id


@pytest.mark.parametrize(
    ("argument", "piped", "text"),
    [
        ("q", None, "q"),
        ("q", "", "q"),
        ("q", "code\n", "q\n\ncode\n"),
        ("-", "from stdin", "from stdin"),
        (None, "from stdin", "from stdin"),
    ],
)
def test_the_question_is_the_argument_then_the_input(
    argument: str | None, piped: str | None, text: str
) -> None:
    assert question_text(argument, piped) == text


@pytest.mark.parametrize(("argument", "piped"), [(None, None), ("-", " \n"), ("  ", None)])
def test_no_question_is_refused(argument: str | None, piped: str | None) -> None:
    with pytest.raises(RequestError, match="no question"):
        question_text(argument, piped)


def unusable_files(folder: Path) -> dict[str, Path]:
    names = ("absent", "folder", "binary", "latin1", "large")
    paths = {name: folder / name for name in names}
    paths["folder"].mkdir()
    paths["binary"].write_bytes(b"a\0b")
    paths["latin1"].write_bytes(b"caf\xe9")
    paths["large"].write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    return paths


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", "does not exist"),
        ("folder", "is a folder"),
        ("binary", "binary"),
        ("latin1", r"not UTF-8 text \(byte 3\)"),
        ("large", "1,048,577 bytes"),
    ],
)
def test_a_file_that_cant_be_shown_is_named_with_the_reason(
    tmp_path: Path, name: str, said: str
) -> None:
    path = unusable_files(tmp_path)[name]
    with pytest.raises(RequestError, match=f"{name}.*{said}"):
        build_request(Question(text="q", files=(path,)), SamplingParams(), route="auto", k=None)


def test_bytes_that_are_no_text_are_refused_in_the_question_and_shown_in_a_name(
    tmp_path: Path,
) -> None:
    torn = os.fsdecode(b"caf\xe9")
    for question in (Question(text=torn), Question(text="q", system=torn)):
        with pytest.raises(RequestError, match="is not UTF-8 text"):
            build_request(question, SamplingParams(), route="auto", k=None)
    file = tmp_path / torn
    file.write_text("x")
    request = build_request(
        Question(text="q", files=(file,)), SamplingParams(), route="auto", k=None
    )
    assert msgspec.json.encode(request)


def test_standard_input_is_read_as_text() -> None:
    err = io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO("é".encode()), encoding="ascii")
    assert piped_text(stdin, err, None) == "é"
    with pytest.raises(RequestError, match="standard input is a binary file"):
        piped_text(io.TextIOWrapper(io.BytesIO(b"\0")), err, None)
    assert piped_text(None, err, "-") is None
    assert err.getvalue() == ""


def test_a_pipe_that_stays_open_is_told_about() -> None:
    err = io.StringIO()
    read_end, write_end = os.pipe()
    writer = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1.3); print('late')"], stdout=write_end
    )
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as stdin:
        assert piped_text(stdin, err, "q") == "late\n"
    writer.wait()
    assert "waiting for standard input" in err.getvalue()


# A whole process around a scripted engine, because signals and pipes belong to processes.
CHILD = """
import sys
from contextlib import contextmanager
from app.cli import cli
from tests.fakes import ScriptedEngine, answer_script, round_of

engine = ScriptedEngine(
    answer_script(sys.argv[1], [round_of(drafted=2, accepted=2)]),
    hold_after=int(sys.argv[2]) if len(sys.argv) > 2 else None,
)

@contextmanager
def opened(settings):
    try:
        yield engine
    finally:
        sys.stderr.write(f"cancelled {len(engine.cancelled)}\\n")

cli(["ask", "q"], obj=opened)
"""


def child(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=interruptible,
    )


def test_an_interrupt_keeps_what_came_and_exits_with_130() -> None:
    with child("one two three four", "3") as process:
        assert process.stdout is not None
        first = process.stdout.read(len("one two three "))
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=20)
    assert first == "one two three "
    assert rest == "\n"
    assert process.returncode == 130, err
    assert err.startswith("3 tokens")
    assert "stopped before its end" in err
    assert "cancelled 1" in err
    assert "Traceback" not in err


def test_a_reader_that_leaves_ends_the_answer_quietly() -> None:
    with child("word " * 20_000) as process:
        assert process.stdout is not None
        process.stdout.read(5)
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "cancelled 1" in err
    assert "Error" not in err
