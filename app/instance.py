"""The one daemon of a user: where it listens, who holds that place, and how one that died is seen.

It owns the runtime folder:

    engine.lock    held by the daemon as long as it lives; the system lets go of it after `kill -9`
    start.lock     held by a client while it starts a daemon, so that eight clients start one
    engine.json    pid, and for the loopback the port and the token; readable by the user alone
    engine.sock    the socket

A folder, a socket or a file of somebody else's is never used. Where the path is too long for a
Unix socket, the socket lies in a short folder under the temporary one. Knows nothing of HTTP.

Invariant: whoever holds `engine.lock` is the daemon; what lies in the folder without the lock being
held is left over from one that is gone, and may be removed by the next that holds it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import stat
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from engine.processes import started_at
from engine.protocol import PROTOCOL_VERSION, EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SOCKET_PATH_BYTES = 100
"""The system's own limit is 104 to 108 with the ending zero."""
_LISTEN_S = 2.0


class Place(Struct, frozen=True, kw_only=True):
    """Where the daemon of this user is to be found."""

    folder: Path
    socket: Path | None
    """None where the loopback is used instead."""

    @property
    def lock(self) -> Path:
        return self.folder / "engine.lock"

    @property
    def start_lock(self) -> Path:
        return self.folder / "start.lock"

    @property
    def record(self) -> Path:
        return self.folder / "engine.json"


class Record(Struct, frozen=True, kw_only=True):
    """What the daemon tells of itself on disk."""

    pid: int
    started: float
    """The process's creation time, which together with the pid names it for good."""
    protocol: int = PROTOCOL_VERSION
    port: int = 0
    token: str = ""


class AlreadyRunningError(EngineError):
    """Another daemon holds the place."""


def place_of(runtime: Path, *, loopback: bool = sys.platform == "win32") -> Place:
    """The place that belongs to a runtime folder. Creates nothing."""
    if loopback:
        return Place(folder=runtime, socket=None)
    usual = runtime / "engine.sock"
    if len(os.fsencode(usual)) <= MAX_SOCKET_PATH_BYTES:
        return Place(folder=runtime, socket=usual)
    name = f"sspec-assist-{hashlib.sha256(os.fsencode(runtime)).hexdigest()[:16]}"
    short = Path(tempfile.gettempdir()) / name / "engine.sock"
    if len(os.fsencode(short)) > MAX_SOCKET_PATH_BYTES:
        short = Path("/tmp") / name / "engine.sock"
    return Place(folder=runtime, socket=short)


def prepare(place: Place, *, create: bool = True) -> None:
    """Make the folders, for this user alone; without `create`, only see to those that exist.

    Raises `EngineError` for a folder that can't be made, and for one that others may change.
    """
    folders = [place.folder]
    if place.socket is not None and place.socket.parent != place.folder:
        folders.append(place.socket.parent)
    for folder in folders:
        with sentences(folder):
            if create:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif not folder.exists():
                continue
            if sys.platform != "win32":
                _make_private(folder)


def read_record(place: Place) -> Record | None:
    """What the last daemon wrote, if it can be read."""
    try:
        return msgspec.json.decode(place.record.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def listening(place: Place) -> bool:
    """Whether somebody takes connections there; not whether they answer."""
    if place.socket is not None:
        family, address = socket.AF_UNIX, os.fspath(place.socket)
        return place.socket.exists() and _connects(family, address)
    record = read_record(place)
    return record is not None and _connects(socket.AF_INET, ("127.0.0.1", record.port))


def is_held(place: Place) -> bool:
    """Whether a daemon lives, even one that listens no longer or not yet."""
    if not place.lock.exists():
        return False
    guard = FileLock(place.lock, mode=0o600)
    try:
        guard.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    guard.release()
    return False


@contextmanager
def claimed(place: Place, *, patience_s: float = 5.0) -> Iterator[tuple[socket.socket, Record]]:
    """Be the daemon of `place`: holds the lock, hands out a bound socket that does not listen yet.

    Waits `patience_s` for one that is just ending. Raises `AlreadyRunningError`, or `EngineError`
    for a folder that can't be used. What it made is removed when the context is left.
    """
    prepare(place)
    guard = FileLock(place.lock, mode=0o600)
    with sentences(place.folder):
        try:
            guard.acquire(timeout=patience_s)
        except Timeout:
            held = "another engine runs already"
            raise AlreadyRunningError("already_running", held, "Use that one.") from None
    try:
        with sentences(place.folder):
            bound = _bound(place)
            record = _written(place, bound)
        try:
            yield bound, record
        finally:
            bound.close()
            if read_record(place) == record:  # else the folder was emptied, and another serves
                _remove(place)
    finally:
        guard.release()


@contextmanager
def sentences(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into sentences."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        taken = error.errno in (errno.EISDIR, errno.EEXIST, errno.ENOTDIR)
        remedy = "Free some space" if full else "Give yourself the right to write there"
        if taken:
            remedy = "Remove what is in the way"
        raise EngineError(
            "disk_full" if full else "runtime_unusable",
            f"{error.filename or folder} can't be used ({error.strerror or error})",
            f"{remedy}, or set SSPEC_ASSIST_RUNTIME and SSPEC_ASSIST_DATA to other folders.",
        ) from error


def _make_private(folder: Path) -> None:
    """Raises `EngineError` for a folder that others own or could have put there."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise _unsafe(folder, "it is no folder of yours")
    above = folder.parent.stat()
    others_may_write = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
    if others_may_write or above.st_uid not in (0, os.getuid()):
        raise _unsafe(folder, f"others may change {folder.parent}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def _unsafe(folder: Path, why: str) -> EngineError:
    return EngineError(
        "runtime_unsafe",
        f"{folder} is not safe to meet the engine in: {why}",
        "Set SSPEC_ASSIST_RUNTIME to a folder that only you can write to.",
    )


def _bound(place: Place) -> socket.socket:
    if place.socket is None:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.bind(("127.0.0.1", 0))
        return bound
    if listening(place):
        raise EngineError(
            "socket_in_use",
            f"another program answers at {place.socket}",
            "End it, or set SSPEC_ASSIST_RUNTIME to another folder.",
        )
    place.socket.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        bound.bind(os.fspath(place.socket))
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _written(place: Place, bound: socket.socket) -> Record:
    loopback = place.socket is None
    record = Record(
        pid=os.getpid(),
        started=started_at(os.getpid()),
        port=bound.getsockname()[1] if loopback else 0,
        token=secrets.token_urlsafe(32) if loopback else "",
    )
    fresh = place.record.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    # Never readable by others, not even for a moment.
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(record))
    fresh.replace(place.record)
    return record


def _remove(place: Place) -> None:
    place.record.unlink(missing_ok=True)
    if place.socket is not None:
        place.socket.unlink(missing_ok=True)
        if place.socket.parent != place.folder:
            with suppress(OSError):
                place.socket.parent.rmdir()


def _connects(family: int, address: str | tuple[str, int]) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_LISTEN_S)
        try:
            probe.connect(address)
        except BlockingIOError:
            return True  # so many wait there that one more can't: somebody listens
        except OSError:
            return False
    return True
