"""Changes written as text, unified diffs and SEARCH/REPLACE blocks, read and put in their place.

Owns the two notations and the rule of placing: the old lines of a hunk must stand in the file
exactly, in one place only. Line numbers and counts of a diff are not looked at, models get them
wrong. Knows no path and no encoding.

Invariant: a hunk is placed where it can only belong, or the whole change is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tui import path_hints
from tui.edit_refused import EditRefused
from tui.safe_text import visible
from tui.text_file import Line, TextFile, finished, retexted, split

_SEARCH = re.compile(r"^<<<<<<< SEARCH\s*$")
_DIVIDER = re.compile(r"^=======\s*$")
_REPLACE = re.compile(r"^>>>>>>> REPLACE\s*$")
_DIFF_LANGUAGES = ("diff", "patch", "udiff")
_FILE_BEGINS = ("diff --git ", "Index: ")
_HARMLESS = ("index ", "new file mode 100644", "=====")
_UNSUPPORTED = ("rename ", "copy ", "old mode ", "new mode ", "new file mode ", "deleted file ")
_BINARY = ("Binary files ", "GIT binary patch")
_ASK_AGAIN = "Ask for the change again, as one diff against the file as it is now."
_SHOWN = 60


class Hunk(Struct, frozen=True, kw_only=True):
    """Lines that stand in a file and the lines that take their place."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int
    """1-based line of the block where the hunk begins."""
    old_open: bool = False
    """The old side says that the file's last line has no line end."""
    new_open: bool = False


class Patch(Struct, frozen=True, kw_only=True):
    """What a block of code says should change, and in which files."""

    paths: tuple[str, ...]
    """Each once; empty when the block names none."""
    hunks: tuple[Hunk, ...]
    creates: bool = False
    """The diff's old side is /dev/null."""


def read(language: str, code: str) -> Patch | None:
    """The change in the block, or None where the code is a file's own content."""
    texts = [line.text for line in split(code)]
    if any(_SEARCH.match(text) for text in texts):
        return _search_blocks(texts)
    if language.lower() in _DIFF_LANGUAGES or path_hints.diff_paths("\n".join(texts)):
        return _DiffReader(texts).read()
    return None


def placed(name: str, file: TextFile, hunks: Sequence[Hunk]) -> list[Line]:
    """The file's lines after all hunks; each is looked for in the file as it is before any."""
    spots = sorted(((_spot(name, file, hunk), hunk) for hunk in hunks), key=lambda pair: pair[0])
    lines: list[Line] = []
    done = 0
    ends_open = file.ends_open
    for start, hunk in spots:
        stop = start + len(hunk.old)
        if start < done:
            raise EditRefused(
                "overlap", f"two changes speak of line {start + 1} of {name}", _ASK_AGAIN
            )
        if hunk.old_open or hunk.new_open:
            if stop != len(file.lines) or (hunk.old_open and not file.ends_open):
                raise EditRefused(
                    "not_found",
                    f"{name} does not end where the diff says so (its line {hunk.line})",
                    _ASK_AGAIN,
                )
            ends_open = hunk.new_open
        lines += file.lines[done:start]
        lines += retexted(file, file.lines[start:stop], hunk.new)
        done = stop
    return finished(file, [*lines, *file.lines[done:]], ends_open=ends_open)


def _spot(name: str, file: TextFile, hunk: Hunk) -> int:
    """0-based line of the only place where the hunk's old lines stand."""
    texts = file.texts
    if not hunk.old:
        if not texts:
            return 0
        raise EditRefused(
            "no_place",
            f"line {hunk.line} of the block adds lines and does not say where in {name}",
            "Ask for a diff with lines around the change.",
        )
    size = len(hunk.old)
    starts = [i for i in range(len(texts) - size + 1) if texts[i] == hunk.old[0]]
    spots = [i for i in starts if tuple(texts[i : i + size]) == hunk.old]
    if len(spots) == 1:
        return spots[0]
    if spots:
        places = ", ".join(str(spot + 1) for spot in spots[:4])
        raise EditRefused(
            "ambiguous",
            f"the change at line {hunk.line} of the block fits {name} at lines {places}",
            "Ask for more unchanged lines around it.",
        )
    raise EditRefused("not_found", _difference(name, texts, hunk), _ASK_AGAIN)


def _difference(name: str, texts: Sequence[str], hunk: Hunk) -> str:
    """Where the hunk comes nearest to the file, and the line in which it then differs."""
    best, agreeing = 0, 0
    for start, text in enumerate(texts):
        if text != hunk.old[0]:
            continue
        pairs = zip(texts[start:], hunk.old, strict=False)
        count = next((i for i, (a, b) in enumerate(pairs) if a != b), len(hunk.old))
        if count > agreeing:
            best, agreeing = start, count
    where = f"the change at line {hunk.line} of the block is not in {name}"
    if not agreeing:
        return f"{where}: no line there reads {_shown(hunk.old[0])}"
    at = best + agreeing
    if at >= len(texts):
        return f"{where}: the file ends after line {len(texts)}"
    if agreeing == len(hunk.old):
        return where
    return f"{where}: line {at + 1} reads {_shown(texts[at])}, not {_shown(hunk.old[agreeing])}"


