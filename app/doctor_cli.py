"""The command `doctor`: a report and the table of symptoms as text on stdout, and the exit code.

What is in the report is `doctor.py`'s business, what the machine is `machine.py`'s. Invariant: a
report is printed whole before the command ends with the code of its gravest problem.
"""

from __future__ import annotations

import re
import textwrap
from typing import Annotated

import typer

from app.doctor import Report, diagnose
from app.machine import this_machine
from app.options import ModelOptions, given, with_groups
from app.paths import user_paths
from app.settings import user_settings
from app.symptoms import SYMPTOMS
from engine.protocol import RequestError

_WIDTH = 98
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@with_groups
def doctor_command(
    *,
    model: ModelOptions,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Plan for a card of this size, such as 24GiB."
        ),
    ] = None,
    symptoms: Annotated[
        bool, typer.Option("--symptoms", help="Print what to suspect when something is off.")
    ] = False,
) -> None:
    """Examine machine, model and memory without loading or fetching anything."""
    if symptoms:
        typer.echo("\n".join(render_symptoms()))
        return
    wanted = user_settings({"model": given(model)}).model
    card_bytes = None if memory is None else parse_bytes(memory)
    report = diagnose(wanted, card_bytes, this_machine(), user_paths())
    typer.echo("\n".join(render(report)))
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def render(report: Report) -> list[str]:
    """The report as lines of text."""
    lines: list[str] = []
    for section in report.sections:
        width = max(len(name) for name, _ in section.facts)
        lines.append(section.title)
        for name, value in section.facts:
            first, *rest = textwrap.wrap(value, 96 - width) or [""]
            lines.append(f"  {name.ljust(width)}  {first}")
            lines += [" " * (width + 4) + line for line in rest]
        lines.append("")
    lines.append("Problems" if report.problems else "No problems found.")
    for problem in report.problems:
        lines += textwrap.wrap(
            f"{problem.message}.", 98, initial_indent="  ", subsequent_indent="    "
        )
        lines += textwrap.wrap(
            f"→ {problem.hint}", 98, initial_indent="    ", subsequent_indent="      "
        )
    return lines


def render_symptoms() -> list[str]:
    """The table of symptoms as lines of text."""
    lines: list[str] = []
    for row in SYMPTOMS:
        lines += textwrap.wrap(row.symptom, 98)
        for name, text in (("suspect", row.suspect), ("remedy", row.remedy)):
            lines += textwrap.wrap(
                f"{name:8} {text}", 98, initial_indent="  ", subsequent_indent=" " * 11
            )
        lines.append("")
    return lines[:-1]


def parse_bytes(text: str) -> int:
    """Bytes meant by "24GiB", "24 GB", "8192MiB" or a plain number; `RequestError` otherwise.

    GB is 10⁹ and GiB 2³⁰, as their standards have it; a bare G is read as GiB.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)(B?)\s*", text, re.IGNORECASE)
    if found is None or float(found[1]) == 0 or (found[3] and not found[2]):
        raise RequestError(
            "bad_setting", f"--memory is {text!r}, not an amount", "Write it as 24GiB or 8192MiB."
        )
    unit = _UNITS[found[2].upper()]
    if found[4] and not found[3] and unit > 1:
        unit = 10 ** (3 * (unit.bit_length() // 10))
    return int(float(found[1]) * unit)
