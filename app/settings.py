"""Settings of the user: the only reader of the TOML file and of environment variables.

Four layers make the settings, the later ones stronger: defaults, the file, the environment, the
options of the command line. Every layer is checked by itself and strictly, so that a mistake is
reported with the place it was made in: file, table, key, and the key that was probably meant.
What comes out are the engine's own structs; nothing reads settings from a global.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from app import catalogue
from app.paths import user_paths
from engine.config import Device, DraftSettings, LoadSettings, Quant, check_sampling
from engine.protocol import RequestError, SamplingParams
from tui.settings import ChatSettings

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT: Mapping[str, tuple[str, str]] = {
    "SSPEC_ASSIST_MODEL": ("model", "model"),
    "SSPEC_ASSIST_QUANT": ("model", "quant"),
    "SSPEC_ASSIST_DEVICE": ("model", "device"),
    "SSPEC_ASSIST_CONTEXT": ("model", "context"),
    "SSPEC_ASSIST_THREADS": ("model", "threads"),
    "SSPEC_ASSIST_NATIVE": ("model", "native"),
    "SSPEC_ASSIST_ROUTE": ("decode", "route"),
}
"""Variable → table and key."""

MAX_MINUTES = 60 * 24 * 30

Tables = Mapping[str, Mapping[str, Any]]


class ModelSettings(Struct, frozen=True, kw_only=True):
    """Table `[model]`."""

    model: str = catalogue.DEFAULT
    quant: Quant = "nf4"
    device: Device = "auto"
    context: int | None = None
    threads: int | None = None
    native: bool = True

    def __post_init__(self) -> None:
        self.load()

    def load(self) -> LoadSettings:
        """The same, as the engine takes it. Raises `RequestError` for a value out of range."""
        return LoadSettings(
            quant=self.quant,
            device=self.device,
            context_tokens=self.context,
            threads=self.threads,
            native=self.native,
        )


class DaemonSettings(Struct, frozen=True, kw_only=True):
    """Table `[daemon]`: how the engine's own process lives."""

    idle_minutes: float = 15.0
    """It ends this long after its last client has left; 0 is never."""
    unload_minutes: float = 0.0
    """The model leaves memory after this long without use; 0 is never."""
    nice: int = 5
    """Added to the niceness of the process, so that screens and editors keep the cores' ear."""

    def __post_init__(self) -> None:
        limits = {"idle_minutes": MAX_MINUTES, "unload_minutes": MAX_MINUTES, "nice": 19}
        for key, limit in limits.items():
            value = getattr(self, key)
            if not 0 <= value <= limit:
                raise RequestError(
                    "bad_setting",
                    f"{key} is {value}, outside its range",
                    f"Choose a value from 0 up to {limit}.",
                )


class Settings(Struct, frozen=True, kw_only=True):
    """All settings after the layers were laid over each other."""

    model: ModelSettings = ModelSettings()
    decode: DraftSettings = DraftSettings()
    sampling: SamplingParams = SamplingParams()
    daemon: DaemonSettings = DaemonSettings()
    chat: ChatSettings = ChatSettings()
    origins: dict[str, str] = {}
    """`table.key` → where the value comes from; a key that is not there has its default."""


TABLES: Mapping[str, type[Struct]] = {
    "model": ModelSettings,
    "decode": DraftSettings,
    "sampling": SamplingParams,
    "daemon": DaemonSettings,
    "chat": ChatSettings,
}

_LIVE = ("sampling", "chat")
"""Tables that hold from the next answer on; the others made the engine what it is."""


class _Layer(Struct, frozen=True, kw_only=True):
    origin: str
    tables: Tables
    labels: Mapping[str, str] = {}
    """`table.key` → how the user wrote it, where that is not `table.key` itself."""
    strict: bool = True

    def label(self, table: str, key: str) -> str:
        return self.labels.get(f"{table}.{key}", f"{table}.{key} in {self.origin}")


def read_settings(file: Path, environ: Mapping[str, str], options: Tables) -> Settings:
    """Lay `options` over `environ` over `file` over the defaults.

    An absent file is an empty one. Raises `RequestError` for the first thing wrong in any layer.
    """
    layers = (
        _Layer(origin=str(file), tables=_parse(file)),
        _environment(environ),
        _Layer(
            origin="the command line",
            tables=options,
            labels={f"{t}.{k}": option_name(k) for t in options for k in options[t]},
        ),
    )
    merged: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    origins: dict[str, str] = {}
    for layer in layers:
        for table, values in _checked(layer).items():
            merged[table] |= values
            origins |= {f"{table}.{key}": layer.origin for key in values}
    return Settings(
        model=ModelSettings(**merged["model"]),
        decode=DraftSettings(**merged["decode"]),
        sampling=SamplingParams(**merged["sampling"]),
        daemon=DaemonSettings(**merged["daemon"]),
        chat=ChatSettings(**merged["chat"]),
        origins=origins,
    )


