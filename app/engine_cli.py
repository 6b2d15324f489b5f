"""The commands `engine start`, `status`, `stop` and `logs`: the process that clients share.

None but `start` ever starts one. What the process does is its own business; this shows it. Results
go to stdout. Invariant: none of them counts as use of the model.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec
import typer
from msgspec import Struct

from app import instance, logs
from app.client import RemoteEngine
from app.download import readable
from app.options import ModelOptions, given, with_groups
from app.paths import user_paths
from app.settings import MAX_MINUTES, user_settings
from app.starting import Starter, wanted_by
from app.stopping import stop_engine
from app.wire import Startup
from engine.protocol import EngineStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.paths import Paths

FOLLOW_S = 0.3
PATIENCE_S = 10.0
"""A process that begins to load may be busy for a few seconds; a longer silence is told."""

engine = typer.Typer(
    name="engine",
    help="Start, see or stop the process that holds the model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class EngineReport(Struct, frozen=True, kw_only=True):
    """What `engine status --json` prints."""

    running: bool
    pid: int | None = None
    socket: str | None = None
    log: str
    status: EngineStatus | None = None
    """None where none runs, and of one that gives no answer."""


@engine.command("start")
@with_groups
def start(
    idle_after: Annotated[
        float | None,
        typer.Option(
            "--idle-after",
            metavar="MIN",
            min=0,
            max=MAX_MINUTES,
            help="End this long after the last client has left; 0 is never.",
        ),
    ] = None,
    unload_after: Annotated[
        float | None,
        typer.Option(
            "--unload-after",
            metavar="MIN",
            min=0,
            max=MAX_MINUTES,
            help="Let go of the model after this long without use; 0 is never.",
        ),
    ] = None,
    model: ModelOptions = ModelOptions(),  # noqa: B008 - Typer's defaults are calls
) -> None:
    """Start the engine's process, which begins to load the model. Clients do so by themselves."""
    minutes = {"idle_minutes": idle_after, "unload_minutes": unload_after}
    daemon = {key: value for key, value in minutes.items() if value is not None}
    settings = user_settings({"model": given(model), "daemon": daemon})
    paths = user_paths()
    starter = Starter(paths)
    if instance.listening(starter.place):
        typer.echo(f"an engine runs already ({_process(starter.place)}); its settings hold")
        return
    starter.start(Startup(wanted=wanted_by(settings, paths), daemon=settings.daemon))
    typer.echo(f"started ({_process(starter.place)})")


@engine.command("status")
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what the engine's process holds and does. It is not started by this, and not used."""
    report = _report(user_paths())
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    elif not report.running:
        typer.echo("no engine is running")
    elif report.status is None:
        typer.echo(
            f"an engine is running (process {report.pid or 'unknown'}) but gives no answer; "
            "sspec-assist engine stop ends it"
        )
    else:
        for name, value in _lines(report, report.status):
            typer.echo(f"{name:<9}{value}")


@engine.command("stop")
def stop() -> None:
    """End the engine's process; answers under way are cut off, what came of them is kept."""
    typer.echo("the engine was stopped" if stop_engine(user_paths()) else "no engine is running")


@engine.command("logs")
def show_logs(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="Lines from the end.")
    ] = 50,
) -> None:
    """Print the end of the engine's log."""
    file = user_paths().log_file()
    if not file.exists():
        typer.echo(f"there is no log yet at {file}", err=True)
    log = _opened(file)
    for line in logs.last_lines(file, lines, until=log.seek(0, os.SEEK_END) if log else 0):
        typer.echo(line)
    if follow:
        for added in _added(file, log):
            typer.echo(added, nl=False)
    elif log is not None:
        log.close()


def _report(paths: Paths) -> EngineReport:
    place, log = instance.place_of(paths.runtime), str(paths.log_file())
    if not instance.listening(place):
        return EngineReport(running=False, log=log)
    record = instance.read_record(place)
    return EngineReport(
        running=True,
        pid=None if record is None else record.pid,
        socket=None if place.socket is None else str(place.socket),
        log=log,
        status=asyncio.run(_answered(paths)),
    )


async def _answered(paths: Paths) -> EngineStatus | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            return await RemoteEngine(user_settings({}), paths, "status").status()
    return None


def _lines(report: EngineReport, status: EngineStatus) -> Iterator[tuple[str, str]]:
    yield "state", _state(status)
    made_of = [status.quant, status.device, "greedy text is exact" if status.exact else ""]
    yield "model", f"{status.model} ({', '.join(part for part in made_of if part)})"
    if status.context_limit:
        yield "context", f"{status.context_limit:,} tokens{_fallback(status)}"
    sizes = f"weights {readable(status.weight_bytes)}, cache {readable(status.cache_bytes)}"
    yield "memory", f"{readable(status.memory_bytes)} in all; {sizes}"
    if status.plain_tokens_per_s is not None:
        yield "plain", f"{status.plain_tokens_per_s:.1f} tok/s without speculation"
    counts = (("running", status.running), ("paused", status.paused), ("queued", status.queued))
    yield "answers", ", ".join(f"{len(ids)} {word}" for word, ids in counts)
    for held in status.held:
        yield "held", f"{held.tokens:,} tokens of {held.conversation}"
    if status.evictions:
        yield "evicted", f"{status.evictions} conversations since the start"
    yield "clients", str(status.clients)
    if status.notice:
        yield "notice", status.notice
    yield "process", f"{report.pid} at {report.socket or 'the loopback'}"
    yield "log", report.log


def _state(status: EngineStatus) -> str:
    if status.failure is not None:
        return f"{status.state}: {status.failure.message}. {status.failure.hint}"
    if status.load is None:
        return status.state
    share = f" {status.load.done / status.load.total:.0%}" if status.load.total else ""
    return f"{status.state}: {status.load.stage}{share}"


def _fallback(status: EngineStatus) -> str:
    if status.fallback_tokens is None:
        return ""
    if not status.fallback_tokens:
        return ", drafting is not expected to pay"
    return f", drafting is expected to pay up to {status.fallback_tokens:,}"


def _process(place: Any) -> str:
    record = instance.read_record(place)
    return "process unknown" if record is None else f"process {record.pid}"


def _added(file: Path, log: BinaryIO | None) -> Iterator[str]:
    """What is written to a log from where it stands opened, across its rotations."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        log = _opened(file) if log is None else log
        # Asked before it is read: one that was put away by then has its last byte.
        ended = log is not None and _is_put_away(file, log)
        added = decoder.decode(b"" if log is None else log.read(), final=ended)
        if added:
            yield added
        if log is not None and ended:
            log.close()
            log = None
            continue
        if log is not None and os.fstat(log.fileno()).st_size < log.tell():
            log.seek(0)
        time.sleep(FOLLOW_S)


def _opened(file: Path) -> BinaryIO | None:
    with suppress(OSError):
        return file.open("rb")
    return None


def _is_put_away(file: Path, log: BinaryIO) -> bool:
    """Whether another file has the name by now."""
    try:
        return not os.path.samestat(file.stat(), os.fstat(log.fileno()))
    except OSError:
        return False
