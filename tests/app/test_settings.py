"""Layers, strictness, and sentences that name the place of the mistake."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from app.catalogue import DEFAULT
from app.options import DecodeOptions, ModelOptions, SamplingOptions, given
from app.settings import (
    ENVIRONMENT,
    TABLES,
    DaemonSettings,
    Settings,
    as_toml,
    changed,
    read_settings,
)
from engine.protocol import RequestError

if TYPE_CHECKING:
    from pathlib import Path


def read(
    tmp_path: Path,
    text: str = "",
    environ: dict[str, str] | None = None,
    options: dict[str, dict[str, Any]] | None = None,
) -> Settings:
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return read_settings(file, environ or {}, options or {})


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = read_settings(tmp_path / "absent.toml", {}, {})
    assert settings == Settings()
    assert settings.model.model == DEFAULT
    assert settings.sampling.temperature == 0.0


def test_each_layer_is_stronger_than_the_one_before(tmp_path: Path) -> None:
    text = '[model]\nquant = "int8"\ncontext = 1000\nthreads = 1\n[decode]\nmax_k = 4\n'
    environ = {"SSPEC_ASSIST_CONTEXT": "2000", "SSPEC_ASSIST_THREADS": "2"}
    settings = read(tmp_path, text, environ, {"model": {"threads": 3}})
    assert settings.model.quant == "int8"
    assert settings.model.load().context_tokens == 2000
    assert settings.model.threads == 3
    assert settings.decode.max_k == 4
    assert settings.origins == {
        "model.quant": str(tmp_path / "config.toml"),
        "model.context": "the environment",
        "model.threads": "the command line",
        "decode.max_k": str(tmp_path / "config.toml"),
    }


def test_an_empty_variable_is_no_value(tmp_path: Path) -> None:
    assert read(tmp_path, environ={"SSPEC_ASSIST_MODEL": ""}).model.model == DEFAULT


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[model]\nquantt = 1\n", ["config.toml", "model.quantt", "Did you mean quant?"]),
        ("[decoding]\n", ["config.toml", "[decoding]", "Did you mean decode?"]),
        ("[sampling]\nzzz = 1\n", ["sampling.zzz", "Known are temperature"]),
        ('[model]\nquant = "nf8"\n', ["config.toml", "'nf8'", "nf4, int8, none"]),
        ('[model]\ncontext = "4096"\n', ["model.context in", "'4096'", "int"]),
        ("[model]\ncontext = 3\n", ["model.context in", "config.toml", "context is 3", "64"]),
        ("[sampling]\ntop_p = 0.0\n", ["sampling.top_p in", "top_p is 0.0"]),
        ("[decode]\nmax_k = 99\n", ["decode.max_k in", "max_k is 99"]),
        ("[daemon]\nidle_minute = 3\n", ["daemon.idle_minute", "Did you mean idle_minutes?"]),
        ("[daemon]\nidle_minutes = -1\n", ["daemon.idle_minutes in", "is -1", "from 0"]),
        ("[daemon]\nidle_minutes = nan\n", ["daemon.idle_minutes in", "is nan"]),
        ("[daemon]\nnice = 40\n", ["daemon.nice in", "is 40", "up to 19"]),
        ("[chat]\ntheme = 3\n", ["chat.theme in", "3"]),
        ("[model\n", ["config.toml", "not valid TOML", "line 1"]),
        ("model = 3\n", ["config.toml", "not a table", "[model]"]),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(
    tmp_path: Path, text: str, named: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        read(tmp_path, text)
    assert all(part in str(caught.value) for part in named), str(caught.value)
    assert caught.value.exit_code == 2


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="SSPEC_ASSIST_CONTEXT is 'many'"):
        read(tmp_path, environ={"SSPEC_ASSIST_CONTEXT": "many"})


def test_a_mistake_on_the_command_line_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--top-p: top_p is 2"):
        read(tmp_path, options={"sampling": {"top_p": 2.0}})


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match="can't be read"):
        read_settings(file, {}, {})


def test_what_is_shown_sets_the_same_again(tmp_path: Path) -> None:
    text = '[model]\nmodel = "a\\"b"\n[sampling]\nstop = ["\\n\\n", "é"]\nseed = 7\n'
    settings = read(tmp_path, text)
    shown = as_toml(settings)
    again = read(tmp_path, shown)
    assert (again.model, again.decode, again.sampling) == (
        settings.model,
        settings.decode,
        settings.sampling,
    )
    assert set(tomllib.loads(shown)) == set(TABLES)


def test_the_daemon_s_and_the_chat_s_tables_are_read(tmp_path: Path) -> None:
    text = (
        '[daemon]\nidle_minutes = 0\nunload_minutes = 2.5\n[chat]\ntheme = "nord"\ndetails = true\n'
    )
    settings = read(tmp_path, text, options={"daemon": {"idle_minutes": 7.0}})
    assert settings.daemon == DaemonSettings(idle_minutes=7.0, unload_minutes=2.5, nice=5)
    assert (settings.chat.theme, settings.chat.details) == ("nord", True)
    with pytest.raises(RequestError, match="--unload-after: unload_minutes is -1"):
        read(tmp_path, options={"daemon": {"unload_minutes": -1.0}})


def test_what_changed_is_split_by_what_it_takes(tmp_path: Path) -> None:
    old = read(tmp_path)
    assert changed(old, read(tmp_path, "")) == ((), ())
    text = (
        '[model]\nquant = "int8"\n[decode]\nroute = "plain"\nmax_k = 3\n[sampling]\n'
        'temperature = 0.5\nstop = ["x"]\n[daemon]\nnice = 0\n[chat]\ntheme = "nord"\n'
    )
    live, restart = changed(old, read(tmp_path, text))
    assert live == ("decode.route", "sampling.temperature", "sampling.stop", "chat.theme")
    assert restart == ("model.quant", "decode.max_k", "daemon.nice")
    assert changed(read(tmp_path, text), old) == (live, restart)


def test_every_option_of_a_table_is_a_key_of_it() -> None:
    groups = {"model": ModelOptions, "decode": DecodeOptions, "sampling": SamplingOptions}
    for table, group in groups.items():
        names = set(group.__dataclass_fields__) - {"verbose", "k"}
        assert names <= set(TABLES[table].__struct_fields__)
    assert all(key in TABLES[table].__struct_fields__ for table, key in ENVIRONMENT.values())


def test_options_left_out_stay_open() -> None:
    assert given(ModelOptions(quant="int8", verbose=True)) == {"quant": "int8"}
    assert given(SamplingOptions(temperature=0.0, stop=[])) == {"temperature": 0.0}