def _shown(text: str) -> str:
    safe = visible(text)
    return f"“{safe if len(safe) <= _SHOWN else safe[:_SHOWN] + '…'}”"


def _malformed(line: int, what: str) -> EditRefused:
    return EditRefused("malformed", f"line {line} of the block {what}", _ASK_AGAIN)


def _search_blocks(texts: Sequence[str]) -> Patch:
    """SEARCH/REPLACE blocks; between them only empty lines and the path of the file."""
    hunks: list[Hunk] = []
    paths: list[str] = []
    numbered = enumerate(texts, start=1)
    for number, text in numbered:
        if _SEARCH.match(text):
            old = tuple(_until(numbered, _DIVIDER, number))
            new = tuple(_until(numbered, _REPLACE, number))
            hunks.append(Hunk(old=old, new=new, line=number))
        elif path := path_hints.from_line(text):
            paths += [] if path in paths else [path]
        elif text.strip():
            raise _malformed(number, "is outside of SEARCH and REPLACE")
    return Patch(paths=tuple(paths), hunks=tuple(hunks))


def _until(numbered: Iterator[tuple[int, str]], mark: re.Pattern[str], began: int) -> Iterator[str]:
    for number, text in numbered:
        if mark.match(text):
            return
        if any(other.match(text) for other in (_SEARCH, _DIVIDER, _REPLACE)):
            raise _malformed(number, f"({text.strip()}) can't be told from the block's own marks")
        yield text
    raise _malformed(began, "begins a SEARCH that is not ended")


class _DiffReader:
    """Reads a unified diff line by line; a body without any header is one hunk.

    Between hunks only a new file's header may stand: a line without a sign is never passed over.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.paths: list[str] = []
        self.creates = False
        self.hunks: list[Hunk] = []
        self.rows: list[tuple[str, str]] | None = None
        self.began = 1
        self.in_header = True
        self.unnamed: int | None = None

    def read(self) -> Patch:
        at = 0
        while at < len(self.texts):
            at += self._header(at) or self._line(at)
        self._close()
        self._check_named()
        if not self.hunks:
            raise _malformed(1, "begins a diff without any change")
        return Patch(paths=tuple(self.paths), hunks=tuple(self.hunks), creates=self.creates)

    def _header(self, at: int) -> int:
        """How many lines the header of a file at this line has; 0 where there is none."""
        old, new, hunk = (*self.texts[at : at + 3], "", "", "")[:3]
        if not (old.startswith("--- ") and new.startswith("+++ ")):
            return 0
        if not (hunk.startswith("@@") or self.in_header):
            return 0
        self._close()
        self.in_header, self.unnamed = True, None
        if new[4:].split("\t", 1)[0].strip() == path_hints.NO_FILE:
            raise EditRefused("deletes", "the diff deletes a file", "Delete it yourself.")
        self.creates |= old[4:].split("\t", 1)[0].strip() == path_hints.NO_FILE
        path = path_hints.header_path(old, new)
        if path not in self.paths:
            self.paths.append(path)
        return 2

    def _line(self, at: int) -> int:
        text = self.texts[at]
        if text.startswith("@@") and not text.startswith("@@@"):
            self._close()
            self._begin(at)
        elif text.startswith(_FILE_BEGINS):
            self._close()
            self._check_named()
            self.in_header, self.unnamed = True, at + 1
        elif self.in_header and text.startswith(_HARMLESS):
            return 1
        elif self.in_header and text.startswith((*_UNSUPPORTED, *_BINARY)):
            raise EditRefused(
                "unsupported",
                f"the diff does more than change lines ({_shown(text)})",
                "Do that part yourself, then ask for the changed lines alone.",
            )
        elif text[:1] in (" ", "+", "-", "\\") or (not text and self.rows is not None):
            if self.rows is None:
                self._begin(at)
            assert self.rows is not None
            self.rows.append((text[:1], text[1:]))
        elif text:
            raise _malformed(at + 1, f"begins with neither “ ”, “+” nor “-”: {_shown(text)}")
        return 1

    def _begin(self, at: int) -> None:
        self._check_named()
        self.rows, self.began, self.in_header = [], at + 1, False

    def _check_named(self) -> None:
        if self.unnamed is not None:
            raise _malformed(self.unnamed, "begins a file without the lines “---” and “+++”")

    def _close(self) -> None:
        rows, self.rows = self.rows, None
        if rows is None:
            return
        while rows and rows[-1][0] == "":
            rows.pop()  # an empty line after the last row parts it from what follows
        sides: dict[str, list[str]] = {"old": [], "new": []}
        marks = {"old": False, "new": False}
        touched: tuple[str, ...] = ()
        for sign, text in rows:
            if sign == "\\":
                marks.update(dict.fromkeys(touched, True))
                continue
            touched = {"-": ("old",), "+": ("new",)}.get(sign, ("old", "new"))
            if any(marks[side] for side in touched):
                raise _malformed(self.began, "goes on after the file's last line")
            for side in touched:
                sides[side].append(text)
        self.hunks.append(
            Hunk(
                old=tuple(sides["old"]),
                new=tuple(sides["new"]),
                line=self.began,
                old_open=marks["old"],
                new_open=marks["new"],
            )
        )
