"""`verify` and `bench` as commands: which cases run, and how their results look on a terminal.

What is compared and timed is the engine's business (`engine.selfcheck`, `engine.bench`). Invariant:
every figure printed was measured in this run, on the session given; results go to `out` as they
come, so that an interrupt keeps them.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.bench import ArmResult
    from engine.cases import Case, LeftOut
    from engine.protocol import SamplingParams
    from engine.selfcheck import Comparison
    from engine.session import Session

VERIFY_TOKENS = 64
VERIFY_KS = (1, 2, 3, 4, 5, 6, 7, 8)
BENCH_TOKENS = 128
BENCH_REPEATS = 5


def chosen_cases(names: Sequence[str]) -> tuple[Case, ...]:
    """The built-in cases of these names, all of them for none. Raises `RequestError`."""
    from engine.cases import built_in_cases

    cases = {case.name: case for case in built_in_cases()}
    for name in names:
        if name not in cases:
            close = difflib.get_close_matches(name, cases, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(cases)}."
            raise RequestError("no_such_case", f"there is no built-in case {name}", hint)
    return tuple(cases[name] for name in dict.fromkeys(names)) or tuple(cases.values())


def run_verify(
    session: Session, cases: Sequence[Case], out: TextIO, *, tokens: int, ks: Sequence[int]
) -> bool:
    """Compare greedy text with and without speculation; True when all of it is identical."""
    from engine.cases import LeftOut
    from engine.selfcheck import check

    seen: list[Comparison] = []

    def report(told: Comparison | LeftOut) -> None:
        if isinstance(told, LeftOut):
            _say(out, left_out_line(told))
            return
        seen.append(told)
        _say(out, comparison_line(told))

    _say(out, _subject(session))
    identical = check(session, cases, tokens=tokens, ks=ks, report=report)
    _say(out, verdict_line(seen))
    return identical


def comparison_line(comparison: Comparison) -> str:
    """One speculative run as one line."""
    k = "auto" if comparison.k is None else f"{comparison.k}"
    found = "identical"
    if comparison.differs_at is not None:
        found = f"DIFFERS from output token {comparison.differs_at + 1} on"
    return (
        f"{comparison.case:<13} prompt {comparison.prompt_tokens:>5}  {comparison.route:<10} "
        f"k {k:<4}  {comparison.tokens} tokens  {_rate(comparison):<24} {found}"
    )


def left_out_line(left_out: LeftOut) -> str:
    """A case that was not run, and why."""
    return f"{left_out.case:<13} left out: {left_out.reason}"


def verdict_line(seen: Sequence[Comparison]) -> str:
    """What all the runs together say."""
    different = sum(comparison.differs_at is not None for comparison in seen)
    tokens = sum(comparison.tokens for comparison in seen)
    if different:
        return f"{different} of {len(seen)} runs differ from plain decoding"
    return f"{len(seen)} runs, {tokens:,} tokens: all identical to plain decoding"


def run_bench(
    session: Session,
    cases: Sequence[Case],
    out: TextIO,
    *,
    repeats: int,
    sampling: SamplingParams,
    as_json: bool,
) -> None:
    """Time all routes on the cases, interleaved; a table to read, or one JSON document."""
    from engine.bench import bench
    from engine.cases import LeftOut

    left_out: list[LeftOut] = []

    def report(told: ArmResult | LeftOut) -> None:
        if isinstance(told, LeftOut):
            left_out.append(told)
        if not as_json:
            line = left_out_line(told) if isinstance(told, LeftOut) else result_line(told)
            _say(out, line)

    if not as_json:
        _say(out, _subject(session))
        _say(out, _HEADER)
    results = bench(session, cases, repeats=repeats, sampling=sampling, report=report)
    if as_json:
        record = _facts(session) | {
            "repeats": repeats,
            "sampling": sampling,
            "results": results,
            "left_out": left_out,
        }
        _say(out, msgspec.json.format(msgspec.json.encode(record)).decode())


_HEADER = (
    f"{'case':<13} {'route':<10} {'prompt':>6} {'output':>6} {'tok/s':>7} {'× plain':>8} "
    f"{'tokens/round':>12}  {'α':<24} text"
)


def result_line(result: ArmResult) -> str:
    """One arm of one case as one line under `_HEADER`."""
    same = "as plain" if result.same_text else "differs from plain"
    return (
        f"{result.case:<13} {result.arm:<10} {result.prompt_tokens:>6} {result.output_tokens:>6} "
        f"{result.tokens_per_s:>7.1f} {result.times_plain:>8.2f} "
        f"{result.tokens_per_round:>12.2f}  {_rate(result):<24} {same}"
    )


def _rate(counted: Comparison | ArmResult) -> str:
    if not counted.tested:
        return "α – (nothing drafted)"
    return f"α {counted.accepted / counted.tested:.2f} ({counted.accepted}/{counted.tested})"


def _facts(session: Session) -> dict[str, Any]:
    loaded = session.loaded
    return {"model": session.name, "quant": loaded.quant, "device": loaded.device}


def _subject(session: Session) -> str:
    facts = _facts(session)
    return f"{facts['model']}, {facts['quant']}, on {facts['device']}"


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
    out.flush()
