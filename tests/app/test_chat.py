"""What the chat is put together from: settings that are watched, a screen that is guarded."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.chat import chat_start, exit_code, known_models, live_settings
from app.paths import user_paths
from app.screen_guard import private_screen
from app.settings import Settings, read_settings
from app.settings_watch import SettingsWatch, watch_settings
from engine.protocol import EngineError, RequestError
from tui.history import History
from tui.messages import SettingsChanged

ROOT = Path(__file__).parents[2]

GUARDED = """
import os, sys
from pathlib import Path
from app.screen_guard import private_screen
before = [os.fstat(number).st_ino for number in (1, 2)]
with private_screen(Path(sys.argv[1])):
    os.write(1, b"stray one\\n")
    os.write(2, b"stray two\\n")
    os.system("echo stray child; echo stray child two >&2")
    print("stray print", flush=True)
    sys.__stderr__.write("drawn by the chat\\n")
    sys.__stderr__.flush()
    assert os.get_terminal_size(sys.__stdout__.fileno())
assert [os.fstat(number).st_ino for number in (1, 2)] == before
os.write(1, b"afterwards\\n")
"""


def in_a_terminal(program: str, *arguments: str) -> str:
    """What a program draws on a terminal of its own."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=writer,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    drawn = b""
    try:
        while piece := os.read(reader, 4096):
            drawn += piece
    except OSError:
        pass  # how Linux says that the other end of a terminal is closed
    os.close(reader)
    assert process.wait(30) == 0, drawn.decode()
    return drawn.decode()


def test_stray_writes_go_to_the_log_and_the_chat_keeps_the_screen(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "chat.log"
    drawn = in_a_terminal(GUARDED, str(log))
    assert drawn.replace("\r\n", "\n") == "drawn by the chat\nafterwards\n"
    strays = sorted(log.read_text().splitlines())
    assert strays == ["stray child", "stray child two", "stray one", "stray print", "stray two"]
    assert log.stat().st_mode & 0o077 == 0


def test_a_log_that_can_t_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    drawn = in_a_terminal(GUARDED, str(tmp_path / "file" / "chat.log"))
    assert drawn.split() == ["drawn", "by", "the", "chat", "afterwards"]


def test_without_a_terminal_the_chat_refuses(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="needs a terminal"), private_screen(tmp_path / "log"):
        pass
    assert not (tmp_path / "log").exists()


def test_a_chat_that_was_not_left_is_a_failure_and_says_where_to_look(tmp_path: Path) -> None:
    assert exit_code(0, tmp_path / "chat.log") == 0
    with pytest.raises(EngineError) as raised:
        exit_code(None, tmp_path / "chat.log")
    assert raised.value.exit_code == 1
    assert str(tmp_path / "chat.log") in raised.value.hint


def test_a_chat_in_a_folder_that_is_gone_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(RequestError, match="the folder you are in is gone"):
        chat_start(Settings(), user_paths(), History(), resume=False)


def test_nothing_is_here_on_a_new_machine() -> None:
    models = known_models(user_paths())
    assert len(models) >= 3
    assert not any(model.here for model in models)
    assert all(model.size_bytes and model.licence for model in models)


def settings_in(file: Path, text: str, options: dict[str, dict[str, object]]) -> Settings:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return read_settings(file, {}, options)


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Path, list[SettingsChanged], Callable[[], None]]:
    file, told = tmp_path / "config.toml", []
    options: dict[str, dict[str, object]] = {"model": {"quant": "int8"}}
    settings = settings_in(file, "[sampling]\ntemperature = 0.1\n", options)
    watch = SettingsWatch(settings, file, told.append)
    return file, told, watch.read


def test_what_can_be_taken_over_is(
    watched: tuple[Path, list[SettingsChanged], Callable[[], None]],
) -> None:
    file, told, read = watched
    file.write_text("[sampling]\ntemperature = 0.2\n[chat]\ntheme = 'nord'\n", encoding="utf-8")
    read()
    read()
    assert len(told) == 1
    settings = told[0].settings
    assert settings is not None
    assert (settings.sampling.temperature, settings.chat.theme) == (0.2, "nord")
    assert told[0].said == "Settings taken over: sampling.temperature, chat.theme."


def test_what_needs_a_new_engine_is_named_and_the_command_line_stays_on_top(
    watched: tuple[Path, list[SettingsChanged], Callable[[], None]],
) -> None:
    file, told, read = watched
    file.write_text(
        "[sampling]\ntemperature = 0.1\n[model]\nquant = 'none'\ncontext = 512\n", encoding="utf-8"
    )
    read()
    assert [one.said for one in told] == [
        "Held back until engine and chat are started again (sspec-assist engine stop): "
        "model.context."
    ]


def test_a_file_that_cannot_be_used_changes_nothing(
    watched: tuple[Path, list[SettingsChanged], Callable[[], None]],
) -> None:
    file, told, read = watched
    file.write_text("[samplin]\n", encoding="utf-8")
    read()
    assert told[0].settings is None
    assert told[0].said.startswith("The settings stay as they were: ")
    assert "Did you mean sampling?" in told[0].said


def test_a_change_of_the_file_is_seen(tmp_path: Path) -> None:
    paths = user_paths({"SSPEC_ASSIST_CONFIG": str(tmp_path / "config")})
    seen = threading.Event()
    told: list[SettingsChanged] = []

    def tell(change: SettingsChanged) -> None:
        told.append(change)
        seen.set()

    stop = watch_settings(Settings(), paths, tell)
    try:
        new = paths.config_file().with_suffix(".new")
        new.write_text("[chat]\nprovenance = true\n", encoding="utf-8")
        new.replace(paths.config_file())
        assert seen.wait(10)
    finally:
        stop()
    assert told[0].settings is not None
    assert told[0].settings.chat.provenance


def test_a_change_behind_a_link_is_seen(tmp_path: Path) -> None:
    paths = user_paths({"SSPEC_ASSIST_CONFIG": str(tmp_path / "config")})
    kept = tmp_path / "dotfiles" / "sspec.toml"
    for folder in (kept.parent, paths.config_file().parent):
        folder.mkdir()
    kept.write_text("", encoding="utf-8")
    paths.config_file().symlink_to(kept)
    seen = threading.Event()
    stop = watch_settings(Settings(), paths, lambda _change: seen.set())
    try:
        kept.write_text("[chat]\nprovenance = true\n", encoding="utf-8")
        assert seen.wait(10)
    finally:
        stop()


OUT_OF_WATCHES = """
import os, resource, sys
from pathlib import Path
import watchdog.observers.inotify
from app.paths import user_paths
from app.settings import Settings
from app.settings_watch import watch_settings
paths = user_paths({"SSPEC_ASSIST_CONFIG": sys.argv[1]})
free = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
watch_settings(Settings(), paths, print)()
"""


def test_where_the_system_gives_out_no_more_watches_there_are_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OUT_OF_WATCHES, str(tmp_path / "config")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_where_no_settings_folder_can_be_made_nothing_is_watched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    paths = user_paths({"SSPEC_ASSIST_CONFIG": str(tmp_path / "file" / "config")})
    told: list[SettingsChanged] = []
    watch_settings(Settings(), paths, told.append)()
    assert told == []


def test_the_chat_begins_with_the_settings_in_force(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path / "config.toml", "[decode]\nroute = 'copy'\n[chat]\ndetails = true\n", {}
    )
    live = live_settings(settings)
    assert (live.route, live.chat.details) == ("copy", True)
