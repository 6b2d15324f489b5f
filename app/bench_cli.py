"""The command `bench`: what was asked for, brought to the module that measures it.

Everything it can do besides timing the shipped cases (`--humaneval`, `--shape`, `--replay`,
`--keystrokes`) has a module of its own, imported when it is asked for. Invariant: what can't go
together is refused before a model is loaded.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

import msgspec
import typer

from app import logs
from app.bench_options import BENCH_REPEATS, BenchOptions
from app.engines import session_for
from app.measure import BENCH_CASES, chosen_cases
from app.options import (
    AsJson,
    Cases,
    DecodeOptions,
    ExitLayer,
    ModelOptions,
    SamplingOptions,
    given,
    with_groups,
)
from app.settings import Settings, user_settings
from engine.protocol import RequestError, RouteChoice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine.bench import Arm
    from engine.session import Session

ROUTES: tuple[RouteChoice, ...] = get_args(RouteChoice)


@with_groups
def bench_command(
    *,
    what: BenchOptions,
    case: Cases = None,
    exit_layer: ExitLayer = None,
    as_json: AsJson = False,
    model: ModelOptions,
    sampling: SamplingOptions,
) -> None:
    """Time plain decoding and drafting on the shipped cases, taking turns.

    Prints medians with their intervals, and × plain. Two cases of each kind unless --full, --kind
    or --case say otherwise. The second group of options adds other programs to the same run, the
    third does something else instead.
    """
    logs.configure(verbose=model.verbose)
    decode = DecodeOptions(exit_layer=exit_layer)
    settings = user_settings(
        {"model": given(model), "decode": given(decode), "sampling": given(sampling)}
    )
    if _something_else(what, case or [], settings, as_json):
        return
    _time_cases(what, case or [], settings, sampling.max_tokens, as_json)


def _time_cases(
    what: BenchOptions,
    names: Sequence[str],
    settings: Settings,
    max_tokens: int | None,
    as_json: bool,
) -> None:
    """The bench itself."""
    most = None if what.full or names or what.kind else BENCH_CASES
    chosen = chosen_cases(names, what.kind or (), most=most)
    routes = asked_routes(what)
    _check_peers(what)
    with ExitStack() as stack:
        trace = None
        if what.trace is not None:
            from engine.trace import TraceFile

            trace = TraceFile(what.trace)
            stack.callback(trace.close)
        session = session_for(settings)
        from app.bench_run import Bench, run_bench
        from engine.bench import BASE, Plan, RouteArm

        ours = [RouteArm(session, route, None if route == BASE else trace) for route in routes]
        peers = _peers(what, settings, session, stack)

        plan = Plan(repeats=what.repeats, sampling=settings.sampling, max_tokens=max_tokens)
        bench = Bench(
            session=session,
            arms=[*ours, *peers],
            peers=tuple(peer.name for peer in peers),
            cases=chosen,
            plan=plan,
            floor=what.floor,
            unchosen=0 if most is None else len(chosen_cases((), ())) - len(chosen),
        )
        run_bench(bench, sys.stdout, sys.stderr, as_json=as_json)


def asked_routes(what: BenchOptions) -> list[RouteChoice]:
    """The routes to time, plain first. Raises `RequestError` for one that does not exist."""
    if what.arms is not None:
        if what.arms != "all":
            raise RequestError(
                "bad_setting", f"--arms is {what.arms!r}", "The only value is all; see also --arm."
            )
        others = [route for route in ROUTES if route != "auto"]
        return list(dict.fromkeys(["plain", *others, "auto"]))
    wanted: list[RouteChoice] = ["plain"]
    for name in what.arm or ["auto"]:
        route = next((route for route in ROUTES if route == name), None)
        if route is None:
            raise RequestError(
                "bad_setting", f"there is no route {name}", f"Known are {', '.join(ROUTES)}."
            )
        wanted.append(route)
    return list(dict.fromkeys(wanted))


def _something_else(
    what: BenchOptions,
    cases: Sequence[str],
    settings: Settings,
    as_json: bool,
) -> bool:
    """Do what stands in for the bench, if anything was asked for. Raises `RequestError` for two
    things at once."""
    asked = {
        "--keystrokes": what.keystrokes,
        "--replay": what.replay is not None,
        "--humaneval": what.humaneval is not None,
        "--shape": what.shape is not None,
    }
    names = [name for name, given_ in asked.items() if given_]
    if len(names) > 1:
        raise RequestError("bad_setting", f"{' and '.join(names)} don't go together", "Take one.")
    _refuse_idle(what, cases, names)
    if what.keystrokes:
        from app.keystrokes import run_keystrokes

        run_keystrokes(cases, settings, sys.stdout, speed=what.speed, as_json=as_json)
    elif what.replay is not None:
        typer.echo(replayed(what.replay, as_json=as_json))
    elif what.shape is not None:
        from app.bench_shape import run_shape

        run_shape(what.shape, settings.model.load(), sys.stdout, as_json=as_json)
    elif what.humaneval is not None:
        from app.humaneval import run_humaneval

        if not run_humaneval(what.humaneval, settings, sys.stdout, sys.stderr, as_json=as_json):
            raise typer.Exit(1)
    return bool(names)


def _refuse_idle(what: BenchOptions, cases: Sequence[str], instead: Sequence[str]) -> None:
    """Raise `RequestError` for an option that would do nothing beside what was asked for."""
    idle = {
        "--case": bool(cases) and not what.keystrokes,
        "--kind": bool(what.kind),
        "--full": what.full,
        "--arm": bool(what.arm),
        "--arms": what.arms is not None,
        "--repeats": what.repeats != BENCH_REPEATS,
        "--floor": what.floor,
        "--trace": what.trace is not None,
        "--vs": what.vs is not None,
        "--vs-url": bool(what.vs_url),
    }
    names = [name for name, given_ in idle.items() if given_ and instead]
    if names:
        raise RequestError(
            "bad_setting", f"{', '.join(names)} would do nothing with {instead[0]}", "Leave it out."
        )
    if what.speed != 1.0 and not what.keystrokes:
        raise RequestError("bad_setting", "--speed belongs to --keystrokes", "Give both.")


def replayed(file: Path, *, as_json: bool) -> str:
    """The sum of a trace. Raises `RequestError` for a file that is none."""
    from engine.trace import read_trace, sum_of, summarise

    if as_json:
        return msgspec.json.format(msgspec.json.encode(sum_of(read_trace(file)))).decode()
    return summarise(file)


def _check_peers(what: BenchOptions) -> None:
    """Raise `RequestError` for a peer that can't be one, before anything is loaded."""
    if what.vs not in (None, "hf"):
        raise RequestError(
            "bad_setting", f"--vs is {what.vs!r}", "The only value is hf; see also --vs-url."
        )
    if what.vs_url:
        from app.peers import checked_url

        ports = [urlsplit(checked_url(url)).port or 80 for url in what.vs_url]
        twice = next((port for port in ports if ports.count(port) > 1), None)
        if twice is not None:
            raise RequestError(
                "bad_setting", f"--vs-url names port {twice} twice", "Name each server once."
            )


def _peers(what: BenchOptions, settings: Settings, session: Session, stack: ExitStack) -> list[Arm]:
    """The other programs asked for, ready to run."""
    arms: list[Arm] = []
    if what.vs_url:
        from app.peers import peer_at

        arms += [peer_at(url, session, stack) for url in what.vs_url]
    if what.vs is not None:
        from app import model_store
        from app.paths import user_paths
        from app.peer_hf import hf_arms

        source = model_store.resolve(settings.model.model, user_paths(), lambda *_: None)
        arms += hf_arms(source.path, session)
    return arms
