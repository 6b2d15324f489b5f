"""What `--model` may be, what is fetched for it, and the care of what lies on disk."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from app import download, model_store, snapshot
from app.catalogue import CATALOGUE, DEFAULT
from app.hub import HubEntry, HubRepo
from app.model_store import ModelSource, resolve
from app.paths import Paths, user_paths
from engine.protocol import ModelError
from tests.app.sources import (
    COMMIT,
    CONTENT,
    REPO,
    Stages,
    closed_port,
    files_under,
    quiet,
    reach_of,
    running_hub,
)

if TYPE_CHECKING:
    from pathlib import Path

    from app.download import Reach

FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": CONTENT,
    "consolidated.safetensors": CONTENT,
    "README.md": b"text",
    "modeling_tiny.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
}
WANTED = {"config.json", "tokenizer.json", "model.safetensors", snapshot.MANIFEST}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(
        cache=tmp_path / "cache",
        data=tmp_path / "data",
        config=tmp_path / "config",
        runtime=tmp_path / "run",
    )


@pytest.fixture
def dead(tmp_path: Path) -> Reach:
    return reach_of(closed_port(), tmp_path)


def lay_verified(name: str, paths: Paths) -> Path:
    """A stand-in for a model of the catalogue, with the note that its hash was right."""
    entry = CATALOGUE[name]
    file = download.final_path(entry, paths.models_dir())
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    status = file.stat()
    note = {"size_bytes": 4, "mtime_ns": status.st_mtime_ns, "sha256": entry.sha256}
    file.with_name(f"{file.name}.verified.json").write_text(json.dumps(note))
    return file


@pytest.mark.parametrize("wish", [None, "qwen2.5-coder-0.5b", " QWEN2.5-coder-0.5B "])
def test_a_catalogue_name_and_no_name_at_all(wish: str | None, paths: Paths, dead: Reach) -> None:
    file = lay_verified("qwen2.5-coder-0.5b", paths)
    entry = CATALOGUE["qwen2.5-coder-0.5b"]
    assert resolve(wish, paths, quiet, dead) == ModelSource(
        kind="gguf", path=file, name=entry.name, sha256=entry.sha256
    )


def test_a_folder_and_a_file_are_taken_as_they_are(
    tmp_path: Path, paths: Paths, dead: Reach
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    assert resolve(str(tmp_path / "own"), paths, quiet, dead) == ModelSource(
        kind="folder", path=tmp_path / "own", name="own"
    )
    assert resolve(str(tmp_path / "own.gguf"), paths, quiet, dead) == ModelSource(
        kind="gguf", path=tmp_path / "own.gguf", name="own"
    )


def test_a_local_folder_wins_over_a_hub_id(
    tmp_path: Path, paths: Paths, dead: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "tiny-model").mkdir(parents=True)
    assert resolve(REPO, paths, quiet, dead).path == tmp_path / "org" / "tiny-model"


@pytest.mark.parametrize(
    "wish",
    [
        "./absent",
        "/no/such/folder",
        "~/absent",
        "~nobody-here/x",
        "a/b/c",
        "absent.gguf",
        "a/b.gguf",
    ],
)
def test_what_can_only_be_a_path_is_never_asked_for(
    wish: str, tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running_hub(FILES) as hub, pytest.raises(ModelError) as raised:
        resolve(wish, paths, quiet, reach_of(hub.endpoint, tmp_path))
    assert (raised.value.code, raised.value.exit_code) == ("model_missing", 3)
    assert hub.asked == []


def test_another_kind_of_file_is_refused(tmp_path: Path, paths: Paths, dead: Reach) -> None:
    (tmp_path / "model.bin").write_bytes(b"?")
    with pytest.raises(ModelError) as raised:
        resolve(str(tmp_path / "model.bin"), paths, quiet, dead)
    assert raised.value.code == "model_kind"


@pytest.mark.parametrize("wish", ["", "  ", "nonsense"])
def test_an_unknown_name_is_refused(wish: str, paths: Paths, dead: Reach) -> None:
    with pytest.raises(ModelError) as raised:
        resolve(wish, paths, quiet, dead)
    assert raised.value.code == "model_unknown"


def test_a_hub_id_brings_what_can_be_loaded_and_nothing_else(tmp_path: Path, paths: Paths) -> None:
    with running_hub(FILES) as hub:
        reach = reach_of(hub.endpoint, tmp_path)
        source = resolve(REPO, paths, quiet, reach)
        asked = len(hub.asked)
        assert resolve(REPO, paths, quiet, reach) == source
        assert len(hub.asked) == asked, "what is here is used without a question"
    assert (source.kind, source.name) == ("folder", REPO)
    assert files_under(source.path) == WANTED
    assert (source.path / "model.safetensors").read_bytes() == CONTENT
    assert not snapshot.partial_of(REPO, paths.models_dir()).exists()


def test_a_hub_id_goes_on_after_an_interruption(tmp_path: Path, paths: Paths) -> None:
    with running_hub(FILES) as hub:
        reach = reach_of(hub.endpoint, tmp_path)
        with pytest.raises(KeyboardInterrupt):
            resolve(REPO, paths, Stages("downloading model"), reach)
        assert not snapshot.folder_of(REPO, paths.models_dir()).exists()
        assert model_store.listing(paths)[-1].state == "partial"
        before = len(hub.asked)
        resolve(REPO, paths, quiet, reach)
    again = [asked for asked in hub.asked[before:] if asked.startswith("GET /org")]
    assert len(again) == 1
    assert "model.safetensors bytes=" in again[0]


def test_a_file_that_is_not_what_the_hub_announced(tmp_path: Path, paths: Paths) -> None:
    with running_hub(FILES) as hub:
        hub.hashes["model.safetensors"] = "0" * 64
        with pytest.raises(ModelError) as raised:
            resolve(REPO, paths, quiet, reach_of(hub.endpoint, tmp_path))
    assert raised.value.code == "hash_mismatch"
    assert not any("model.safetensors" in name for name in files_under(paths.models_dir()))


def test_a_hub_id_without_a_hub_is_a_sentence(tmp_path: Path, paths: Paths) -> None:
    for reach, reason in (
        (reach_of(closed_port(), tmp_path), "127.0.0.1"),
        (reach_of(closed_port(), tmp_path, offline=True), "HF_HUB_OFFLINE"),
    ):
        with pytest.raises(ModelError, match=reason) as raised:
            resolve(REPO, paths, quiet, reach)
        assert raised.value.code == "fetch_failed"


def test_a_repository_that_does_not_exist(tmp_path: Path, paths: Paths) -> None:
    with running_hub(FILES) as hub, pytest.raises(ModelError, match="HTTP status 404"):
        resolve("org/other", paths, quiet, reach_of(hub.endpoint, tmp_path))


def test_the_cache_of_the_hub_is_used_offline(tmp_path: Path, paths: Paths) -> None:
    from huggingface_hub import hf_hub_download

    with running_hub(FILES) as hub:
        for name in ("config.json", "model.safetensors"):
            hf_hub_download(REPO, name, endpoint=hub.endpoint, cache_dir=tmp_path / "hf-cache")
    reach = reach_of(closed_port(), tmp_path, offline=True)
    folder = resolve(REPO, paths, quiet, reach).path
    assert folder.name == COMMIT
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError):
        resolve(REPO, paths, quiet, reach)


@pytest.mark.parametrize(
    ("names", "hint"),
    [(("tiny.gguf",), "tiny.gguf"), (("pytorch_model.bin",), "Choose a repository")],
)
def test_a_repository_without_safetensors_is_refused(names: tuple[str, ...], hint: str) -> None:
    files = tuple(HubEntry(filename=name, size_bytes=1, sha256=None) for name in names)
    described = HubRepo(repo=REPO, commit=COMMIT, licence="mit", files=files)
    with pytest.raises(ModelError, match=hint) as raised:
        snapshot.wanted(described)
    assert raised.value.code == "hub_no_weights"


def test_the_list_shows_sizes_licences_and_states(tmp_path: Path, paths: Paths) -> None:
    lay_verified("qwen2.5-coder-0.5b", paths)
    part = paths.models_dir() / "smollm2-135m.partial" / "wheels" / "x.whl"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"12345")
    with running_hub(FILES) as hub:
        resolve(REPO, paths, quiet, reach_of(hub.endpoint, tmp_path))
    listed = {model.name: model for model in model_store.listing(paths)}
    assert list(listed) == [*CATALOGUE, REPO]
    assert [listed[name].state for name in listed] == ["present", "absent", "partial", "present"]
    assert listed["smollm2-135m"].disk_bytes == 5
    assert listed["qwen2.5-coder-0.5b"].default
    assert listed[REPO].licence == "mit"
    assert listed[REPO].size_bytes == len(CONTENT) + 4


def test_path_and_removal(tmp_path: Path, paths: Paths, dead: Reach) -> None:
    file = lay_verified("smollm2-135m", paths)
    with running_hub(FILES) as hub:
        folder = resolve(REPO, paths, quiet, reach_of(hub.endpoint, tmp_path)).path
    for name, place in (("smollm2-135m", file), (REPO, folder)):
        assert model_store.path(name, paths, dead) == place
        assert model_store.remove(name, paths, quiet) > 3
        assert not place.exists()
        hint = f"sspec-assist models pull {name}"
        with pytest.raises(ModelError, match=hint):
            model_store.path(name, paths, dead)
        with pytest.raises(ModelError, match=hint) as raised:
            model_store.remove(name, paths, quiet)
        assert raised.value.code == "model_absent"
    assert files_under(paths.models_dir()) == set()


def test_removal_takes_the_conversions_of_that_model_and_no_others(paths: Paths) -> None:
    file = lay_verified("smollm2-135m", paths)
    sources = {"ours": str(file), "other": str(file.parent.with_name("other") / "model.gguf")}
    for name, source in sources.items():
        folder = paths.converted_dir() / name
        folder.mkdir(parents=True)
        (folder / "origin.json").write_text(json.dumps({"source": source, "format": 1}))
    (paths.converted_dir() / "spoilt").mkdir()
    (paths.converted_dir() / "spoilt" / "origin.json").write_text("not json")
    model_store.remove("smollm2-135m", paths, quiet)
    assert {folder.name for folder in paths.converted_dir().iterdir()} == {"other", "spoilt"}


def test_the_folders_of_the_user_and_the_variables_that_move_them(tmp_path: Path) -> None:
    environ = {
        "SSPEC_ASSIST_CACHE": str(tmp_path / "a"),
        "SSPEC_ASSIST_CONFIG": "~/b",
        "SSPEC_ASSIST_RUNTIME": "",
    }
    moved, usual = user_paths(environ), user_paths({})
    assert moved.models_dir() == tmp_path / "a" / "models"
    assert moved.converted_dir() == tmp_path / "a" / "converted"
    assert moved.config_file() == tmp_path / "home" / "b" / "config.toml"
    assert moved.runtime == usual.runtime
    assert "sspec-assist" in str(usual.cache_dir())
    assert files_under(tmp_path / "home") == set()


def test_models_can_be_listed_while_another_process_fetches_one(tmp_path: Path) -> None:
    paths = user_paths({"SSPEC_ASSIST_CACHE": str(tmp_path)})
    incoming = paths.models_dir() / f"{DEFAULT}.partial" / "incoming"
    over = threading.Event()

    def fetch() -> None:
        while not over.is_set():
            for name in ("a", "b", "c"):
                (incoming / name).mkdir(parents=True)
                (incoming / name / "part").write_bytes(b"x")
            shutil.rmtree(incoming)

    fetching = threading.Thread(target=fetch)
    fetching.start()
    try:
        listed = [model_store.listing(paths) for _ in range(300)]
    finally:
        over.set()
        fetching.join()
    ours = [model for one in listed for model in one if model.name == DEFAULT]
    assert {model.state for model in ours} <= {"partial", "absent"}
