"""Does speculation change the text? Run every case plainly and with every route, and compare ids.

Greedy, and past the model's own end of text: what is compared is the decoding, not the answer, and
a fixed number of tokens makes every run a full one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from msgspec import Struct

from engine.cases import Case, LeftOut
from engine.draft.earlier import Earlier
from engine.protocol import GenerateRequest, RequestError, Route, RouteChoice, SamplingParams
from engine.session import Session

ROUTES: tuple[Route, ...] = tuple(route for route in get_args(Route) if route != "plain")


class Comparison(Struct, frozen=True, kw_only=True):
    """One speculative run against the plain one."""

    case: str
    prompt_tokens: int
    route: RouteChoice
    k: int | None
    """None: the controller chose."""
    tokens: int
    tested: int
    accepted: int
    differs_at: int | None
    """The first output token that differs; None: identical."""


def check(
    session: Session,
    cases: Sequence[Case],
    *,
    tokens: int,
    ks: Sequence[int],
    report: Callable[[Comparison | LeftOut], None],
) -> bool:
    """Compare all runs of all cases that fit the context, telling `report` of each and of the cases
    and routes left out; True when every text is identical. Raises `RequestError` when no case
    fits."""
    compared = same = 0
    routes = list(ROUTES)
    for case in cases:
        plain = _run(session, case, tokens, "plain", None)
        if isinstance(plain, LeftOut):
            report(plain)
            continue
        for route in list(routes):
            lacking = _lacking(session, case, route)
            if lacking is not None:
                routes.remove(route)
                report(lacking)
        others: list[tuple[RouteChoice, int | None]] = [(r, k) for r in routes for k in ks]
        for choice, k in [*others, ("auto", None)]:
            other = _run(session, case, tokens, choice, k)
            assert isinstance(other, _Run), "what fits plainly fits with a draft"
            comparison = _compare(case, choice, k, plain, other)
            compared += 1
            same += comparison.differs_at is None
            report(comparison)
    if not compared:
        raise RequestError(
            "nothing_fits",
            f"no built-in case fits {session.context_tokens} tokens of context with {tokens} more",
            "Start with a larger --context or fewer --tokens.",
        )
    return same == compared


class _Run(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    output: list[int]
    tested: int
    accepted: int


def _lacking(session: Session, case: Case, route: Route) -> LeftOut | None:
    """Why this session can't draft on `route`, if it can't."""
    request = GenerateRequest(id=case.name, prompt=case.prompt, route=route)
    try:
        session.start(request).close()
    except RequestError as error:
        return LeftOut(case=case.name, reason=error.message, arm=route)
    return None


def _run(
    session: Session, case: Case, tokens: int, route: RouteChoice, k: int | None
) -> _Run | LeftOut:
    """One run to exactly `tokens` tokens, unless prompt and output don't fit the context or the
    model can't take this kind of prompt."""
    request = GenerateRequest(
        id=f"{case.name}/{route}/{k}",
        prompt=case.prompt,
        sampling=SamplingParams(max_tokens=tokens),
        route=route,
        k=k,
    )
    try:
        ids = session.encode(request)
    except RequestError as error:
        return LeftOut(case=case.name, reason=error.message)
    if len(ids) + tokens > session.context_tokens:
        held = f"the context holds {session.context_tokens:,}"
        return LeftOut(case=case.name, reason=f"it takes {len(ids) + tokens:,} tokens, {held}")
    session.earlier = Earlier()  # the same answer to copy from would leave nothing to reject
    answer = session.start_ids(request, ids, frozenset())
    while not answer.done:
        for _ in answer.step():
            pass
    usage = answer.usage()
    return _Run(
        prompt_tokens=len(ids),
        output=answer.row.output,
        tested=usage.tested,
        accepted=usage.accepted,
    )


def _compare(case: Case, route: RouteChoice, k: int | None, plain: _Run, other: _Run) -> Comparison:
    pairs = zip(plain.output, other.output, strict=True)
    return Comparison(
        case=case.name,
        prompt_tokens=plain.prompt_tokens,
        route=route,
        k=k,
        tokens=len(plain.output),
        tested=other.tested,
        accepted=other.accepted,
        differs_at=next((i for i, (a, b) in enumerate(pairs) if a != b), None),
    )
