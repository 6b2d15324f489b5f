"""The files that a message names, read and ready to go with it, or refused with a reason.

Owns what may be read: plain UTF-8 or UTF-16 text of sensible size inside the working folder that is
not known to hold secrets. Textual-free and synchronous: it touches the disk, so it is called in a
thread. It must not know widgets or tokens.

Invariant: a file is opened only after its name and the place where it really lies have been
approved, and nothing named is left out without a sentence that says so.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import stat
from pathlib import Path, PurePath
from typing import ClassVar

from msgspec import Struct

from engine.project_files.secrets import secret_reason
from engine.protocol import EngineError, Snippet
from tui.mentions import Mention, Wanted, as_mention, mentions
from tui.safe_text import visible

MAX_FILES = 32
MAX_BYTES = 256 << 10
"""Of text that goes along; some four bytes a token, so four times the longest context."""
MAX_FILE_BYTES = 16 << 20
"""Of a file that lines are taken from."""
_LOOKS_LIKE_A_PATH = re.compile(r"[/\\]|\.\w{1,8}\Z")
_BY_NAME = "Take the @ away to send only its name."


class AttachmentRefused(EngineError):  # noqa: N818 - an answer to the user, no fault
    """Why a file that was named does not go along."""

    exit_code: ClassVar[int] = 2


class Attached(Struct, frozen=True, kw_only=True):
    """A file that goes along."""

    snippet: Snippet
    file: str
    """Its path in the working folder; the snippet's own may name lines as well."""
    digest: str
    """SHA-256 of the whole file as it was read, in hexadecimal digits."""


class Gathered(Struct, frozen=True, kw_only=True):
    """All that a message names."""

    attached: tuple[Attached, ...] = ()
    refused: tuple[AttachmentRefused, ...] = ()
    """A message with any of these is not sent as it stands."""
    unknown: tuple[str, ...] = ()
    """Mentions that look like a path but name nothing here: sent as mere words."""

    @property
    def snippets(self) -> tuple[Snippet, ...]:
        return tuple(one.snippet for one in self.attached)


