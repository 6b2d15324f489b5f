"""The ways to the clipboard, with executables of the test's own on the path."""

from __future__ import annotations

import base64
import re
import stat
import time
from pathlib import Path

import pytest

from engine.protocol import EngineError
from tui.clipboard import MAX_OSC52_BYTES, copy_text, osc52

TEXT = "def f():\n\treturn 'ü 日本 😀'\n"


class Desk:
    """A session: what is on its path, what its terminal was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent: list[str] = []

    def tool(self, name: str, script: str = "") -> Path:
        """An executable that stores its arguments and what it reads, then runs `script`."""
        got = self.folder / f"{name}.got"
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\necho "$@" > "{got}.args"\n/bin/cat > "{got}"\n{script}\n', encoding="utf-8"
        )
        path.chmod(0o755)
        return got

    def copy(self, text: str = TEXT, platform: str = "linux", **environ: str) -> str:
        base = {"PATH": str(self.folder), "TERM": "xterm", "XDG_RUNTIME_DIR": str(self.folder)}
        return copy_text(text, self.sent.append, base | environ, platform=platform)

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("sspec-assist-copy-*.txt"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "desk"
    folder.mkdir()
    return Desk(folder)


def taken_from(sequence: str) -> str:
    """What a terminal takes from an OSC 52 sequence."""
    found = re.fullmatch(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", sequence)
    assert found
    return base64.b64decode(found[1]).decode("utf-8")


@pytest.mark.parametrize(
    ("tool", "platform", "environ", "encoding"),
    [
        ("wl-copy", "linux", {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "utf-8"),
        ("xclip", "linux", {"DISPLAY": ":0"}, "utf-8"),
        ("pbcopy", "darwin", {}, "utf-8"),
        ("clip.exe", "linux", {"WSL_DISTRO_NAME": "Ubuntu"}, "utf-16-le"),
        ("termux-clipboard-set", "linux", {"TERMUX_VERSION": "0.118"}, "utf-8"),
    ],
)
def test_the_desktops_own_command_comes_first(
    desk: Desk, tool: str, platform: str, environ: dict[str, str], encoding: str
) -> None:
    for other in ("wl-copy", "xclip", "xsel", "pbcopy", "clip.exe", "termux-clipboard-set"):
        desk.tool(other)
    sentence = desk.copy(platform=platform, **environ)
    got = desk.folder / f"{tool}.got"
    assert got.read_bytes() == TEXT.encode(encoding)
    assert [path.name for path in desk.folder.glob("*.got")] == [f"{tool}.got"]
    assert sentence == f"Copied {len(TEXT)} characters with {tool}."
    assert desk.sent == []


def test_the_clipboard_is_meant_and_not_the_selection(desk: Desk) -> None:
    desk.tool("xclip", "exit 1")
    desk.tool("xsel")
    assert desk.copy(DISPLAY=":0").endswith("with xsel.")
    assert "clipboard" in (desk.folder / "xclip.got.args").read_text(encoding="utf-8")
    assert "clipboard" in (desk.folder / "xsel.got.args").read_text(encoding="utf-8")


def test_a_command_that_stays_behind_does_not_hold_us(desk: Desk) -> None:
    got = desk.tool("wl-copy", "/bin/sleep 2 &")
    began = time.monotonic()
    assert desk.copy(WAYLAND_DISPLAY="w").endswith("with wl-copy.")
    assert time.monotonic() - began < 1.5
    assert got.read_bytes() == TEXT.encode()


def test_commands_that_hang_cost_a_second_in_all(desk: Desk) -> None:
    for name in ("wl-copy", "xclip", "xsel"):
        (desk.folder / name).write_text("#!/bin/sh\nexec /bin/sleep 60\n", encoding="utf-8")
        (desk.folder / name).chmod(0o755)
    began = time.monotonic()
    sentence = desk.copy("x" * MAX_OSC52_BYTES, WAYLAND_DISPLAY="w", DISPLAY=":0")
    assert 0.9 < time.monotonic() - began < 2.5
    assert "OSC 52" in sentence
    assert len(desk.sent) == 1


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$"])
def test_a_command_that_fails_is_not_believed(desk: Desk, script: str) -> None:
    desk.tool("xclip", script)
    assert "OSC 52" in desk.copy(DISPLAY=":0")
    assert taken_from(desk.sent[0]) == TEXT


def test_a_command_that_can_not_be_started_is_passed_over(desk: Desk) -> None:
    (desk.folder / "xclip").write_bytes(b"\x7fELF not really")
    (desk.folder / "xclip").chmod(0o755)
    assert "OSC 52" in desk.copy(DISPLAY=":0")


@pytest.mark.parametrize("name", ["SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"])
def test_over_ssh_the_terminal_comes_first(desk: Desk, name: str) -> None:
    got = desk.tool("xclip")
    sentence = desk.copy(DISPLAY="localhost:10.0", **{name: "yes"})
    assert taken_from(desk.sent[0]) == TEXT
    assert not got.exists()
    assert "OSC 52" in sentence
    assert "can't be told" in sentence


def test_over_ssh_a_large_text_goes_by_the_forwarded_desktop(desk: Desk) -> None:
    got = desk.tool("xclip")
    text = "x" * (MAX_OSC52_BYTES + 1)
    assert desk.copy(text, DISPLAY="localhost:10.0", SSH_TTY="/dev/pts/1").endswith("with xclip.")
    assert got.read_text(encoding="utf-8") == text
    assert desk.sent == []


def test_through_tmux_the_sequence_is_wrapped(desk: Desk) -> None:
    assert "tmux" in desk.copy(TMUX="/tmp/tmux-0/default,1,0", TERM="tmux-256color")
    wrapped = re.fullmatch(r"\x1bPtmux;(.*)\x1b\\", desk.sent[0], re.DOTALL)
    assert wrapped
    assert wrapped[1].replace("\x1b\x1b", "") == wrapped[1].replace("\x1b", "")
    assert taken_from(wrapped[1].replace("\x1b\x1b", "\x1b")) == TEXT


def test_the_longest_sequence_stays_below_what_terminals_take() -> None:
    assert len(osc52(b"x" * MAX_OSC52_BYTES, in_tmux=True)) <= 100_020
    assert len(osc52(b"x" * MAX_OSC52_BYTES, in_tmux=False)) <= 100_000


@pytest.mark.parametrize(
    "environ",
    [
        {"TERM": "linux"},
        {"TERM": "dumb"},
        {"TERM": ""},
        {"TERM_PROGRAM": "Apple_Terminal"},
    ],
)
def test_without_any_clipboard_a_file_of_ones_own_is_named(
    desk: Desk, environ: dict[str, str]
) -> None:
    sentence = desk.copy(**environ)
    (path,) = desk.files()
    assert str(path) in sentence
    assert path.read_text(encoding="utf-8") == TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert desk.sent == []


def test_a_text_too_large_for_the_terminal_goes_to_a_file(desk: Desk) -> None:
    text = "日" * (MAX_OSC52_BYTES // 3 + 1)
    sentence = desk.copy(text)
    assert f"{len(text):,} characters" in sentence
    assert desk.files()[0].read_text(encoding="utf-8") == text


def test_a_terminal_that_can_not_be_written_to_is_passed_over(desk: Desk) -> None:
    def broken(sequence: str) -> None:
        raise BrokenPipeError

    environ = {"TERM": "xterm", "PATH": "", "XDG_RUNTIME_DIR": str(desk.folder)}
    assert str(desk.folder) in copy_text(TEXT, broken, environ, platform="linux")


def test_when_nothing_works_it_says_so(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(EngineError) as caught:
        desk.copy(TERM="dumb", XDG_RUNTIME_DIR=str(tmp_path / "absent"))
    assert caught.value.code == "clipboard_failed"
    assert "xclip" in caught.value.hint


def test_nothing_is_not_copied(desk: Desk) -> None:
    assert desk.copy("") == "There is nothing to copy."
    assert desk.sent == []
