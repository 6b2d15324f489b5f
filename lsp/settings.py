"""The editor's settings: what a user may set, and how what a client sends becomes that.

Clients send the same settings by different roads (initialization options, pushed, pulled), in
camelCase or in snake_case, in whole or in part, wrapped in their section or not. A wrong value is
told in a sentence and its default holds; it never stops anything. It knows nothing of messages.

Invariant: whatever is read, the outcome is a valid `EditorSettings`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from lsp.messages import SECTION

Multiline = Literal["auto", "never", "always"]

MAX_DEBOUNCE_MS = 5000
MAX_TOKENS = 1024

_CLIENT_KEYS = frozenset(
    {"path", "command", "arguments", "model", "trace", "env", "status", "status_bar", "keymaps"}
)
"""Settings of the clients' own, which may come along in the same section."""


class EditorSettings(Struct, frozen=True, kw_only=True):
    """What holds for the completions of one session."""

    enabled: bool = True
    languages: dict[str, bool] = {}
    """Language → whether it is completed; `*` speaks for those that are not named."""
    debounce_ms: int | None = None
    """Wait after a key before the model is asked; None adapts it to the measured latency."""
    multiline: Multiline = "auto"
    max_tokens: int = 96
    ignore: tuple[str, ...] = ()
    """Globs of files that are neither completed nor read, as in a .gitignore."""
    snippets: bool = True
    """Show the model related places of other files of the workspace."""
    log_code: bool = False
    """Let code appear in the log."""


class Reading(Struct, frozen=True, kw_only=True):
    """Settings as they were read, and a sentence for each thing that was wrong."""

    settings: EditorSettings
    complaints: tuple[str, ...] = ()


_RANGES = {"debounce_ms": (0, MAX_DEBOUNCE_MS), "max_tokens": (1, MAX_TOKENS)}
_FIELDS = {field.name: field for field in msgspec.structs.fields(EditorSettings)}


def read_settings(*layers: object) -> Reading:
    """Lay what clients sent over the defaults, later layers over earlier ones."""
    values: dict[str, Any] = {}
    complaints: list[str] = []
    for layer in layers:
        for key, value in _section(layer, complaints).items():
            name = _snake(str(key))
            if name in _CLIENT_KEYS or value is None:
                continue
            if name not in _FIELDS:
                complaints.append(_unknown(str(key)))
                continue
            try:
                values[name] = _checked(name, value)
            except msgspec.ValidationError as error:
                complaints.append(_wrong(name, value, str(error), values))
    return Reading(settings=EditorSettings(**values), complaints=tuple(dict.fromkeys(complaints)))


def camel(name: str) -> str:
    """A setting's name as clients write it."""
    first, *others = name.split("_")
    return first + "".join(part.title() for part in others)


def _section(layer: object, complaints: list[str]) -> Mapping[Any, Any]:
    if layer is None or layer == []:
        return {}
    if not isinstance(layer, dict):
        complaints.append(f"The settings are {layer!r}; an object was expected, defaults hold.")
        return {}
    inner = layer.get(SECTION, layer)
    if inner is layer or inner is None:
        return layer if inner is layer else {}
    return _section(inner, complaints)


def _checked(name: str, value: object) -> Any:
    if value == [] and name == "languages":
        value = {}  # Lua writes an empty table as a list
    checked = msgspec.convert(value, _FIELDS[name].type)
    low, high = _RANGES.get(name, (None, None))
    if low is not None and checked is not None and not low <= checked <= high:
        raise msgspec.ValidationError(f"Expected a number from {low} up to {high}")
    return checked


def _wrong(name: str, value: object, error: str, values: Mapping[str, Any]) -> str:
    stays = values.get(name, getattr(EditorSettings(), name))
    reason = error.partition(" - at ")[0]
    if name == "multiline":
        reason = f"Expected one of {', '.join(get_args(Multiline))}"
    shown = "what adapts itself" if stays is None else msgspec.json.encode(stays).decode()
    return f"{SECTION}.{camel(name)} is {value!r}: {reason}. It stays {shown}."


def _unknown(key: str) -> str:
    names = [camel(name) for name in _FIELDS]
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(names)}."
    return f"{SECTION}.{key} is not a setting. {hint}"


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), key)
