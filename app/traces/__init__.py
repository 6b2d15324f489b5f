"""What is typed in the keystroke benchmark: one TOML file per language, each with a few edits.

A trace is a document with a hole in it and the text that somebody types into the hole. How it is
typed, with pauses, slips and accepts, is `app.typist`'s business. Read from the package, so that an
installed program has it too.

Invariant: `types` begins and ends without a blank line, and closes what it opens if `pairs` is set.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Literal

import msgspec
from msgspec import Struct

from engine.protocol import RequestError

Client = Literal["vscode", "neovim"]


class Trace(Struct, frozen=True, kw_only=True):
    """One edit of one file."""

    name: str
    file: str
    language: str
    before: str
    types: str
    after: str
    newline: str = "\n"
    pairs: bool = False
    """The editor closes brackets and quotes by itself."""
    client: Client = "vscode"
    """Whose habits it has: VS Code cancels what it no longer wants, Neovim does not."""

    def written(self, text: str) -> str:
        """A text of the trace with the document's line ends."""
        return text.replace("\n", self.newline)


class _File(Struct, frozen=True, kw_only=True):
    language: str
    trace: list[dict[str, object]]
    newline: str = "\n"


def all_traces() -> tuple[Trace, ...]:
    """Every trace of the package, by the names of their files."""
    found: list[Trace] = []
    places = sorted(resources.files(__name__).iterdir(), key=lambda place: place.name)
    for place in places:
        if not place.name.endswith(".toml"):
            continue
        file = msgspec.convert(tomllib.loads(place.read_text(encoding="utf-8")), _File)
        shared = {"language": file.language, "newline": file.newline}
        for one in file.trace:
            trace = msgspec.convert(shared | one, Trace)
            found.append(msgspec.structs.replace(trace, types=trace.types.rstrip("\n")))
    return tuple(found)


def chosen_traces(names: Sequence[str]) -> tuple[Trace, ...]:
    """The named traces, or all. Raises `RequestError` for a name that none has."""
    traces = all_traces()
    known = {trace.name: trace for trace in traces}
    for name in names:
        if name not in known:
            raise RequestError(
                "bad_case", f"there is no trace {name!r}", f"There are {', '.join(known)}."
            )
    return tuple(known[name] for name in names) if names else traces
