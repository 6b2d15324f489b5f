"""Where an insertion goes, where it ends, and what of it the file already says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.complete import (
    MAX_PREFIX_CHARS,
    MAX_SUFFIX_CHARS,
    Hole,
    as_insertion,
    build_request,
    complete,
    hole_at,
    hole_at_marker,
    hole_in_file,
)
from engine.protocol import (
    Event,
    Failed,
    FillPrompt,
    GenerateRequest,
    RequestError,
    SamplingParams,
    Started,
)
from lsp.recent import Fill
from tests.fakes import ScriptedEngine, answer_script

PATH = Path("f.py")
TEXT = "def f(é):\n    return \n\nx = 1\n"


def hole(marked: str) -> Hole:
    return hole_at_marker(marked, "|")


def request_for(place: Hole) -> GenerateRequest:
    return build_request(place, SamplingParams(max_tokens=128), route="auto", k=None)


@pytest.mark.parametrize(
    ("line", "column", "prefix"),
    [
        (1, 1, ""),
        (1, 8, "def f(é"),
        (2, 12, "def f(é):\n    return "),
        (3, 1, "def f(é):\n    return \n"),
        (5, 1, TEXT),
    ],
)
def test_lines_and_columns_count_characters_from_1(line: int, column: int, prefix: str) -> None:
    place = hole_at(TEXT, line, column, PATH)
    assert place.prefix == prefix
    assert place.prefix + place.suffix == TEXT


@pytest.mark.parametrize(
    ("line", "column", "said"),
    [
        (0, 1, "no line 0.* 1 to 5"),
        (6, 1, "no line 6"),
        (2, 0, "no column 0"),
        (2, 13, "no column 13.* 1 to 12"),
    ],
)
def test_a_point_outside_the_text_is_refused(line: int, column: int, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        hole_at(TEXT, line, column, PATH)


def test_without_a_column_the_line_s_end_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"a = 1\r\nb = 2")
    assert hole_in_file(file, 1, None) == Hole(
        prefix="a = 1", suffix="\nb = 2", path=str(file), crlf=True
    )
    with pytest.raises(RequestError, match="no line 9"):
        hole_in_file(file, 9, None)
    with pytest.raises(RequestError, match="without --line"):
        hole_in_file(file, None, 3)


@pytest.mark.parametrize(("text", "times"), [("ab", 0), ("a|b|", 2), ("", 0)])
def test_the_marker_must_stand_once(text: str, times: int) -> None:
    with pytest.raises(RequestError, match=f"'|' {times} times"):
        hole_at_marker(text, "|")


# (text with | at the cursor, what the model says, what is inserted)
SHAPED = {
    "text after the cursor: one line": ("x = f(|)\ny = 2", "a, b)\nz = 3", "a, b"),
    "brackets of its own are kept": ("f(|)", "g()", "g()"),
    "a quote already there": ('x = "|"\n', 'abc"', "abc"),
    "nothing but a new line": ("f(|)", "\n", ""),
    "a body ends where its block does": (
        "def f(x):\n    |\n",
        "return x\n\n\ndef g():\n    pass\n",
        "return x",
    ),
    "a header gets its body": (
        "def f(x):|\n",
        "\n    y = x\n    return y\n\n\ndef g(): pass\n",
        "\n    y = x\n    return y",
    ),
    "deeper lines belong to the block": (
        "def f(x):\n    |",
        "for i in x:\n        print(i)\n    return x\nprint(1)\n",
        "for i in x:\n        print(i)\n    return x",
    ),
    "an indentation of the model's own": (
        "def f(x):\n|\n",
        "    return x\n\ndef g():\n",
        "    return x",
    ),
    "the closing brace of a block just opened": (
        "if (a) {|",
        "\n  b();\n}\nc();\n",
        "\n  b();\n}",
    ),
    "a brace the file already has": ("if (a) {|\n}\nc();", "\n  b();\n}\nc();\n", "\n  b();"),
    "the next line of the file is not said again": (
        "def f():\n    a = 1\n    |\n    return a\n",
        "a += 1\n    return a\n",
        "a += 1",
    ),
    "not even at once": ("def f():\n    |\n    return 1\n", "return 1\n", ""),
    "a definition at the left margin": (
        "import os\n\n|\n",
        "def f():\n    return 1\n\n\ndef g():\n    return 2\n",
        "def f():\n    return 1",
    ),
    "statements at the left margin go on": ("a = 1\n|", "b = 2\n\nc = 3\n", "b = 2\n\nc = 3"),
    "tabs": ("func f() {\n\t|\n}\n", "return\n}\nfunc g() {\n", "return"),
    "text that ends by itself": ("x = |", "1", "1"),
}


@pytest.mark.parametrize("case", SHAPED)
def test_an_insertion_ends_at_a_sensible_point(case: str) -> None:
    marked, said, inserted = SHAPED[case]
    place = hole(marked)
    assert complete(ScriptedEngine(answer_script(said)), request_for(place), place) == inserted


@pytest.mark.parametrize(
    ("text", "covers", "suffix", "inserted"),
    [
        ("a, b", 0, ")", "a, b"),
        ("a) + f(b)", 1, ")", "a) + f(b"),
        ("a);", 1, ")", "a"),
        ("", 0, "", ""),
    ],
)
def test_what_would_replace_a_bracket_is_inserted_before_it(
    text: str, covers: int, suffix: str, inserted: str
) -> None:
    assert as_insertion(Fill(text=text, covers=covers), suffix) == inserted


def test_half_a_word_is_left_to_the_model_to_write_whole() -> None:
    def script(request: GenerateRequest) -> Sequence[Event]:
        assert isinstance(request.prompt, FillPrompt)
        return answer_script("len(values)" if request.prompt.prefix.endswith("/ ") else "ms")

    place = hole("mean = sum(values) / le|\n")
    engine = ScriptedEngine(script)
    assert complete(engine, request_for(place), place) == "n(values)"
    assert len(engine.requests) == 1


def test_what_was_asked_for_reaches_the_engine() -> None:
    place = hole("x = |\n")
    engine = ScriptedEngine(answer_script("1"))
    sampling = SamplingParams(max_tokens=5, temperature=0.4, stop=("!",))
    request = build_request(place, sampling, route="copy", k=3)
    complete(engine, request, place)
    [sent] = engine.requests
    assert (sent.route, sent.k, sent.client, sent.priority) == ("copy", 3, "complete", "fill")
    assert (sent.sampling.max_tokens, sent.sampling.temperature) == (5, 0.4)
    assert "!" in sent.sampling.stop


def test_complete_stops_the_engine_at_the_end_of_the_block() -> None:
    place = hole("def f(x):\n    |\n")
    engine = ScriptedEngine(answer_script("return x\n\ndef g():\n    return 2\n and much more"))
    request = request_for(place)
    assert complete(engine, request, place) == "return x"
    assert engine.cancelled == [request.id]
    assert request.priority == "fill"
    assert request.prompt == FillPrompt(prefix="def f(x):\n    ", suffix="\n")


def test_a_line_cut_by_the_token_limit_is_dropped() -> None:
    place = hole("def f(x):\n    |\n")
    engine = ScriptedEngine(answer_script("y = x\n    return y + some_lo", reason="length"))
    assert complete(engine, request_for(place), place) == "y = x"
    engine = ScriptedEngine(answer_script("y = some_lo", reason="length"))
    assert complete(engine, request_for(place), place) == "y = some_lo"


def test_the_file_s_own_line_ends_come_back() -> None:
    place = hole("def f():\r\n    |\r\n")
    engine = ScriptedEngine(answer_script("a = 1\n    return a"))
    assert complete(engine, request_for(place), place) == "a = 1\r\n    return a"


def test_a_failure_is_raised() -> None:
    place = hole("|")
    hint = "Take another model."
    failed = Failed(code="no_fill_tokens", message="no fill tokens", hint=hint, exit_code=2)
    engine = ScriptedEngine([Started(prompt_tokens=1, cached_tokens=0), failed])
    with pytest.raises(RequestError, match="no fill tokens"):
        complete(engine, request_for(place), place)


def test_far_away_text_is_left_out_at_line_borders() -> None:
    place = Hole(prefix="line of code\n" * 5000 + "x = ", suffix="\n" + "other line\n" * 5000)
    prompt = request_for(place).prompt
    assert isinstance(prompt, FillPrompt)
    assert MAX_PREFIX_CHARS - 20 < len(prompt.prefix) <= MAX_PREFIX_CHARS
    assert prompt.prefix.startswith("line of code\n")
    assert prompt.prefix.endswith("x = ")
    assert MAX_SUFFIX_CHARS - 20 < len(prompt.suffix) <= MAX_SUFFIX_CHARS
    assert prompt.suffix.endswith("other line")


def test_an_indentation_that_the_cursor_s_line_has_is_not_inserted_again() -> None:
    place = hole("def total(xs):\n    |\n")
    engine = ScriptedEngine(answer_script("    total = 0\n    return sum(xs)\nx"))
    assert complete(engine, request_for(place), place) == "total = 0\n    return sum(xs)"


@pytest.mark.parametrize(
    ("marked", "text", "kept"),
    [
        ("def f():\n    |", "    x", "x"),
        ("class A:\n    def f():\n    |", "    x", "    x"),
        ("def f():\n|", "    x", "    x"),
    ],
)
def test_indentation_that_is_missing_is_kept(marked: str, text: str, kept: str) -> None:
    place = hole(marked)
    assert complete(ScriptedEngine(answer_script(text)), request_for(place), place) == kept
