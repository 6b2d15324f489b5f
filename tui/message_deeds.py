"""What the transcript's wishes lead to: copy, edit, answer again, continue, branch, code to files.

Owns the table from verbs to deeds. Which verbs a message has, and how they are chosen, is the
transcript's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from engine.protocol import RequestError

if TYPE_CHECKING:
    from tui.chat_screen import ChatScreen
    from tui.history import Message
    from tui.transcript import Transcript

Deed = Callable[["ChatScreen", "Transcript.Acted"], Awaitable[None]]


async def run(screen: ChatScreen, wish: Transcript.Acted) -> None:
    """Do what is wished. Raises `EngineError` for what can't be done."""
    await DEEDS[wish.verb](screen, wish)


async def _message(screen: ChatScreen, wish: Transcript.Acted) -> Message:
    if wish.message_id is None:
        raise RequestError("no_message", "that is a notice of the chat", "Choose a message.")
    return await asyncio.to_thread(screen.asking.talk.history.message, wish.message_id)


async def _copy(screen: ChatScreen, wish: Transcript.Acted) -> None:
    await screen.files.copy(wish.text)


async def _edit(screen: ChatScreen, wish: Transcript.Acted) -> None:
    """Take a question back into the input; sent again it begins a branch beside the old one."""
    screen.asking.move_on()
    question = await _message(screen, wish)
    if question.role != "user":
        raise RequestError("not_editable", "only questions can be edited", "Choose a question.")
    await asyncio.to_thread(screen.asking.talk.go_before, question)
    await screen.show_thread()
    screen.prompt.load(question.content, question.snippets)
    screen.prompt.focus()


async def _regenerate(screen: ChatScreen, wish: Transcript.Acted) -> None:
    await screen.asking.again(await _message(screen, wish))


async def _go_on(screen: ChatScreen, wish: Transcript.Acted) -> None:
    await screen.asking.go_on(await _message(screen, wish))


async def _branch(screen: ChatScreen, wish: Transcript.Acted) -> None:
    """Make a message the end of what is said; the next question goes on from there."""
    screen.asking.move_on()
    message = await _message(screen, wish)
    await asyncio.to_thread(screen.asking.talk.go_to, message)
    await screen.show_thread()
    screen.note("Going on from here; what came after it is kept as a branch.")
    screen.prompt.focus()


async def _copy_code(screen: ChatScreen, wish: Transcript.Acted) -> None:
    if wish.block is not None:
        await screen.files.copy(wish.block.code)


async def _save_code(screen: ChatScreen, wish: Transcript.Acted) -> None:
    if wish.block is not None:
        await screen.files.save(wish.block)


async def _apply_code(screen: ChatScreen, wish: Transcript.Acted) -> None:
    if wish.block is None:
        return
    answer = await _message(screen, wish)
    thread = await asyncio.to_thread(screen.asking.talk.history.thread, answer.id)
    paths = [snippet.path for message in reversed(thread) for snippet in message.snippets]
    await screen.files.apply(wish.block, paths[0] if paths else "")


DEEDS: dict[str, Deed] = {
    "copy": _copy,
    "edit": _edit,
    "regenerate": _regenerate,
    "continue": _go_on,
    "branch": _branch,
    "copy_code": _copy_code,
    "save_code": _save_code,
    "apply_code": _apply_code,
}
