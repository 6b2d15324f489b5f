"""From what the user wrote after `--model` to files on disk, and the care of those files.

It owns the meaning of a model's name: a catalogue name, a path, or a hub id, in that order, except
that a folder that exists always wins over a hub id of the same spelling. How files are fetched is
`download`'s and `snapshot`'s business; what is in them is the engine's.

Invariant: nothing is fetched for a name that can only be a path.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from app import download, snapshot
from app.catalogue import CATALOGUE, DEFAULT, Entry, entry_named
from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.download import Progress, Reach
    from app.paths import Paths

State = Literal["present", "partial", "absent"]


class ModelSource(Struct, frozen=True, kw_only=True):
    """A model on this machine, ready to be loaded."""

    kind: Literal["folder", "gguf"]
    path: Path
    name: str
    """How to call it: the catalogue name, the hub id, or the last part of the path."""
    sha256: str | None = None
    """Digest of the file where it was verified; it saves the loader hashing it again."""


class Listed(Struct, frozen=True, kw_only=True):
    """One line of the list of models."""

    name: str
    title: str
    licence: str
    size_bytes: int
    disk_bytes: int
    """What it takes on disk now, parts of an unfinished download included."""
    state: State
    default: bool = False


def resolve(
    spec: str | None, paths: Paths, progress: Progress, reach: Reach | None = None
) -> ModelSource:
    """The model that `spec` means, fetched if need be; None is the default of the catalogue.

    Raises `ModelError`: `model_missing` for a path that is not there, `model_kind` for a file that
    is no GGUF, `model_unknown` for a name nobody knows, and what fetching raises.
    """
    wish = DEFAULT if spec is None else spec.strip()
    if wish.lower() in CATALOGUE:
        return _from_catalogue(CATALOGUE[wish.lower()], paths, progress, reach)
    place = _expanded(wish)
    if wish and place.exists():
        return _local(place)
    if _is_path(wish):
        raise ModelError(
            "model_missing",
            f"there is no model at '{place.absolute()}'",
            "Check the path; it must be a Hugging Face folder or a .gguf file.",
        )
    if snapshot.HUB_ID.fullmatch(wish):
        folder = snapshot.fetch_repo(wish, paths.models_dir(), progress, reach)
        return ModelSource(kind="folder", path=folder.absolute(), name=wish)
    return _from_catalogue(entry_named(wish), paths, progress, reach)


def pull(
    name: str | None, paths: Paths, progress: Progress, reach: Reach | None = None
) -> ModelSource:
    """Fetch a catalogue entry or hub id and say where it is. Raises like `resolve`."""
    return resolve(name, paths, progress, reach)


def path(name: str, paths: Paths, reach: Reach | None = None) -> Path:
    """Where a model of the catalogue or the hub lies; fetches nothing.

    Raises `ModelError`: `model_absent` when it is not on this machine, `model_unknown`.
    """
    models = paths.models_dir()
    if snapshot.HUB_ID.fullmatch(name):
        found = snapshot.present(name, models, reach or download.user_reach())
    else:
        entry = entry_named(name)
        file = download.final_path(entry, models)
        found = file if download.is_verified(file, entry.sha256) else None
    if found is None:
        raise _absent(name)
    return found


def listing(paths: Paths) -> tuple[Listed, ...]:
    """The catalogue, then what was fetched from the hub, with what is on disk of each."""
    models = paths.models_dir()
    return (
        *(_listed_entry(entry, models) for entry in CATALOGUE.values()),
        *_listed_repos(models),
    )


def remove(name: str, paths: Paths, progress: Progress) -> int:
    """Delete what is on disk of `name`, parts and conversions included, and return the bytes freed.

    Only this application's own files go; huggingface_hub's cache belongs to others as well.
    Raises `ModelError`: `model_absent` when there is nothing, `model_unknown`.
    """
    models = paths.models_dir()
    if snapshot.HUB_ID.fullmatch(name):
        folder, partial = snapshot.folder_of(name, models), snapshot.partial_of(name, models)
    else:
        entry = entry_named(name)
        folder, partial = models / entry.name, models / f"{entry.name}.partial"
    if not folder.exists() and not partial.exists():
        raise _absent(name)
    lock = folder.with_name(f"{folder.name}.lock")
    with download.disk_errors(models), download.locked(lock, name, progress):
        doomed = [folder, partial, *_conversions_of(folder, paths.converted_dir())]
        freed = sum(_disk_bytes(gone) for gone in doomed)
        for gone in doomed:
            if gone.exists():
                shutil.rmtree(gone)
    return freed


class _Origin(Struct, frozen=True, kw_only=True):
    """The one field of a conversion's own note that matters here."""

    source: str


