"""The shipped cases are what they say they are."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from engine.cases import KINDS, built_in_cases, first_of_each_kind
from engine.protocol import ChatPrompt, FillPrompt

CASES = {case.name: case for case in built_in_cases()}
FILLS = [case for case in CASES.values() if isinstance(case.prompt, FillPrompt)]


def question(name: str) -> str:
    prompt = CASES[name].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt.turns[-1].content


def test_every_kind_of_request_has_eight() -> None:
    count = Counter(case.kind for case in built_in_cases())
    for kind in KINDS:
        assert count[kind] >= (2 if kind == "edit-every-line" else 8), kind
    assert len(CASES) == len(built_in_cases())


def test_the_names_of_the_first_release_are_kept() -> None:
    known = {"chat-short", "chat-code", "prose", "json", "fill", "edit-rename"}
    assert known | {"long-explain", "long-edit"} <= set(CASES)


@pytest.mark.parametrize("case", FILLS, ids=lambda case: str(case.name))
def test_a_hole_has_text_on_both_sides_and_its_piece_is_gone(case: object) -> None:
    prompt = next(one.prompt for one in FILLS if one is case)
    assert isinstance(prompt, FillPrompt)
    assert prompt.prefix.strip()
    assert prompt.suffix.strip()
    assert "⟦" not in prompt.prefix + prompt.suffix
    assert "⟧" not in prompt.prefix + prompt.suffix
    assert not prompt.suffix.startswith(" ")
    if str(prompt.path).endswith(".py"):
        with_a_filling = prompt.prefix + "pass" + prompt.suffix
        if prompt.prefix.endswith("    "):
            ast.parse(with_a_filling)


@pytest.mark.parametrize("name", [c.name for c in CASES.values() if c.kind.startswith("edit")])
def test_an_edit_shows_a_whole_file_of_some_length(name: str) -> None:
    task, _, rest = question(name).partition("\n\n```")
    language, _, file = rest.removesuffix("```").partition("\n")
    assert task
    assert len(file.splitlines()) >= 20
    if language == "python":
        ast.parse(file)


def test_the_rename_of_every_line_touches_nearly_every_line() -> None:
    _, _, file = question("edit-rename-all").partition("```python\n")
    lines = [line for line in file.removesuffix("```").splitlines() if line.strip()]
    assert sum("canvas" in line for line in lines) >= 0.9 * len(lines)


def test_long_prompts_begin_alike_and_hold_what_they_ask_for() -> None:
    long = sorted(
        (case.name for case in CASES.values() if case.kind == "long-context"),
        key=lambda name: len(question(name)),
    )
    shortest = question(long[0]).rpartition("\n\n")[0]
    assert all(question(name).startswith(shortest[:7_000]) for name in long)
    assert all("def accept_greedy" in question(name) for name in long)
    sizes = Counter(round(len(question(name)) / 3_700) for name in long)
    assert sizes == {2: 3, 4: 3, 8: 2}


def test_the_first_of_each_kind() -> None:
    two = first_of_each_kind(built_in_cases(), 2)
    assert len(two) == 2 * len(KINDS)
    assert next(case.name for case in two if case.kind == "edit") == "edit-rename"
