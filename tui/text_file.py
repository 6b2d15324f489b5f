"""A text file as lines that remember their ends: bytes to text and back without losing a bit.

Owns encodings, byte order marks and line ends. Knows no path and no edit.

Invariant: `encode(file, file.lines)` gives the bytes the file was read from; a text that cannot be
written in the file's own encoding is refused, never replaced.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from msgspec import Struct

from tui.edit_refused import EditRefused

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE_FEEDS = re.compile(r"(\r?\n)")
_RETURNS = re.compile(r"(\r)")
_C1 = re.compile("[\x80-\x9f]")


class Line(Struct, frozen=True, kw_only=True):
    """One line; the end is empty for a last line that has none."""

    text: str
    end: str


class TextFile(Struct, frozen=True, kw_only=True):
    """What a file holds and how it is written."""

    lines: tuple[Line, ...]
    encoding: str
    mark: bytes
    """The byte order mark the file begins with; may be empty."""
    end: str
    """The line end most lines have."""

    @property
    def texts(self) -> list[str]:
        """The lines without their ends."""
        return [line.text for line in self.lines]

    @property
    def ends_open(self) -> bool:
        """Whether the last line has no line end."""
        return bool(self.lines) and not self.lines[-1].end


def decode(name: str, data: bytes) -> TextFile:
    """The file as text. Refuses binary content and encodings it cannot tell for sure."""
    mark, encoding = next((pair for pair in _MARKS if data.startswith(pair[0])), (b"", ""))
    is_binary = not mark and b"\0" in data
    text = "" if is_binary else _decoded(name, data[len(mark) :], encoding)
    if is_binary or "\0" in text:
        raise EditRefused(
            "binary", f"{name} is a binary file (it holds NUL)", "Only text files are edited."
        )
    lines = split(text)
    ends = Counter(line.end for line in lines if line.end)
    return TextFile(
        lines=lines,
        encoding=encoding or ("utf-8" if _is_utf8(data) else "latin-1"),
        mark=mark,
        end=ends.most_common(1)[0][0] if ends else "\n",
    )


def _decoded(name: str, data: bytes, encoding: str) -> str:
    """The text; latin-1 is taken only where the bytes are no UTF-8 and all are letters in it."""
    try:
        return data.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("latin-1")
        if not encoding and not _C1.search(text):
            return text
        raise EditRefused(
            "encoding",
            f"{name} is neither UTF-8, UTF-16 nor latin-1 (byte {error.start})",
            "Convert it to UTF-8 first, then apply again.",
        ) from error


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def split(text: str) -> tuple[Line, ...]:
    r"""Lines at \n and \r\n; at \r only where there is no \n at all."""
    pattern = _RETURNS if "\n" not in text else _LINE_FEEDS
    parts = pattern.split(text)
    lines = [Line(text=body, end=end) for body, end in zip(parts[::2], parts[1::2], strict=False)]
    if parts[-1]:
        lines.append(Line(text=parts[-1], end=""))
    return tuple(lines)


def encode(name: str, file: TextFile, lines: Sequence[Line]) -> bytes:
    """The lines in the file's own encoding and with its mark.

    Refuses characters the encoding has not, naming the first.
    """
    text = "".join(line.text + line.end for line in lines)
    try:
        return file.mark + text.encode(file.encoding)
    except UnicodeEncodeError as error:
        raise EditRefused(
            "encoding",
            f"{name} is {file.encoding} and cannot hold U+{ord(text[error.start]):04X}",
            "Convert the file to UTF-8 first, then apply again.",
        ) from error


def retexted(file: TextFile, old: Sequence[Line], texts: Sequence[str]) -> list[Line]:
    """New texts in the place of some of the file's lines, every one with a line end.

    A kept line keeps its own end, a changed one that of the line it stands for, a new one that of
    the line before it.
    """
    if len({line.end for line in file.lines if line.end}) <= 1:
        return [Line(text=text, end=file.end) for text in texts]
    before, after = [line.text for line in old], list(texts)
    same = common_start(before, after)
    lines = list(old[:same])
    old, texts = old[same:], after[same:]
    # Lines it took for junk would silently change their ends, so it may take none for it.
    matcher = SequenceMatcher(None, before[same:], texts, autojunk=False)
    for _, old_start, old_stop, new_start, new_stop in matcher.get_opcodes():
        ends = [line.end or file.end for line in old[old_start:old_stop]]
        spare = ends[-1] if ends else (lines[-1].end if lines else file.end)
        ends += [spare] * (new_stop - new_start)
        pairs = zip(texts[new_start:new_stop], ends, strict=False)
        lines += [Line(text=text, end=end) for text, end in pairs]
    return lines


def common_start(left: Sequence[str], right: Sequence[str]) -> int:
    """How many lines the two begin with in common."""
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def finished(file: TextFile, lines: list[Line], *, ends_open: bool) -> list[Line]:
    """The lines with an end on each but, where `ends_open`, the last."""
    closed = [line if line.end else Line(text=line.text, end=file.end) for line in lines]
    if closed and ends_open:
        closed[-1] = Line(text=closed[-1].text, end="")
    return closed
