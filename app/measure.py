"""`verify` as a command, and which of the shipped cases a command runs.

What is compared is the engine's business (`engine.selfcheck`). Invariant: every figure printed was
measured in this run, on the session given; results go to `out` as they come, so that an interrupt
keeps them.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, TextIO

from app.bench_table import left_out_line, rate
from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.cases import Case, LeftOut
    from engine.selfcheck import Comparison
    from engine.session import Session

VERIFY_TOKENS = 64
VERIFY_KS = (1, 2, 3, 4, 5, 6, 7, 8)
VERIFY_CASES = 1
BENCH_CASES = 2
"""Cases of each kind that are run unless all are wanted."""


def chosen_cases(
    names: Sequence[str], kinds: Sequence[str] = (), *, most: int | None = None
) -> tuple[Case, ...]:
    """The built-in cases of these names and kinds; for neither the first `most` of each kind, or
    all of them. Naming a kind means all of it, unless `most` is given. Raises `RequestError`."""
    from engine.cases import KINDS, built_in_cases, first_of_each_kind

    cases = {case.name: case for case in built_in_cases()}
    for name in names:
        _require_known(name, list(cases), "case")
    for kind in kinds:
        _require_known(kind, list(KINDS), "kind")
    named = [cases[name] for name in dict.fromkeys(names)]
    if names and not kinds:
        return tuple(named)
    pool = [case for case in cases.values() if not kinds or case.kind in kinds]
    kept = pool if most is None else first_of_each_kind(pool, most)
    return tuple(dict.fromkeys([*named, *kept]))


def run_verify(
    session: Session, cases: Sequence[Case], out: TextIO, *, tokens: int, ks: Sequence[int]
) -> bool:
    """Compare greedy text with and without speculation; True when all of it is identical."""
    from engine.cases import LeftOut
    from engine.selfcheck import check

    seen: list[Comparison] = []

    def report(told: Comparison | LeftOut) -> None:
        if isinstance(told, LeftOut):
            say(out, left_out_line(told))
            return
        seen.append(told)
        say(out, comparison_line(told))

    say(out, subject(session))
    identical = check(session, cases, tokens=tokens, ks=ks, report=report)
    say(out, verdict_line(seen))
    return identical


def comparison_line(comparison: Comparison) -> str:
    """One speculative run as one line."""
    k = "auto" if comparison.k is None else f"{comparison.k}"
    found = "identical"
    if comparison.differs_at is not None:
        found = f"DIFFERS from output token {comparison.differs_at + 1} on"
    return (
        f"{comparison.case:<18} prompt {comparison.prompt_tokens:>5}  {comparison.route:<13} "
        f"k {k:<4}  {comparison.tokens} tokens  "
        f"α {rate(comparison.accepted, comparison.tested):<18} {found}"
    )


def verdict_line(seen: Sequence[Comparison]) -> str:
    """What all the runs together say."""
    different = sum(comparison.differs_at is not None for comparison in seen)
    tokens = sum(comparison.tokens for comparison in seen)
    if different:
        return f"{different} of {len(seen)} runs differ from plain decoding"
    return f"{len(seen)} runs, {tokens:,} tokens: all identical to plain decoding"


def subject(session: Session) -> str:
    """What is measured, and where."""
    loaded = session.loaded
    return f"{session.name}, {loaded.quant}, on {loaded.device}"


def say(out: TextIO, line: str) -> None:
    """Write a line at once."""
    out.write(line + "\n")
    out.flush()


def _require_known(given: str, known: Sequence[str], what: str) -> None:
    if given in known:
        return
    close = difflib.get_close_matches(given, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
    raise RequestError(f"no_such_{what}", f"there is no built-in {what} {given}", hint)
