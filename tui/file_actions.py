"""What can be done with an answer's code and texts: copy, save, apply to a file, undo; export.

Owns the steps and the questions on the way, and the list of what can be undone. What an edit may do
is `edits`' business, how text reaches the clipboard `clipboard`'s; both block, so both run in a
thread. It must not know the engine. What it works with is imported when first asked for: none of it
is needed for the first paint.

Invariant: nothing is written that was not shown as a diff and agreed to; an export never replaces a
file.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tui.chat_parts import ChatParts
    from tui.code_blocks import CodeBlock
    from tui.conversation import Talk
    from tui.edits import Edit, Undo


UNDO_BYTES = 32 << 20
"""What the changes that can be taken back may hold of their files' earlier contents."""


class FileActions:
    """The files of one window's working folder, as far as the chat touches them."""

    def __init__(self, screen: ChatParts, root: Path) -> None:
        self.digests: dict[str, str] = {}
        """SHA-256 of each file as the model was shown it, by the path it was attached under."""
        self._screen = screen
        self._root = root
        self._undo: list[Undo] = []
        """The latest change last; of older ones as many as `UNDO_BYTES` has room for."""

    async def copy(self, text: str) -> None:
        """Put a text on the clipboard and say by which way it went."""
        from tui.clipboard import copy_text

        driver = self._screen.app._driver

        def write_osc52(sequence: str) -> None:
            if driver is not None:
                self._screen.app.call_from_thread(driver.write, sequence)

        sentence = await asyncio.to_thread(copy_text, text, write_osc52, os.environ)
        self._screen.say(sentence)

    async def apply(self, block: CodeBlock, proposal: str) -> None:
        """Show what a block would do to its file, and do it if the user agrees. A block that names
        none asks for it, with `proposal` to begin with."""
        target = block.target
        if target is None and not names_its_file(block):
            target = await self._name("Apply the code to which file?", proposal)
            if target is None:
                return
        await self._write(await self._planned(block, target or ""))

    async def save(self, block: CodeBlock) -> None:
        """Write a block to a file that the user names."""
        proposal = block.target or f"snippet.{_suffix(block.language)}"
        target = await self._name("Save the code to which file?", proposal)
        if target is not None:
            await self._write(await self._planned(block, target))

    async def _name(self, question: str, proposal: str) -> str | None:
        from tui.name_dialog import NameDialog

        return await self._screen.app.push_screen_wait(NameDialog(question, proposal))

    async def _planned(self, block: CodeBlock, target: str) -> Edit:
        return await asyncio.to_thread(edit_for, self._root, target, block, dict(self.digests))

    async def _write(self, edit: Edit) -> None:
        from tui.diff_screen import DiffScreen
        from tui.edits import apply_edit

        if not await self._screen.app.push_screen_wait(DiffScreen(edit)):
            self._screen.say("nothing was changed")
            return
        undo = await asyncio.to_thread(apply_edit, edit)
        self._undo = _latest([*self._undo, undo])
        if edit.name in self.digests:
            # The model wrote what is there now, so it may go on from there.
            self.digests[edit.name] = undo.digest
        deed = "created" if edit.kind == "create" else "changed"
        self._screen.say(f"{deed} {edit.name} · /undo takes it back")

    async def undo(self) -> None:
        """Take back the latest change that was made here. One that can't be does not keep those
        before it from being taken back next."""
        if not self._undo:
            raise RequestError("nothing_to_undo", "no file was changed here", "")
        from tui.edits import EditRefused, digest_of, undo_edit

        undo = self._undo[-1]
        try:
            await asyncio.to_thread(undo_edit, undo)
        except EditRefused as refused:
            if refused.code == "edit_changed":
                self._undo = [one for one in self._undo if one is not undo]
            else:  # it may pass: the changes of this file become the last ones to be taken back
                self._undo.sort(key=lambda one: one.path != undo.path)
            raise
        self._undo = [one for one in self._undo if one is not undo]
        name = undo.path.relative_to(undo.root).as_posix()
        if self.digests.get(name) == undo.digest and undo.before is not None:
            self.digests[name] = digest_of(undo.before)  # the model knows that too
        elif undo.before is None:
            self.digests.pop(name, None)
        self._screen.say(f"{name} is as it was before")

    async def export(self, talk: Talk, wish: str) -> None:
        """Write the conversation as Markdown and say where."""
        if talk.conversation is None or talk.leaf is None:
            raise RequestError("nothing_to_export", "nothing was said yet", "Ask something first.")
        from tui.export import as_markdown

        conversation = await asyncio.to_thread(talk.history.conversation, talk.conversation)
        thread = await asyncio.to_thread(talk.thread)
        text = await asyncio.to_thread(as_markdown, conversation, thread)
        written = await asyncio.to_thread(
            write_new, self._root, wish or file_name(conversation.title), text, bool(wish)
        )
        self._screen.note(f"exported to {written}")


def _latest(changes: list[Undo]) -> list[Undo]:
    """The last of `changes`, and as many before it as there is room for."""
    room = UNDO_BYTES - sum(len(one.before or b"") for one in changes)
    while room < 0 and len(changes) > 1:
        room += len(changes[0].before or b"")
        changes = changes[1:]
    return changes


def file_name(title: str) -> str:
    """A title as a file name that any system takes."""
    words = re.sub(r"[^\w.-]+", "-", title.strip().lower()).strip("-.")
    return f"{words[:50].rstrip('-.') or 'conversation'}.md"


def write_new(root: Path, wish: str, text: str, exactly: bool) -> Path:
    """Write a file that is not there yet; with a number in its name unless `exactly` it is meant.

    Raises `RequestError` where it is there already or can't be written.
    """
    try:
        path = root / Path(wish).expanduser()
    except RuntimeError as error:
        raise RequestError(
            "not_written", f"{wish} can't be written: {error}", "Choose another place."
        ) from error
    stem, number = path.stem, 2
    while True:
        try:
            with path.open("x", encoding="utf-8", newline="\n") as file:
                try:
                    file.write(text)
                    file.flush()
                except OSError:
                    path.unlink()  # half of it would be in the way of the next try
                    raise
            return path
        except FileExistsError as error:
            if exactly:
                raise RequestError(
                    "file_exists", f"{path} is there already", "Choose another name."
                ) from error
            path = path.with_name(f"{stem}-{number}{path.suffix}")
            number += 1
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise RequestError(
                "not_written", f"{path} can't be written: {why}", "Choose another place."
            ) from error


def names_its_file(block: CodeBlock) -> bool:
    """Whether a block without a target is a diff, which says itself what it is for."""
    return block.language in ("diff", "patch") or block.code.startswith(("--- ", "diff --git "))


def _suffix(language: str) -> str:
    known = {"python": "py", "javascript": "js", "typescript": "ts", "bash": "sh", "rust": "rs"}
    return known.get(language, re.sub(r"\W", "", language) or "txt")


def edit_for(root: Path, target: str, block: CodeBlock, digests: Mapping[str, str]) -> Edit:
    """The edit that a block asks for. However its file is named (`./x.py`, in a diff's head alone),
    a change since the model was shown it is seen. Raises `EditRefused`."""
    from tui.edits import plan_edit

    edit = plan_edit(root, target, block, read_digest=digests.get(target))
    shown = None if target in digests else digests.get(edit.name)
    return edit if shown is None else plan_edit(root, target, block, read_digest=shown)