def user_settings(options: Tables) -> Settings:
    """The settings of this user with `options` laid over them; raises as `read_settings` does."""
    return read_settings(user_paths().config_file(), os.environ, options)


def changed(old: Settings, new: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys (`table.key`) whose values differ: those that hold at once, and those that hold only
    once the engine is started again."""
    live: list[str] = []
    restart: list[str] = []
    for table, struct in TABLES.items():
        for key in struct.__struct_fields__:
            if getattr(getattr(old, table), key) == getattr(getattr(new, table), key):
                continue
            # The route goes with each request; all else of the table is the engine's.
            at_once = table in _LIVE or (table, key) == ("decode", "route")
            (live if at_once else restart).append(f"{table}.{key}")
    return tuple(live), tuple(restart)


def option_name(key: str) -> str:
    """The option of the command line that sets `key`."""
    special = {"idle_minutes": "idle-after", "unload_minutes": "unload-after"}
    return "--" + special.get(key, key.replace("_", "-"))


def as_toml(settings: Settings) -> str:
    """The settings in force as a TOML file that would set them, each with its origin behind it."""
    lines: list[str] = []
    for table in TABLES:
        lines.append(f"[{table}]")
        values: Struct = getattr(settings, table)
        for key in values.__struct_fields__:
            value = getattr(values, key)
            origin = settings.origins.get(f"{table}.{key}", "default")
            # TOML has no null: an open value is shown as a comment, so the text stays a valid file.
            written = f"# {key} is open" if value is None else f"{key} = {_toml(value)}"
            lines.append(f"{written}  # {origin}")
        lines.append("")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    # A JSON string, number or boolean is a TOML one too.
    return msgspec.json.encode(value).decode()


def _parse(file: Path) -> Tables:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        said = f"{file} is a folder" if file.is_dir() else f"{file} can't be read: {why}"
        raise RequestError("bad_config", said, "Put it right or remove it.") from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RequestError(
            "bad_config", f"{file} is not valid TOML: {error}", "Put that line right."
        ) from error
    for name, table in tables.items():
        if name in TABLES and not isinstance(table, dict):
            raise RequestError(
                "bad_config", f"{name} in {file} is not a table", f"Write [{name}] on its own line."
            )
    return tables


def _environment(environ: Mapping[str, str]) -> _Layer:
    tables: dict[str, dict[str, str]] = {}
    labels: dict[str, str] = {}
    for variable, (table, key) in ENVIRONMENT.items():
        if environ.get(variable):
            tables.setdefault(table, {})[key] = environ[variable]
            labels[f"{table}.{key}"] = variable
    return _Layer(origin="the environment", tables=tables, labels=labels, strict=False)


def _checked(layer: _Layer) -> dict[str, dict[str, Any]]:
    """The layer's values in their final types; refuses unknown names and values out of range."""
    checked: dict[str, dict[str, Any]] = {}
    for table, values in layer.tables.items():
        if table not in TABLES:
            raise _unknown(f"[{table}] in {layer.origin}", table, list(TABLES))
        known = {field.name: field for field in msgspec.structs.fields(TABLES[table])}
        checked[table] = {}
        for key, value in values.items():
            label = layer.label(table, key)
            if key not in known:
                raise _unknown(label, key, list(known))
            try:
                typed = msgspec.convert(value, known[key].type, strict=layer.strict)
                _check_range(table, key, typed)
            except msgspec.ValidationError as error:
                raise RequestError(
                    "bad_setting", f"{label} is {value!r}: {error}", _choices(known[key].type)
                ) from error
            except RequestError as error:
                raise RequestError(error.code, f"{label}: {error.message}", error.hint) from error
            checked[table][key] = typed
    return checked


def _check_range(table: str, key: str, value: Any) -> None:
    built = TABLES[table](**{key: value})
    if isinstance(built, SamplingParams):
        check_sampling(built)


def _choices(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"Choose one of {', '.join(get_args(kind))}."
    return "Put the value right or leave it out."


def _unknown(label: str, name: str, known: list[str]) -> RequestError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
    return RequestError("unknown_setting", f"{label} is not a setting", hint)
