"""What counts of an answer, the program that judges it, and how scores are told."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from app.humaneval import (
    ARMS,
    Solved,
    extract,
    program_of,
    require_sandbox,
    score_lines,
    scores_of,
    solve,
)
from engine.protocol import EngineError, SamplingParams
from tests.engine.tiny_session import tiny_session

PROBLEM = {
    "task_id": "made/up",
    "entry_point": "double",
    "prompt": 'import math\n\n\ndef one():\n    return 1\n\n\ndef double(x):\n    """2 x"""\n',
    "test": "def check(candidate):\n    assert candidate(4) == 8\n",
}
BODY = "    return 2 * x * one()\n"
WHOLE = f"def double(x):\n{BODY}"


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        (f"Here:\n```python\n{WHOLE}```\nand\n```python\nlater()\n```", WHOLE),
        (f"```python\n{WHOLE}", WHOLE),
        (f"```\n{WHOLE}```", WHOLE),
        (WHOLE, WHOLE),
        ("```python\nmark = '```'\n```", "mark = '```'\n"),
    ],
)
def test_the_first_block_counts(completion: str, code: str) -> None:
    assert extract(completion) == code


@pytest.mark.parametrize(
    "completion",
    [f"```python\n{WHOLE}```", f"```python\n{BODY}```", BODY, PROBLEM["prompt"] + BODY],
)
def test_a_right_answer_ends_without_an_error(completion: str) -> None:
    exec(program_of(PROBLEM, completion), {})


def test_a_wrong_answer_does_not() -> None:
    with pytest.raises(AssertionError):
        exec(program_of(PROBLEM, "```python\ndef double(x):\n    return x\n```"), {})


def solved(arm: str, result: str, completion: str = "a") -> Solved:
    return Solved(
        task_id="made/up",
        arm=arm,
        result=result,
        detail="",
        completion=completion,
        tokens=10,
        decode_ms=100.0 if arm == "plain" else 50.0,
    )


def test_scores_stand_beside_each_other_with_the_texts_that_differ() -> None:
    scores = scores_of([solved("plain", "passed"), solved("auto", "passed")])
    assert scores.passed == {"plain": 1, "auto": 1}
    assert score_lines(scores)[-1] == "auto ÷ plain 2.00; all texts are the same"
    other = scores_of([solved("plain", "passed"), solved("auto", "failed", "b")])
    assert other.different_texts == 1
    assert "1 texts DIFFER" in score_lines(other)[-1]


def test_both_ways_of_decoding_answer_alike_and_are_judged() -> None:
    session = tiny_session()
    both = [solve(session, PROBLEM, arm, SamplingParams(max_tokens=12)) for arm in ARMS]
    assert both[0].completion == both[1].completion
    assert {one.result for one in both} == {"failed"}  # a random model solves nothing


def test_no_answer_is_copied_from_the_same_one_before() -> None:
    session = tiny_session()
    held = []
    for arm in ARMS:
        solve(session, PROBLEM, arm, SamplingParams(max_tokens=12))
        held.append(len(session.earlier))
    assert held[0] == held[1] > 0


def test_a_machine_without_a_sandbox_is_said_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_sandbox()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match="answers can't be run here") as refused:
        require_sandbox()
    assert "Linux" in refused.value.hint
