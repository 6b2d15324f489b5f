"""A real Neovim with the real default model: grey text that comes, is taken, and is never stale."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.e2e.editors import installed, neovim
from tests.e2e.editors.neovim import Neovim
from tests.e2e.editors.programs import (
    MODEL_S,
    engine_of_its_own,
    environment,
    program,
    settled,
    until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(900)]

START = '"""Small sums."""\n\n\ndef add(a: int, b: int) -> int:\n    return a + b\n\n\n'


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neovim]:
    """One editor for all tests of this module, with the model in memory."""
    folder = tmp_path_factory.mktemp("neovim")
    file = folder / "project" / "sums.py"
    file.parent.mkdir()
    file.write_text("")
    init = neovim.init_file(folder, [str(program(folder / "bin" / "sspec-assist")), "lsp"])
    with (
        engine_of_its_own(folder),
        neovim.running(installed.neovim(), init, file, environment(folder)) as editor,
    ):
        until(lambda: "sspec" in editor.statusline(), "the server")
        until(lambda: editor.statusline() == "sspec", "the model", MODEL_S)
        yield editor
        assert editor.messages() == "", "nothing is to disturb who types"


@pytest.fixture
def empty(editor: Neovim) -> Neovim:
    """The editor in insert mode at the end of a short file."""
    editor.keys("<Esc>")
    editor.lua(
        "vim.api.nvim_buf_set_lines(0, 0, -1, true, vim.split(..., '\\n')) vim.cmd('normal! G')",
        START,
    )
    editor.keys("A")
    until(lambda: editor.seen() == (START, ""), "an empty place")
    return editor


def test_a_header_brings_a_body_which_is_taken_as_it_was_seen(empty: Neovim) -> None:
    empty.type("def subtract(a: int, b: int) -> int:\n")
    settled(empty.ghost, "grey text")
    before, ghost = empty.seen()
    assert before == START + "def subtract(a: int, b: int) -> int:\n    "
    assert "a - b" in ghost
    empty.keys("<Tab>")
    empty.becomes(before + ghost)
    # Neovim asks again by itself; at the end of what was just taken there is nothing stale.
    empty.type("\n\n\nprint(subtract(")
    empty.rests()
    taken, (before, ghost) = before + ghost, empty.accept()
    assert before.startswith(taken)
    empty.becomes(before + ghost)


def test_what_is_typed_along_stays_and_what_differs_ends_it(empty: Neovim) -> None:
    empty.type("def multiply(a: int, b: int) -> int:\n")
    whole = settled(empty.ghost, "grey text")
    for index, key in enumerate(whole[:4], start=1):
        empty.type(key)
        rest = whole[index:]
        until(lambda rest=rest: empty.ghost() == rest, f"{rest!r} after {whole[:index]!r}")
    empty.type("zq")
    empty.rests()
    before, ghost = empty.accept()
    assert not ghost or not whole.endswith(ghost)
    assert before.endswith(whole[:4] + "zq")
    empty.becomes(before + ghost)


def test_nothing_is_stale_after_fast_typing(empty: Neovim) -> None:
    text = "def largest(numbers: list[int]) -> int:\nbest = numbers[0]\nfor number in numbers:\n"
    chance = random.Random(3)
    for _ in range(4):
        written = chance.randrange(len(text) // 2, len(text))
        empty.type(text[:written], chance.uniform(0.005, 0.08))
        empty.rests()
        before, ghost = empty.accept()
        empty.becomes(before + ghost)
        empty.keys("<Esc>o<Esc>0Da")
    empty.rests()
    assert empty.statusline().startswith("sspec")
