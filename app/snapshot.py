"""A whole repository of the model hub as a folder that can be loaded: configuration, tokenizer and
safetensors weights, nothing else.

It decides which files are wanted and keeps the folder whole: files arrive in `ORG--NAME.partial/`
under the commit they belong to, each checked against the hub's own hash where it gives one, and the
folder is renamed when the last one is there. A repository that another application already has in
huggingface_hub's cache is used from there. Invariant: `hub/ORG--NAME` is complete or absent.
"""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from app import hub
from app.download import (
    Progress,
    Reach,
    disk_errors,
    file_digest,
    locked,
    require_space,
    user_reach,
)
from app.hub import HubEntry, HubRepo, SourceError
from engine.protocol import ModelError

if TYPE_CHECKING:
    from pathlib import Path

HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
SMALL_FILES = ("*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt")
WEIGHTS = ("model*.safetensors", "adapter_model.safetensors")
"""Names that transformers reads; publishers put the same weights beside them in other layouts."""
MANIFEST = ".sspec-assist.json"


class Manifest(Struct, frozen=True, kw_only=True):
    """What a fetched folder is, written when it is whole."""

    repo: str
    commit: str
    licence: str
    size_bytes: int


def folder_of(repo: str, models: Path) -> Path:
    """Where `repo` lies once it is whole."""
    return models / "hub" / repo.replace("/", "--")


def partial_of(repo: str, models: Path) -> Path:
    """Where an interrupted fetch of `repo` left its files."""
    folder = folder_of(repo, models)
    return folder.with_name(f"{folder.name}.partial")


def manifest_of(folder: Path) -> Manifest | None:
    """The manifest of a fetched folder, or None where there is none to read."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError):
        return None


def present(repo: str, models: Path, reach: Reach) -> Path | None:
    """The folder of `repo` if it is on this machine, ours or huggingface_hub's. Asks no network."""
    folder = folder_of(repo, models)
    if manifest_of(folder) is not None:
        return folder
    cached = hub.cached_snapshot(reach.hub, repo, (*SMALL_FILES, *WEIGHTS))
    return cached if cached is not None and _has_all_weights(cached) else None


def fetch_repo(repo: str, models: Path, progress: Progress, reach: Reach | None = None) -> Path:
    """The folder of hub repository `repo`, fetched if it is not on this machine.

    Raises `ModelError`: `fetch_failed`, `hash_mismatch`, `hub_no_weights`, `disk_full`,
    `cache_unwritable`.
    """
    reach = reach or user_reach()
    found = present(repo, models, reach)
    if found is not None:
        return found
    folder, partial = folder_of(repo, models), partial_of(repo, models)
    with disk_errors(models), locked(folder.with_name(f"{folder.name}.lock"), repo, progress):
        if manifest_of(folder) is not None:
            return folder
        try:
            progress("asking the hub", 0, 0)
            described = hub.describe_repo(reach.hub, repo)
            arriving = _fetch_files(described, partial, progress, reach)
        except SourceError as error:
            raise ModelError(
                "fetch_failed",
                f"{repo} can't be had from the hub: {error}",
                "Check the name, the network and HF_ENDPOINT, then run the same command again: "
                "what was fetched is kept. A folder or .gguf file of your own works as well.",
            ) from error
        arriving.replace(folder)
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def wanted(described: HubRepo) -> tuple[HubEntry, ...]:
    """The files to fetch, small ones first. Raises `ModelError` (`hub_no_weights`)."""
    top = [file for file in described.files if re.fullmatch(r"[^/\\]+", file.filename)]
    small = [file for file in top if _matches(file, SMALL_FILES)]
    weights = [file for file in top if _matches(file, WEIGHTS)]
    if not weights:
        weights = [file for file in top if _matches(file, ("*.safetensors",))]
    if weights:
        return (*small, *weights)
    others = [file.filename for file in top if _matches(file, ("*.gguf",))]
    raise ModelError(
        "hub_no_weights",
        f"{described.repo} holds no safetensors weights",
        f"Download one of its GGUF files ({', '.join(others[:3])} …) and pass its path."
        if others
        else "Choose a repository with *.safetensors files.",
    )


def _fetch_files(described: HubRepo, partial: Path, progress: Progress, reach: Reach) -> Path:
    files = wanted(described)
    folder = partial / described.commit
    for other in partial.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(file.size_bytes or 0 for file in files)
    done = 0
    require_space(folder, total - sum(part.stat().st_size for part in folder.iterdir()))
    for file in files:
        whole, part = folder / file.filename, folder / f"{file.filename}.part"
        if not whole.exists():
            base = done

            def received(size: int, name: str = file.filename, base: int = base) -> None:
                progress(f"downloading {name}", base + size, total)

            hub.fetch_file(
                reach.hub, (described.repo, described.commit, file.filename), part, received
            )
            _check(file, part, progress)
            part.replace(whole)
        done += whole.stat().st_size
    manifest = Manifest(
        repo=described.repo, commit=described.commit, licence=described.licence, size_bytes=done
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return folder


def _check(file: HubEntry, part: Path, progress: Progress) -> None:
    if file.sha256 is None:
        return
    found = file_digest(part, f"checking {file.filename}", progress)
    if found != file.sha256:
        part.unlink()
        raise ModelError(
            "hash_mismatch",
            f"{file.filename} has SHA-256 {found}, the hub announced {file.sha256}",
            "Run the same command again; if it repeats, the network or a mirror alters the file.",
        )


def _has_all_weights(folder: Path) -> bool:
    index = folder / "model.safetensors.index.json"
    if not (folder / "config.json").exists():
        return False
    if not index.exists():
        return any(folder.glob("*.safetensors"))
    try:
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError):
        return False
    return all((folder / shard).exists() for shard in shards)


def _matches(file: HubEntry, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(file.filename, pattern) for pattern in patterns)
