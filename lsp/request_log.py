"""One line of the log for each wish: where its answer came from, or why there is none.

Pure. Counts and times, the file's name and the language; code only where the user lets it appear.

Invariant: a line is one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from engine.protocol import RoundDone
from lsp.asking import Asked
from lsp.recent import Fill

if TYPE_CHECKING:
    from lsp.document import Snapshot
    from lsp.fill_run import FillRun
    from lsp.offer import Source


class Record(Struct, kw_only=True):
    """What is noted of one wish on its way."""

    snapshot: Snapshot
    explicit: bool = False
    wait_s: float = 0.0
    source: Source = "model"
    fills: tuple[Fill, ...] = ()
    reason: str = ""
    """Why nothing is shown."""
    is_refused: bool = False
    """The place, or the engine, allows no completion now."""
    asked: Asked = field(default_factory=Asked)


def line_of(record: Record, seconds: float, *, plain_tokens_per_s: float | None, code: bool) -> str:
    """The record as a sentence."""
    snapshot = record.snapshot
    number = snapshot.text.count("\n", 0, snapshot.offset) + 1
    parts = [
        f"{snapshot.name or 'untitled'}:{number} {snapshot.language or 'no language'}",
        "asked for" if record.explicit else "while typing",
        _outcome(record, code),
        f"{seconds * 1000:.0f} ms{_of_which(record)}",
    ]
    if record.asked.run is not None:
        parts += _engine(record.asked.run, plain_tokens_per_s)
    return ", ".join(parts)


def times_plain(rounds: Sequence[RoundDone], plain_tokens_per_s: float | None) -> float | None:
    """Tokens per second of these rounds ÷ that of plain decoding; None where it is not known."""
    seconds = sum(one.round_ms for one in rounds) / 1000
    if not plain_tokens_per_s or seconds <= 0:
        return None
    return sum(one.accepted + 1 for one in rounds) / seconds / plain_tokens_per_s


def _outcome(record: Record, code: bool) -> str:
    if not record.fills:
        return f"nothing shown: {record.reason or 'nothing known for this place'}"
    first = record.fills[0].text
    others = f" and {len(record.fills) - 1} more" if len(record.fills) > 1 else ""
    said = f" {first!r}" if code else ""
    lines = first.count("\n") + 1
    size = f"{len(first)} characters" + (f" in {lines} lines" if lines > 1 else "")
    return f"{record.source}: {size}{others}{said}"


def _of_which(record: Record) -> str:
    parts = []
    if record.wait_s > 0:
        parts.append(f"{record.wait_s * 1000:.0f} waited")
    run = record.asked.run
    if run is not None and run.first_text_s is not None:
        parts.append(f"first text after {run.first_text_s * 1000:.0f}")
    return f" ({', '.join(parts)})" if parts else ""


def _engine(run: FillRun, plain_tokens_per_s: float | None) -> list[str]:
    parts = []
    if run.started is not None:
        parts.append(f"prompt {run.started.prompt_tokens} tokens, {run.started.cached_tokens} kept")
    rounds = run.rounds
    if not rounds:
        return parts
    tested, accepted = sum(r.tested for r in rounds), sum(r.accepted for r in rounds)
    alpha = f"α {accepted / tested:.2f}" if tested else "nothing drafted"
    times = times_plain(rounds, plain_tokens_per_s)
    tokens: Counter[str] = Counter()
    for one in rounds:
        tokens[one.route] += one.accepted + 1
    count = sum(tokens.values())
    shares = ", ".join(f"{name} {share / count:.0%}" for name, share in tokens.most_common())
    parts.append(f"{count} tokens in {len(rounds)} rounds ({shares})")
    parts.append(alpha)
    if times is not None:
        parts.append(f"{times:.2f} × plain")
    if run.ask.written:
        parts.append("went on from what was written before")
    return parts