def gather(text: str, root: Path) -> Gathered:
    """Read every file that `text` names. Raises nothing: what can't go along is told."""
    attached: dict[str, Attached] = {}
    refused: list[AttachmentRefused] = []
    unknown: list[str] = []
    for mention in mentions(text):
        try:
            one = _attach(mention, root)
        except AttachmentRefused as refusal:
            refused.append(refusal)
            continue
        if one is None:
            if _LOOKS_LIKE_A_PATH.search(mention.readings[-1].path):
                unknown.append(mention.written)
        elif len(attached) == MAX_FILES and one.snippet.path not in attached:
            refused.append(_too_many(one.snippet.path))
        else:
            attached[one.snippet.path] = one
    return Gathered(
        attached=tuple(attached.values()),
        refused=tuple({str(refusal): refusal for refusal in refused}.values()),
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _attach(mention: Mention, root: Path) -> Attached | None:
    for wanted in mention.readings:
        found = locate(wanted.path, root)
        if found is not None:
            return read(wanted, found, root)
    return None


def locate(path: str, root: Path) -> Path | None:
    """The plain file that `path` means, every link resolved; None if there is nothing of that name.

    Raises `AttachmentRefused` for what is secret, outside `root`, or no plain file. Opens nothing.
    """
    top = Path(os.path.realpath(root))
    asked = top / Path(path).expanduser() if path.startswith("~") else top / path
    try:
        real = Path(os.path.realpath(asked, strict=True))
        about = real.stat()
    except (OSError, ValueError, RuntimeError):
        return None
    if not real.is_relative_to(top):
        raise AttachmentRefused(
            "outside_folder",
            f"{visible(path)} lies outside the working folder {visible(str(top))}",
            "Only files in it can be attached. Start the chat in a folder that holds both.",
        )
    # Both names count: a link called notes.txt may lead to .env, and .env to a harmless file.
    for place in (real.relative_to(top), PurePath(os.path.relpath(asked, top))):
        if reason := secret_reason(place):
            raise AttachmentRefused(
                "secret_file", f"{visible(path)} {reason}, so it was not read", _BY_NAME
            )
    if stat.S_ISDIR(about.st_mode):
        raise AttachmentRefused(
            "is_folder", f"{visible(path)} is a folder", "Name the files in it. " + _BY_NAME
        )
    if not stat.S_ISREG(about.st_mode):
        raise AttachmentRefused("no_plain_file", f"{visible(path)} is no plain file", _BY_NAME)
    return real


def read(wanted: Wanted, real: Path, root: Path) -> Attached:
    """The text of an approved file, or of the lines wanted, every line end a line feed.

    Raises `AttachmentRefused`.
    """
    name = real.relative_to(os.path.realpath(root)).as_posix()
    data = _bytes_of(name, real, MAX_BYTES if wanted.lines is None else MAX_FILE_BYTES)
    text = _decoded(name, data)
    if re.match(r"\s*-----BEGIN [A-Z ]*PRIVATE KEY", text):
        raise AttachmentRefused("secret_file", f"{visible(name)} is a private key", _BY_NAME)
    path = name
    if wanted.lines is not None:
        text, first, last = _cut(name, text, wanted.lines)
        path = f"{name}:{first}-{last}"
        if len(text.encode()) > MAX_BYTES:
            raise _too_large(path, len(text.encode()), MAX_BYTES, "Name fewer lines.")
    snippet = Snippet(path=path, text=text)
    return Attached(snippet=snippet, file=name, digest=hashlib.sha256(data).hexdigest())


def _bytes_of(name: str, real: Path, limit: int) -> bytes:
    # The path has no link left in it, so one that appears now was put there since: refused, as is
    # a pipe, which without O_NONBLOCK would wait for a writer.
    flags = os.O_RDONLY
    for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, flag, 0)
    try:
        with os.fdopen(os.open(real, flags), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise AttachmentRefused(
                    "no_plain_file", f"{visible(name)} is no plain file", _BY_NAME
                )
            data = file.read(limit + 1)
            size = max(about.st_size, len(data))
    except OSError as error:
        raise AttachmentRefused(
            "unreadable",
            f"{visible(name)} can't be read: {error.strerror}",
            "Check its permissions. " + _BY_NAME,
        ) from error
    if len(data) > limit:
        part = f"Attach a part of it, like {as_mention(name)}:1-200. "
        raise _too_large(name, size, limit, (part if size <= MAX_FILE_BYTES else "") + _BY_NAME)
    return data


def _decoded(name: str, data: bytes) -> str:
    marks = (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    )
    encoding = next((name for mark, name in marks if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise _binary(name) from error
        raise AttachmentRefused(
            "not_utf8",
            f"{visible(name)} is not UTF-8 text (byte {error.start})",
            "Convert it first, for instance with iconv. " + _BY_NAME,
        ) from error
    if "\0" in text:
        raise _binary(name)
    return text.replace("\r\n", "\n")


def _cut(name: str, text: str, lines: tuple[int, int]) -> tuple[str, int, int]:
    first, last = lines
    # Only these ends are lines to an editor; splitlines() knows others.
    every = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    if not 1 <= first <= last or first > len(every):
        raise AttachmentRefused(
            "no_such_lines",
            f"lines {first}-{last} of {visible(name)}: it has {len(every)}",
            f"Name a first line from 1 to {len(every)} and a last one not before it.",
        )
    last = min(last, len(every))
    return "".join(every[first - 1 : last]), first, last


def _binary(name: str) -> AttachmentRefused:
    return AttachmentRefused("binary_file", f"{visible(name)} is a binary file", _BY_NAME)


def _too_large(name: str, size: int, limit: int, hint: str) -> AttachmentRefused:
    return AttachmentRefused(
        "large_file", f"{visible(name)} has {size:,} bytes, more than {limit:,}", hint
    )


def _too_many(path: str) -> AttachmentRefused:
    return AttachmentRefused(
        "too_many_files",
        f"{visible(path)} is beyond the {MAX_FILES} files of one message",
        "Send it with the next one. " + _BY_NAME,
    )