def _conversions_of(folder: Path, converted: Path) -> Iterator[Path]:
    """Conversions that were made from a file in `folder`."""
    for note in converted.glob("*/origin.json"):
        try:
            origin = msgspec.json.decode(note.read_bytes(), type=_Origin)
        except (OSError, msgspec.MsgspecError):
            continue
        if Path(origin.source).is_relative_to(folder):
            yield note.parent


def _from_catalogue(
    entry: Entry, paths: Paths, progress: Progress, reach: Reach | None
) -> ModelSource:
    file = download.fetch(entry, paths.models_dir(), progress, reach)
    return ModelSource(kind="gguf", path=file.absolute(), name=entry.name, sha256=entry.sha256)


def _local(place: Path) -> ModelSource:
    name = place.resolve().name
    if place.is_dir():
        return ModelSource(kind="folder", path=place.absolute(), name=name)
    if place.suffix.lower() == ".gguf":
        return ModelSource(kind="gguf", path=place.absolute(), name=place.stem)
    raise ModelError(
        "model_kind",
        f"'{place}' is neither a folder nor a .gguf file",
        "Pass the folder that holds config.json, or a .gguf file.",
    )


def _expanded(wish: str) -> Path:
    try:
        return Path(wish).expanduser()
    except RuntimeError:
        return Path(wish)  # `~nobody`: there is no such user, so there is no such path


def _is_path(wish: str) -> bool:
    """Whether `wish`, which does not exist, can only have been meant as a path."""
    if wish.startswith((".", "~", "/")) or wish.lower().endswith((".gguf", ".safetensors")):
        return True
    return ("/" in wish or "\\" in wish) and snapshot.HUB_ID.fullmatch(wish) is None


def _listed_entry(entry: Entry, models: Path) -> Listed:
    disk = _disk_bytes(models / entry.name) + _disk_bytes(models / f"{entry.name}.partial")
    whole = download.is_verified(download.final_path(entry, models), entry.sha256)
    return Listed(
        name=entry.name,
        title=entry.title,
        licence=entry.licence,
        size_bytes=entry.size_bytes,
        disk_bytes=disk,
        state="present" if whole else "partial" if disk else "absent",
        default=entry.name == DEFAULT,
    )


def _listed_repos(models: Path) -> tuple[Listed, ...]:
    listed: list[Listed] = []
    for folder in sorted((models / "hub").glob("*--*")):
        if not folder.is_dir():
            continue
        manifest = snapshot.manifest_of(folder)
        repo = folder.name.removesuffix(".partial").replace("--", "/", 1)
        disk = _disk_bytes(folder)
        listed.append(
            Listed(
                name=repo if manifest is None else manifest.repo,
                title="from the hub",
                licence="unknown" if manifest is None else manifest.licence,
                size_bytes=disk if manifest is None else manifest.size_bytes,
                disk_bytes=disk,
                state="partial" if manifest is None else "present",
            )
        )
    return tuple(listed)


def _absent(name: str) -> ModelError:
    return ModelError(
        "model_absent",
        f"{name} is not on this machine",
        f"Fetch it with: sspec-assist models pull {name}",
    )


def _disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, of which another process may be moving some just now."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(at, name).stat().st_size
    return total
