"""The facts of the catalogue hold together, and a mistyped name finds its way."""

from __future__ import annotations

import re

import pytest

from app.catalogue import CATALOGUE, DEFAULT, Entry, HubFile, PypiWheels, entry_named
from engine.protocol import ModelError


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.name)
def test_every_entry_is_pinned_and_can_be_had_from_an_index(entry: Entry) -> None:
    assert CATALOGUE[entry.name] is entry
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert entry.filename.endswith(".gguf")
    assert entry.licence == "Apache-2.0"
    hub_files = [source for source in entry.sources if isinstance(source, HubFile)]
    wheels = [source for source in entry.sources if isinstance(source, PypiWheels)]
    assert entry.sources == (*hub_files, *wheels), "the publisher's repository comes first"
    assert all(re.fullmatch(r"[0-9a-f]{40}", source.revision) for source in hub_files)
    assert len(wheels) == 1
    assert 0.8 * entry.size_bytes < wheels[0].download_bytes < entry.size_bytes


def test_parts_are_in_the_order_of_their_numbers() -> None:
    wheels = CATALOGUE["qwen2.5-coder-1.5b"].sources[-1]
    assert isinstance(wheels, PypiWheels)
    numbers = [int(package.rpartition("part")[2]) for package in wheels.packages]
    assert numbers == list(range(1, 23))


def test_the_default_is_in_the_catalogue() -> None:
    assert entry_named(DEFAULT).name == DEFAULT == "qwen2.5-coder-0.5b"


def test_upper_and_lower_case_are_alike() -> None:
    assert entry_named("Qwen2.5-Coder-0.5B").name == "qwen2.5-coder-0.5b"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("qwen2.5-coder-0.5", "qwen2.5-coder-0.5b"), ("smolm2", "smollm2-135m")],
)
def test_a_near_miss_is_asked_about(typed: str, meant: str) -> None:
    with pytest.raises(ModelError) as raised:
        entry_named(typed)
    assert raised.value.code == "model_unknown"
    assert raised.value.exit_code == 3
    assert f"'{typed}'" in raised.value.message
    assert f"Did you mean {meant}?" in raised.value.hint


def test_a_far_miss_gets_the_list_of_names() -> None:
    with pytest.raises(ModelError) as raised:
        entry_named("gpt")
    assert "Did you mean" not in raised.value.hint
    assert all(name in raised.value.hint for name in CATALOGUE)
