"""What copying is worth, without a model: real greedy answers, a drafter, a table of costs.

    python -m tests.measure.copy_worth record --model PATH FOLDER   # once, minutes
    python -m tests.measure.copy_worth worth FOLDER                 # seconds

`record` keeps the token ids of the bench's cases as the model answers them, `worth` plays them
back: a round that drafts k tokens costs r(k + 1) plain rounds and yields what the answer confirms.
Fixed lengths beside the one that the acceptance records choose. Ideal: no overhead, no clock.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch

from app.offline import load_session
from app.settings import ModelSettings
from engine.acceptance import Acceptance, LiveAcceptance
from engine.calibration.agreement import played_back
from engine.cases import built_in_cases
from engine.config import MAX_DRAFT_TOKENS, DraftSettings
from engine.draft.copy import CopyDrafter
from engine.protocol import GenerateRequest, SamplingParams
from engine.session import Session

LENGTHS = (3, 7, 15, 31)
TABLES: Mapping[str, Mapping[int, float]] = {
    "bitsandbytes": {1: 1, 3: 1.09, 4: 1.13, 5: 1.56, 8: 1.89, 12: 2.5, 16: 3.2, 33: 6.6},
    "own kernel": {1: 1, 4: 1.08, 8: 1.4, 16: 2.2, 33: 4.1},
}
"""r(w) of the 1.5B: as measured before there was a kernel of our own, and its goal."""
Records = dict[int, Acceptance]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded answer."""

    case: str
    kind: str
    prompt: list[int]
    answer: list[int]


def record(session: Session, folder: Path) -> None:
    """Answer every built-in case greedily; what is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in built_in_cases():
        file = folder / f"{case.name}.json"
        if file.exists():
            continue
        request = GenerateRequest(
            id=case.name, prompt=case.prompt, sampling=SamplingParams(max_tokens=case.max_tokens)
        )
        answer = session.start(request)
        while not answer.done:
            list(answer.step())
        row = answer.row
        kept = Answer(
            case=case.name,
            kind=case.kind,
            prompt=row.tokens[: row.prompt_tokens],
            answer=row.output,
        )
        file.write_bytes(msgspec.json.encode(kept))
        print(f"{case.name}: {len(row.output)} tokens", flush=True)


def worth(one: Answer, costs: Mapping[int, float], k: int | None, records: Records) -> float:
    """Speed ÷ plain decoding with drafts of k tokens, or of the length the records suggest."""
    row = played_back(list(one.prompt))
    drafter = CopyDrafter(torch.device("cpu"))
    live: dict[int, LiveAcceptance] = {}
    whole, cost = [*one.prompt, *one.answer], 0.0
    while len(row.tokens) < len(whole):
        evidence = drafter.evidence(row)
        wanted = 0 if evidence is None else k or 0
        if evidence is not None and k is None:
            shared = records.setdefault(evidence, Acceptance(drafter.prior(evidence)))
            live.setdefault(evidence, LiveAcceptance(shared))
            wanted = _best_length(live, evidence, costs)
        longest = len(whole) - len(row.tokens) - 1
        draft = drafter.guess(row, min(wanted, longest)) if min(wanted, longest) else []
        kept = _kept(draft, whole[len(row.tokens) :])
        if evidence is not None and k is None:
            for position in range(min(kept + 1, len(draft))):
                live[evidence].test(position, position < kept)
        cost += _between(costs, len(draft) + 1)
        row.tokens += whole[len(row.tokens) : len(row.tokens) + kept + 1]
    return len(one.answer) / cost


def _best_length(
    live: Mapping[int, LiveAcceptance], evidence: int, costs: Mapping[int, float]
) -> int:
    others = [other for key, other in live.items() if key != evidence]
    outlook = live[evidence].outlook(others)
    lengths = range(MAX_DRAFT_TOKENS + 1)
    tokens = [1.0]
    for position in range(MAX_DRAFT_TOKENS):
        chain = math.prod(outlook.kept(at) for at in range(position + 1))
        tokens.append(tokens[-1] + chain)
    return max(lengths, key=lambda k: tokens[k] / _between(costs, k + 1))


def _kept(draft: list[int], wanted: list[int]) -> int:
    for at, token in enumerate(draft):
        if token != wanted[at]:
            return at
    return len(draft)


def _between(table: Mapping[int, float], rows: int) -> float:
    below = max(known for known in table if known <= rows)
    above = min(known for known in table if known >= rows)
    share = 0.0 if above == below else (rows - below) / (above - below)
    return table[below] + share * (table[above] - table[below])


def report(answers: list[Answer]) -> None:
    """One line per answer, geometric means per kind; records are warm, as in daily use."""
    for name, costs in TABLES.items():
        print(f"r(w): {name}".ljust(37), *(f"k = {k:<3}" for k in LENGTHS), "chosen")
        records: Records = {}
        for one in answers:
            worth(one, costs, None, records)
        by_kind: dict[str, list[list[float]]] = defaultdict(list)
        for one in answers:
            found = [worth(one, costs, k, records) for k in (*LENGTHS, None)]
            by_kind[one.kind].append(found)
            print(_line(f"{one.case:<30} {len(one.answer):>5}", found))
        for kind, rows in by_kind.items():
            means = [
                math.exp(sum(map(math.log, column)) / len(rows))
                for column in zip(*rows, strict=True)
            ]
            print(_line(f"  {kind}: geometric mean".ljust(36), means))


def _line(head: str, figures: list[float]) -> str:
    return f"{head}  " + " ".join(f"{figure:6.2f} " for figure in figures)


def main() -> None:
    """The command line of this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["record", "worth"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.what == "record":
        settings = ModelSettings(model=options.model, threads=options.threads)
        record(load_session(settings, DraftSettings(), lambda *_: None), options.folder)
    else:
        files = sorted(options.folder.glob("*.json"))
        report([msgspec.json.decode(file.read_bytes(), type=Answer) for file in files])


if __name__ == "__main__":
    main()
