"""Numbers as text: amounts with their unit, bars, sparklines, glyphs of routes.

Owns how a number looks wherever the chat shows one, so that the same number looks the same in the
meter and in the details. It must not know what a number means, and holds no colour.

Invariant: every bar has exactly the asked number of cells, each one column wide, and reads without
colour; what is not known is `–`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import Route

UNKNOWN = "–"
FULL, EMPTY, MARK = "█", "░", "┃"
_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_KIB = 1024
_LONGEST_DIGIT = 9

ROUTE_GLYPHS: dict[Route, str] = {
    "copy": "C",
    "layer_skip": "L",
    "exit_head": "H",
    "low_precision": "Q",
    "plain": "·",
}


def route_glyph(route: Route) -> str:
    """One column for a route."""
    return ROUTE_GLYPHS[route]


def k_glyph(k: int) -> str:
    """One column for the tokens drafted in a round: a digit, `+` above 9, `·` for none."""
    if k == 0:
        return ROUTE_GLYPHS["plain"]
    return str(k) if k <= _LONGEST_DIGIT else "+"


def decimal(value: float | None, places: int) -> str:
    """A number, or that it is not known."""
    return UNKNOWN if value is None else f"{value:,.{places}f}"


def speed(tokens_per_s: float | None) -> str:
    """Tokens per second with the unit."""
    places = 1 if tokens_per_s is None or tokens_per_s < 1000 else 0
    return f"{decimal(tokens_per_s, places)} tok/s"


def percent(share: float | None) -> str:
    """A share in whole per cent; what is not quite all is never told as 100 %."""
    if share is None:
        return f"{UNKNOWN} %"
    whole = round(share * 100)
    return f"{min(whole, 99) if share < 1 else whole} %"


def thousands(count: int) -> str:
    """A count of tokens as the engine's reasons say it: `820`, `6.2k`."""
    return f"{count / 1000:.1f}k" if count >= 1000 else str(count)


def size(count: int) -> str:
    """Bytes in MiB or GiB."""
    mib = count / _KIB**2
    return f"{mib / _KIB:.2f} GiB" if mib >= _KIB else f"{mib:.0f} MiB"


def duration(ms: float) -> str:
    """Milliseconds for people: `180 ms`, `1.3 s`, `2 min 5 s`."""
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s"


def sparkline(shares: Sequence[float]) -> str:
    """One column for each share of 0 to 1; the lowest stands for 0 and is still seen."""
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round(min(1.0, max(0.0, share)) * top)] for share in shares)


def bar(share: float, cells: int) -> str:
    """A bar of `cells` columns, filled from the left to an eighth of a column, else blank."""
    eighths = round(min(1.0, max(0.0, share)) * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return (FULL * full + _EIGHTHS[part]).ljust(cells)


def gauge(used: float, cells: int, mark: float | None = None) -> str:
    """A gauge of `cells` columns that is full to the share `used`, with a mark at the share `mark`.

    What is used up is seen from the first token on, and the gauge is full only when all is used.
    """
    full = min(cells, int(used * cells))
    if used > 0:
        full = max(1, full)
    columns = [FULL] * full + [EMPTY] * (cells - full)
    if mark is not None and 0 <= mark < 1:
        columns[int(mark * cells)] = MARK
    return "".join(columns)


def shares_of(verdicts: Sequence[bool], total: int, group: int) -> list[float]:
    """Share of True in each stretch of `group`, for the verdicts that end at number `total`.

    Stretches begin at multiples of `group` of the whole sequence, so that they keep their places
    while the verdicts grow. The newest one is told when it is whole, the oldest one even when a
    part of it is no longer among the verdicts.
    """
    first = total - len(verdicts)
    stretches: dict[int, list[bool]] = {}
    for at, verdict in enumerate(verdicts, start=first):
        stretches.setdefault(at // group, []).append(verdict)
    if len(stretches) > 1 and total % group:
        stretches.popitem()
    return [sum(stretch) / len(stretch) for stretch in stretches.values()]
