"""What a checkpoint's folder says about its tokenizer, and what the `tokenizers` package can't say.

Owns the reading of `tokenizer.json` and the small files beside it, the spread-out facts in them
(special texts, end ids, chat template) and the decoding of byte-fallback vocabularies. It knows
nothing of prompts. Invariant: nothing here changes what text a tokenizer's ids stand for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from engine.protocol import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_TEXT_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_SPACE_MARK = "▁"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """One folder's tokenizer with the facts beside it."""

    tokenizer: Tokenizer
    template: str | None
    """Source of the chat template."""
    special_texts: Mapping[str, str]
    """`bos_token`, `eos_token` and so on, as templates name them."""
    eos_ids: frozenset[int]
    """Every id that some file calls the end of a text."""
    leading_ids: tuple[int, ...]
    """What goes before a text that is not a conversation: the beginning-of-text id, or nothing."""


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Read a checkpoint's tokenizer. Raises `ModelError` when it is missing or unreadable."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(
            "no_tokenizer",
            f"The model in {folder} has no tokenizer.json",
            "Download the tokenizer's files into the same folder.",
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing narrower
        raise _damaged(file, error) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config = _read(folder / "tokenizer_config.json")
    texts = _special_texts({**_read(folder / "special_tokens_map.json"), **config})
    eos: set[int | None] = {tokenizer.token_to_id(texts.get("eos_token", ""))}
    for name in ("generation_config.json", "config.json"):
        eos.update(_ids(_read(folder / name).get("eos_token_id")))
    return TokenizerFiles(
        tokenizer=tokenizer,
        template=_find_template(folder, config),
        special_texts=texts,
        eos_ids=frozenset(i for i in eos if i is not None),
        leading_ids=_leading_ids(tokenizer, config.get("add_bos_token"), texts.get("bos_token")),
    )


def text_decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    """The function from ids to text; bytes that form no character become U+FFFD.

    A byte-fallback decoder of the `tokenizers` package spoils a whole run of byte pieces when its
    end is incomplete, so text already shown would change; here each character stands for itself.
    """
    steps = _decoder_steps(tokenizer)
    kinds = [step["type"] for step in steps]
    if "ByteFallback" not in kinds or not set(kinds) <= {
        "Replace",
        "ByteFallback",
        "Fuse",
        "Strip",
    }:
        return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))
    strip = sum(step["start"] for step in steps if step["type"] == "Strip")
    pieces: dict[int, bytes] = {}

    def decode(ids: Sequence[int]) -> str:
        for i in ids:
            if i not in pieces:
                pieces[i] = _piece_bytes(tokenizer.id_to_token(i))
        text = b"".join(pieces[i] for i in ids).decode("utf-8", "replace")
        spaces = len(text) - len(text.lstrip(" "))
        return text[min(strip, spaces) :]

    return decode


def _piece_bytes(piece: str | None) -> bytes:
    if piece is None:
        return b""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace(_SPACE_MARK, " ").encode()


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    if tokenizer.decoder is None:
        return []
    state = json.loads(tokenizer.decoder.__getstate__())
    return list(state.get("decoders", [state]))


def _leading_ids(tokenizer: Tokenizer, wanted: bool | None, bos: str | None) -> tuple[int, ...]:
    """The tokenizer's own habit, unless `tokenizer_config.json` (`wanted`) overrules it."""
    if wanted is not None:
        bos_id = tokenizer.token_to_id(bos) if wanted and bos else None
        return () if bos_id is None else (bos_id,)
    encoding = tokenizer.encode("a", add_special_tokens=True)
    mask = encoding.special_tokens_mask
    return tuple(encoding.ids[: mask.index(0)]) if 0 in mask else ()


def _find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The default template: a file of its own, else an entry that holds one text or several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    entry = config.get("chat_template")
    if isinstance(entry, list):
        entry = {item.get("name"): item.get("template") for item in entry}
    if isinstance(entry, dict):
        entry = entry.get("default")
    return entry if isinstance(entry, str) else None


def _special_texts(config: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for name in _TEXT_NAMES:
        entry = config.get(f"{name}_token")
        text = entry.get("content") if isinstance(entry, dict) else entry
        if isinstance(text, str):
            texts[f"{name}_token"] = text
    return texts


def _ids(entry: Any) -> list[int]:
    entries = entry if isinstance(entry, list) else [entry]
    return [i for i in entries if isinstance(i, int)]


def _read(file: Path) -> dict[str, Any]:
    """A JSON object; empty when there is no such file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(file, error) from error
    return content if isinstance(content, dict) else {}


def _damaged(file: Path, error: Exception) -> ModelError:
    return ModelError(
        "bad_tokenizer",
        f"{file} can't be read as a tokenizer's file ({error})",
        "Download it again.",
    )
