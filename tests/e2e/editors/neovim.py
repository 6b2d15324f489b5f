"""A real Neovim without a screen, driven over its own socket.

Grey text is what it is to Neovim: marks with virtual text. Keys go the way that typed keys go.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e.editors.programs import ANSWER_S, until

KEY_S = 0.04
"""Between two keys of someone who types fast."""

ASKS_S = 0.3
"""Neovim asks 0.2 s after the last key."""

_PENDING = """
for _, client in ipairs(vim.lsp.get_clients()) do
  for _, request in pairs(client.requests) do
    if request.type == "pending" then return true end
  end
end
return false
"""
_GHOST = """
local lines = {}
for name, id in pairs(vim.api.nvim_get_namespaces()) do
  if name:find("inline_completion", 1, true) then
    for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, id, 0, -1, { details = true })) do
      local function add(chunks)
        local text = ""
        for _, chunk in ipairs(chunks) do text = text .. chunk[1] end
        table.insert(lines, text)
      end
      if mark[4].virt_text then add(mark[4].virt_text) end
      for _, chunks in ipairs(mark[4].virt_lines or {}) do add(chunks) end
    end
  end
end
return table.concat(lines, "\\n")
"""
_SEEN = f"""
local function ghost() {_GHOST} end
local row, column = unpack(vim.api.nvim_win_get_cursor(0))
local lines = vim.api.nvim_buf_get_lines(0, 0, row, true)
lines[row] = lines[row]:sub(1, column)
"""


class Neovim:
    """One editor with one window."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sent = 0

    def call(self, method: str, *arguments: Any) -> Any:
        """One request of Neovim's API; nothing else is ever sent to this client."""
        self._sent += 1
        self._channel.sendall(msgspec.msgpack.encode([0, self._sent, method, arguments]))
        received = b""
        while True:
            received += (part := self._channel.recv(1 << 16))
            assert part, f"Neovim ended while it was asked for {method}"
            try:
                _, number, error, result = msgspec.msgpack.decode(received)
            except msgspec.DecodeError:
                continue
            assert number == self._sent
            assert error is None, f"{method}{arguments}: {error}"
            return result

    def lua(self, code: str, *arguments: Any) -> Any:
        """What a chunk of Lua returns."""
        return self.call("nvim_exec_lua", code, arguments)

    def keys(self, keys: str) -> None:
        """Press keys, written as in a mapping."""
        self.call("nvim_input", keys)

    def type(self, text: str, pause: float = KEY_S) -> None:
        """Type a text, a key at a time."""
        for character in text:
            self.keys({"<": "<lt>", "\n": "<CR>"}.get(character, character))
            time.sleep(pause)

    def text(self) -> str:
        """The whole buffer."""
        return "\n".join(self.call("nvim_buf_get_lines", 0, 0, -1, True))

    def becomes(self, text: str) -> None:
        """Wait until the buffer is this text."""
        deadline = time.monotonic() + ANSWER_S
        while (now := self.text()) != text:
            assert time.monotonic() < deadline, f"{now!r} did not become {text!r}"
            time.sleep(0.05)

    def rests(self) -> None:
        """Wait until Neovim has asked about the text as it is and has the answer.

        Before that it goes on showing an old grey text, cut by what was typed.
        """
        time.sleep(ASKS_S)
        until(lambda: not self.lua(_PENDING), "the last answer")

    def ghost(self) -> str:
        """The grey text that is shown now."""
        return str(self.lua(_GHOST))

    def seen(self) -> tuple[str, str]:
        """The buffer up to the cursor and the grey text behind it, looked at in one moment."""
        before, ghost = self.lua(_SEEN + " return { table.concat(lines, '\\n'), ghost() }")
        return before, ghost

    def statusline(self) -> str:
        """What the status line says of the model."""
        return str(self.lua("return require('sspec_assist').statusline()"))

    def accept(self) -> tuple[str, str]:
        """Take the grey text, if there is any, and tell what was seen at that moment."""
        code = _SEEN + " local seen = { table.concat(lines, '\\n'), ghost() }"
        before, ghost = self.lua(code + " vim.lsp.inline_completion.get() return seen")
        return before, ghost

    def messages(self) -> str:
        """Everything that was said to the user so far."""
        return str(self.lua("return vim.fn.execute('messages')"))


@contextmanager
def running(
    program: Path, init: Path, file: Path, environment: Mapping[str, str]
) -> Iterator[Neovim]:
    """A Neovim with one file open, which is gone afterwards, its server with it."""
    address = str(init.with_name("nvim.sock"))
    process = subprocess.Popen(
        [str(program), "--headless", "--listen", address, "-i", "NONE", "-u", str(init), str(file)],
        cwd=file.parent,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with _connected(process, address) as channel:
            yield Neovim(channel)
            with suppress(AssertionError, OSError):
                Neovim(channel).call("nvim_command", "qall!")
        process.wait(timeout=30)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _connected(process: subprocess.Popen[str], address: str) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        channel = socket.socket(socket.AF_UNIX)
        try:
            channel.connect(address)
        except OSError:
            channel.close()
            if process.poll() is not None:
                assert process.stderr is not None
                raise AssertionError(f"Neovim ended at once: {process.stderr.read()}") from None
            assert time.monotonic() < deadline, "Neovim does not listen"
            time.sleep(0.05)
        else:
            channel.settimeout(60)
            return channel


def init_file(folder: Path, command: list[str]) -> Path:
    """An init.lua that does what README.md says, with the file that README.md names."""
    client = Path(__file__).parents[3] / "lsp" / "clients" / "neovim"
    quoted = ", ".join(f'"{part}"' for part in command)
    init = folder / "init.lua"
    init.write_text(
        f"package.path = '{client}{os.sep}?.lua;' .. package.path\n"
        "vim.o.swapfile = false\n"
        "vim.o.shiftwidth = 4\n"
        "vim.o.expandtab = true\n"
        f"require('sspec_assist').setup({{ cmd = {{ {quoted} }} }})\n"
    )
    return init
