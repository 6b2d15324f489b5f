"""Golden cases: what is shown of a model's answer, each from a failure that users reported.

The cases are in `golden/*.toml`; each names the failure it comes from, by the section that lists
it. A case without `shown` wants nothing to be shown; one with `skipped` wants no request at all.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from msgspec import Struct, convert

from lsp.document import Snapshot
from lsp.settings import EditorSettings, Multiline
from lsp.shape import Trimmer, shape_for, skip_reason
from lsp.syntax import breaks_syntax

FOLDER = Path(__file__).parent / "golden"
CURSOR = "█"


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case as the files have it."""

    name: str
    failure: str
    text: str
    model: str = ""
    language: str = "python"
    path: str | None = None
    before: str = ""
    """Put before the text."""
    crlf: bool = False
    """The document, and so what is shown, has CRLF."""
    explicit: bool = False
    cut: bool = False
    """The model was stopped by its token limit."""
    multiline: Multiline = "auto"
    languages: dict[str, bool] = {}
    enabled: bool = True
    shown: str = ""
    replaces: str = ""
    skipped: str | None = None


def cases() -> list[Case]:
    found = []
    for file in sorted(FOLDER.glob("*.toml")):
        with file.open("rb") as opened:
            found += convert(tomllib.load(opened)["case"], list[Case])
    return found


CASES = cases()


def snapshot_of(case: Case) -> Snapshot:
    text = case.before + case.text
    if case.crlf:
        text = text.replace("\n", "\r\n")
    offset = text.index(CURSOR)
    return Snapshot(
        uri="file:///project/" + (case.path or "file"),
        version=1,
        language=case.language,
        path=Path(case.path) if case.path else None,
        text=text.replace(CURSOR, ""),
        offset=offset,
        newline="\r\n" if case.crlf else "\n",
    )


def settings_of(case: Case) -> EditorSettings:
    return EditorSettings(enabled=case.enabled, languages=case.languages, multiline=case.multiline)


def shown(case: Case, pieces: list[str]) -> tuple[str, str]:
    """What is shown, and the text it takes the place of."""
    snapshot = snapshot_of(case)
    trimmer = Trimmer(snapshot, shape_for(snapshot, settings_of(case), case.explicit))
    for piece in pieces:
        if trimmer.push(piece):
            break
    text = trimmer.result(cut=case.cut)
    start, end = trimmer.span(cut=case.cut)
    after = snapshot.text[end:]
    if not text or breaks_syntax(case.language, snapshot.prefix, text, after):
        return "", ""
    return text, snapshot.text[start:end]


def wanted(case: Case) -> tuple[str, str]:
    return case.shown.replace("\n", "\r\n") if case.crlf else case.shown, case.replaces


ASKED = [case for case in CASES if case.skipped is None]
SKIPPED = [case for case in CASES if case.skipped is not None]


def names(found: list[Case]) -> list[str]:
    return [case.name for case in found]


@pytest.mark.parametrize("case", ASKED, ids=names(ASKED))
def test_what_is_shown(case: Case) -> None:
    assert skip_reason(snapshot_of(case), settings_of(case), explicit=case.explicit) is None
    assert shown(case, [case.model]) == wanted(case)


@pytest.mark.parametrize("case", ASKED, ids=names(ASKED))
def test_the_pieces_of_an_answer_do_not_matter(case: Case) -> None:
    for size in (1, 3, 7):
        pieces = [case.model[at : at + size] for at in range(0, len(case.model), size)]
        assert shown(case, pieces) == wanted(case)


@pytest.mark.parametrize("case", ASKED, ids=names(ASKED))
def test_what_is_shown_is_shown_unchanged_if_the_model_says_just_that(case: Case) -> None:
    text, replaced = wanted(case)
    if text:
        again = Case(
            **{field: getattr(case, field) for field in Case.__struct_fields__} | {"cut": False}
        )
        assert shown(again, [text]) == (text, replaced)


@pytest.mark.parametrize("case", SKIPPED, ids=names(SKIPPED))
def test_where_nothing_is_asked(case: Case) -> None:
    reason = skip_reason(snapshot_of(case), settings_of(case), explicit=case.explicit)
    assert reason == case.skipped


def test_there_are_enough_cases_and_no_two_alike() -> None:
    assert len(CASES) >= 150
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.failure[:3] for case in CASES} == {f"4.{n}" for n in range(1, 7)}
