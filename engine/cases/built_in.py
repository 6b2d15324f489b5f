"""Reads the shipped text files into cases.

A file is a line that says what it is, then sections, each under a line `=== words`. Invariant: the
order of the files is the order of the cases, kind by kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from engine.cases.case import KINDS, Case, Kind
from engine.cases.long_context import long_cases
from engine.protocol import ChatPrompt, FillPrompt, Turn

HERE = Path(__file__).parent
_ANSWER_TOKENS = {"edit": 512, "edit-every-line": 512, "json": 256, "fill": 128}
_USUAL_TOKENS = 160
_EVERY_LINE = frozenset({"edit-rename-all", "edit-rename-hosts"})
_SECTION = re.compile(r"^=== (.+)\n", re.MULTILINE)
_HOLE = re.compile(r"⟦(.*?)⟧", re.DOTALL)


@cache
def built_in_cases() -> tuple[Case, ...]:
    """All cases, kind by kind as in `KINDS`."""
    found = [*_questions(), *_fills(), *_edits(), *long_cases()]
    return tuple(sorted(found, key=lambda case: KINDS.index(case.kind)))


def first_of_each_kind(cases: Sequence[Case], most: int) -> tuple[Case, ...]:
    """The first `most` cases of every kind, in their order."""
    seen: dict[Kind, int] = {}
    kept = []
    for case in cases:
        seen[case.kind] = seen.get(case.kind, 0) + 1
        if seen[case.kind] <= most:
            kept.append(case)
    return tuple(kept)


def _questions() -> Iterator[Case]:
    for (name, kind), text in _sections("questions.txt"):
        assert kind in KINDS, f"{name} is of no known kind"
        yield _chat(name, kind, text.strip())


def _edits() -> Iterator[Case]:
    for (name, file, language), text in _sections("edits.txt"):
        content = (HERE / "files" / f"{file}.txt").read_text(encoding="utf-8")
        kind: Kind = "edit-every-line" if name in _EVERY_LINE else "edit"
        yield _chat(name, kind, f"{text.strip()}\n\n```{language}\n{content}```")


def _fills() -> Iterator[Case]:
    for (name, path), text in _sections("fills.txt"):
        hole = _HOLE.search(text)
        assert hole is not None, f"{name} has no hole"
        prompt = FillPrompt(prefix=text[: hole.start()], suffix=text[hole.end() :], path=path)
        yield Case(name=name, kind="fill", prompt=prompt, max_tokens=_ANSWER_TOKENS["fill"])


def _chat(name: str, kind: Kind, question: str) -> Case:
    prompt = ChatPrompt(turns=(Turn(role="user", content=question),))
    tokens = _ANSWER_TOKENS.get(kind, _USUAL_TOKENS)
    return Case(name=name, kind=kind, prompt=prompt, max_tokens=tokens)


def _sections(file: str) -> Iterator[tuple[list[str], str]]:
    """The words of each section's own line, and the text under it."""
    _, *parts = _SECTION.split((HERE / file).read_text(encoding="utf-8"))
    for words, text in zip(parts[::2], parts[1::2], strict=True):
        yield words.split(), text
