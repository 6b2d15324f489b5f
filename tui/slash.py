"""What each slash command does, by name.

Owns the table from names to deeds; the deeds themselves belong to the screen and its parts. How a
command is written, and whether its argument will do, is `commands`' business.

Invariant: every command of `COMMANDS` has its deed here, which a test holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from engine.protocol import RouteChoice
from tui.commands import COMMANDS, SlashCommand, apply_setting, describe_setting
from tui.stats import stats_text

if TYPE_CHECKING:
    from tui.chat_screen import ChatScreen

Deed = Callable[["ChatScreen", str], Awaitable[None]]


async def run(screen: ChatScreen, name: str, argument: str) -> None:
    """Run one command. Raises `EngineError` for what can't be done."""
    await DEEDS[name](screen, argument)


async def _setting(screen: ChatScreen, command: SlashCommand, argument: str) -> None:
    talk = screen.asking.talk
    if argument:
        talk.sampling = apply_setting(talk.sampling, command, argument)
    screen.say(describe_setting(talk.sampling, command))


async def _system(screen: ChatScreen, argument: str) -> None:
    talk = screen.asking.talk
    if argument:
        told = "" if argument.lower() == "none" else argument
        await asyncio.to_thread(talk.set_system, told)
    told = f"the model is told: {talk.system}" if talk.system else "the model is told nothing first"
    screen.note(told)


async def _route(screen: ChatScreen, argument: str) -> None:
    steering = screen.asking.talk.steering
    if argument:
        steering = replace(steering, route=cast("RouteChoice", argument))
    await screen.steer(steering)


async def _k(screen: ChatScreen, argument: str) -> None:
    steering = screen.asking.talk.steering
    if argument:
        steering = replace(steering, k=None if argument == "auto" else int(argument))
    await screen.steer(steering)


async def _stats(screen: ChatScreen, _argument: str) -> None:
    screen.note(stats_text(screen.asking.meter))


async def _model(screen: ChatScreen, argument: str) -> None:
    if argument:
        await screen.opening.use(argument)
    else:
        await screen.opening.choose()


async def _theme(screen: ChatScreen, argument: str) -> None:
    if argument:
        screen.chat_app.put_on(argument)
    else:
        screen.app.action_change_theme()


async def _export(screen: ChatScreen, argument: str) -> None:
    await screen.files.export(screen.asking.talk, argument)


def _action(name: str) -> Deed:
    async def run_action(screen: ChatScreen, _argument: str) -> None:
        await screen.run_action(name)

    return run_action


def _set(command: SlashCommand) -> Deed:
    async def change(screen: ChatScreen, argument: str) -> None:
        await _setting(screen, command, argument)

    return change


async def _sessions(screen: ChatScreen, argument: str) -> None:
    await screen.choose_conversation(argument)


DEEDS: dict[str, Deed] = {
    **{command.name: _set(command) for command in COMMANDS if command.setting},
    "system": _system,
    "route": _route,
    "k": _k,
    "stats": _stats,
    "model": _model,
    "theme": _theme,
    "export": _export,
    "sessions": _sessions,
    "new": _action("new"),
    "regenerate": _action("regenerate"),
    "continue": _action("go_on"),
    "undo": _action("undo"),
    "check": _action("check"),
    "help": _action("help"),
    "quit": _action("app.leave"),
}


def takes_argument(name: str) -> bool:
    """Whether something may follow the command."""
    return any(command.argument for command in COMMANDS if command.name == name)
