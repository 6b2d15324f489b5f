"""What counts of an answer, and the program that judges it. No model, no sandbox."""

from __future__ import annotations

import pytest

from tests.measure.humaneval import extract, program_of

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
