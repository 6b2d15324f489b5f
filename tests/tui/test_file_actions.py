"""What is taken back, in which order, and what the model is taken to know of it afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.tui.chat_harness import on_loop
from tui.code_blocks import CodeBlock
from tui.edits import EditRefused, digest_of
from tui.file_actions import UNDO_BYTES, FileActions


class Agreeing:
    """A screen whose user agrees to every change."""

    def __init__(self) -> None:
        self.app = self
        self.said: list[str] = []

    async def push_screen_wait(self, screen: object) -> bool:
        await asyncio.sleep(0)
        return True

    def say(self, text: str) -> None:
        self.said.append(text)


def actions_in(root: Path) -> FileActions:
    screen: Any = Agreeing()
    return FileActions(screen, root)


async def apply(actions: FileActions, name: str, text: str) -> None:
    block = CodeBlock(index=0, language="", code=text, info="", target=name, line=1)
    await actions.apply(block, name)


@on_loop
async def test_after_an_undo_the_next_change_is_not_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    actions = actions_in(tmp_path)
    actions.digests["a.txt"] = digest_of(b"one\n")
    await apply(actions, "a.txt", "two\n")
    await actions.undo()
    assert file.read_text() == "one\n"
    await apply(actions, "a.txt", "three\n")
    assert file.read_text() == "three\n"


@on_loop
async def test_what_can_not_be_taken_back_does_not_block_what_was_before_it(
    tmp_path: Path,
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("old\n")
    actions = actions_in(tmp_path)
    await apply(actions, "a.txt", "new\n")
    await apply(actions, "b.txt", "new\n")
    (tmp_path / "b.txt").write_text("mine\n")
    with pytest.raises(EditRefused, match=r"b\.txt has changed"):
        await actions.undo()
    await actions.undo()
    assert (tmp_path / "a.txt").read_text() == "old\n"
    assert (tmp_path / "b.txt").read_text() == "mine\n"


@on_loop
async def test_what_can_not_be_taken_back_now_can_be_later(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("old\n")
    actions = actions_in(tmp_path)
    await apply(actions, "a.txt", "new\n")
    await apply(actions, "b.txt", "new\n")
    (tmp_path / "b.txt").chmod(0o400)
    with pytest.raises(EditRefused, match="read-only"):
        await actions.undo()
    await actions.undo()
    assert (tmp_path / "a.txt").read_text() == "old\n"
    (tmp_path / "b.txt").chmod(0o600)
    await actions.undo()
    assert (tmp_path / "b.txt").read_text() == "old\n"


@on_loop
async def test_old_changes_make_room_for_new_ones(tmp_path: Path) -> None:
    size = 3 << 20
    names = [f"{number}.txt" for number in range(UNDO_BYTES // size + 2)]
    actions = actions_in(tmp_path)
    for name in names:
        (tmp_path / name).write_text("x" * size)
        await apply(actions, name, "short\n")
    held = [undo.path.name for undo in actions._undo]
    assert held == names[2:]
