"""What a model is before conversion: a config, named dense tensors, a tokenizer, an identity.

`open_checkpoint(path)` hides whether these come from a Hugging Face folder (here) or a GGUF file
(`checkpoint_gguf.py`); names and layouts are transformers' in both cases. Whether the files are
complete and of a kind the engine runs is `preflight.py`'s question, asked before.

Invariant: nothing is read from the weights but what `tensor(name)` returns, one at a time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from engine.protocol import ModelError
from engine.tensor_file import Entry, read_header, read_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch import Tensor

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
_INDEX = "model.safetensors.index.json"
_SAMPLE_BYTES = 64 << 10
_SAMPLES = 16
_WHOLE_BYTES = 2 << 20


class Checkpoint(Protocol):
    """A model's files, whatever their format."""

    path: Path

    @property
    def config(self) -> dict[str, Any]:
        """The content of a transformers `config.json`."""
        ...

    @property
    def digest(self) -> str:
        """Identity of the files, see `digest_of`."""
        ...

    def names(self) -> frozenset[str]:
        """Names of all tensors, as transformers spells them."""
        ...

    def tensor(self, name: str) -> Tensor:
        """One tensor on the CPU in its stored dtype, bfloat16 if it was stored in blocks."""
        ...

    def write_tokenizer(self, folder: Path) -> None:
        """Put `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` (ids that end
        an answer) into `folder`, with the chat template if there is one."""
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder or a `.gguf` file. Raises `ModelError` if it can't be read."""
    path = checkpoint_path(path)
    if path.is_file():
        from engine.checkpoint_gguf import GgufCheckpoint

        return GgufCheckpoint(path)
    return FolderCheckpoint(path)


def checkpoint_path(path: Path) -> Path:
    """`path` itself, or the only GGUF in a folder that has no `config.json`."""
    if path.is_dir() and not (path / "config.json").exists():
        found = sorted(path.glob("*.gguf"))
        if len(found) == 1:
            return found[0]
    return path


class FolderCheckpoint:
    """A folder with `config.json` and safetensors in one file or in shards."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> dict[str, Any]:
        """See `Checkpoint.config`."""
        return _read_json(self.path / "config.json")

    @cached_property
    def digest(self) -> str:
        """See `Checkpoint.digest`."""
        return digest_of(self.path)

    @cached_property
    def _entries(self) -> dict[str, tuple[Path, Entry]]:
        return {
            name: (file, entry)
            for file in weight_files(self.path)
            for name, entry in read_header(file).items()
        }

    def names(self) -> frozenset[str]:
        """See `Checkpoint.names`."""
        return frozenset(self._entries)

    def tensor(self, name: str) -> Tensor:
        """See `Checkpoint.tensor`."""
        return read_tensor(*self._entries[name])

    def write_tokenizer(self, folder: Path) -> None:
        """Copy the files; a vocabulary without `tokenizer.json` is converted once, here."""
        for name in TOKENIZER_FILES:
            if (self.path / name).exists():
                shutil.copyfile(self.path / name, folder / name)
        if not (folder / "tokenizer.json").exists():
            self._convert_tokenizer(folder)
        if not (folder / "generation_config.json").exists():
            ends = {"eos_token_id": self.config.get("eos_token_id")}
            (folder / "generation_config.json").write_text(json.dumps(ends))

    def _convert_tokenizer(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        try:
            AutoTokenizer.from_pretrained(self.path, local_files_only=True).save_pretrained(folder)
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(
                "bad_tokenizer",
                f"the tokenizer in '{self.path}' can't be read: {error}",
                "Put the model's tokenizer.json into the folder.",
            ) from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, in the order of their names."""
    if (folder / _INDEX).exists():
        shards = _read_json(folder / _INDEX).get("weight_map")
        if isinstance(shards, dict) and shards:
            return [folder / str(name) for name in sorted(set(shards.values()))]
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    found = [file for file in sorted(folder.glob("*.safetensors")) if "adapter" not in file.name]
    if not found:
        raise ModelError(
            "no_weights",
            f"'{folder}' has no safetensors file",
            "Choose a revision of the model with safetensors weights, or a GGUF file.",
        )
    return found


def digest_of(path: Path, *, anywhere: bool = False) -> str:
    """Identity of a checkpoint's files, as 64 hexadecimal digits, in milliseconds; `anywhere`: of
    their content alone, the same for every copy on every machine.

    Reading gigabytes at every start would take longer than the start itself, so weights are told
    apart by name, size and time of change, the first two MiB (every header begins there) and
    sixteen evenly spread samples; smaller files are read whole. A file edited in place with its
    size and time kept could escape this; nothing writes checkpoints that way.
    """
    path = checkpoint_path(path)
    files: Iterable[Path] = [path]
    if path.is_dir():
        small = (path / name for name in ("config.json", _INDEX, *TOKENIZER_FILES))
        files = [*(file for file in small if file.exists()), *weight_files(path)]
    whole = hashlib.sha256()
    for file in files:
        _hash_samples(whole, file, anywhere=anywhere)
    return whole.hexdigest()


def _hash_samples(into: Any, file: Path, *, anywhere: bool) -> None:
    try:
        about = file.stat()
        copy = f"{file.name}\0{about.st_size}\0{about.st_mtime_ns}\0"
        into.update((f"{about.st_size}\0" if anywhere else copy).encode())
        with file.open("rb") as data:
            into.update(data.read(_WHOLE_BYTES))
            if about.st_size > _WHOLE_BYTES:
                last = about.st_size - _SAMPLE_BYTES
                for sample in range(_SAMPLES):
                    data.seek(last * sample // (_SAMPLES - 1))
                    into.update(data.read(_SAMPLE_BYTES))
    except OSError as error:
        raise _unreadable(file, error) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError("it holds no object")
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(file, error) from error
    return content


def _unreadable(file: Path, error: Exception) -> ModelError:
    return ModelError(
        "unreadable_file", f"'{file}' can't be read: {error}", "Fetch the model's files again."
    )
