"""The slash commands: their names, their arguments, and what is wrong with one that is not right.

Owns the table that the input, the popup, the palette and the help read, the parsing, and the ranges
of the sampling settings. It does nothing itself: who runs a command is the screen's matter. Textual
and the engine's own checks stay outside; a test holds the ranges here equal to the engine's.

Invariant: a text is a command, a message or an error, never two of them; what `parse` returns has
an argument that `apply_setting` accepts.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from typing import Any, get_args

import msgspec
from msgspec import Struct

from engine.protocol import RequestError, RouteChoice, SamplingParams

MAX_K = 32
ROUTES: tuple[str, ...] = get_args(RouteChoice)
_ATTEMPT = re.compile(r"/(?P<name>[A-Za-z][A-Za-z0-9_-]*)(?:\s+(?P<argument>.*))?\Z", re.DOTALL)
"""One word and no more slashes: `/usr/bin` and `/* … */` are no attempts at a command."""
_ESCAPED = re.compile(r"//+[A-Za-z][A-Za-z0-9_-]*(?:\s|\Z)")
_UNSET = ("none", "off", "default")


class SlashCommand(Struct, frozen=True, kw_only=True):
    """One command."""

    name: str
    help: str
    argument: str = ""
    """What may follow, as shown to the user: `[…]` can be left out. Empty if nothing may."""
    setting: str = ""
    """The field of `SamplingParams` it shows or changes."""


class Limits(Struct, frozen=True, kw_only=True):
    """What the engine accepts for a number."""

    low: float
    high: float
    whole: bool = False
    low_open: bool = False

    def __str__(self) -> str:
        bound = "above" if self.low_open else "from"
        kind = "a whole number" if self.whole else "a number"
        return (
            f"{kind} {bound} {self.low:g} to {self.high:,g}"
            if self.high < 1e6
            else (f"{kind} {bound} {self.low:g}")
        )


LIMITS = {
    "temperature": Limits(low=0, high=10),
    "top_p": Limits(low=0, high=1, low_open=True),
    "top_k": Limits(low=0, high=1 << 20, whole=True),
    "min_p": Limits(low=0, high=1),
    "repetition_penalty": Limits(low=0, high=10, low_open=True),
    "max_tokens": Limits(low=1, high=1 << 20, whole=True),
    "seed": Limits(low=0, high=(1 << 63) - 1, whole=True),
}

COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand(name="new", help="begin a new conversation"),
    SlashCommand(name="sessions", argument="[search]", help="earlier conversations"),
    SlashCommand(name="export", argument="[file]", help="write the conversation as Markdown"),
    SlashCommand(name="regenerate", help="answer the last question again"),
    SlashCommand(name="continue", help="go on with the last answer"),
    SlashCommand(name="undo", help="take back the last change to a file"),
    SlashCommand(name="model", argument="[name]", help="choose or fetch another model"),
    SlashCommand(
        name="system", argument="[text]", help="what the model is told first; none clears it"
    ),
    SlashCommand(
        name="temperature",
        argument="[T]",
        setting="temperature",
        help="how freely to draw; 0 is greedy",
    ),
    SlashCommand(
        name="top-p", argument="[P]", setting="top_p", help="keep the likeliest that make up P"
    ),
    SlashCommand(
        name="top-k", argument="[N]", setting="top_k", help="keep the N likeliest; 0 keeps all"
    ),
    SlashCommand(
        name="min-p", argument="[P]", setting="min_p", help="drop what is below P × the likeliest"
    ),
    SlashCommand(
        name="repetition-penalty",
        argument="[X]",
        setting="repetition_penalty",
        help="above 1, what was said gets rarer",
    ),
    SlashCommand(
        name="max-tokens", argument="[N]", setting="max_tokens", help="longest answer, in tokens"
    ),
    SlashCommand(
        name="seed",
        argument="[N|none]",
        setting="seed",
        help="repeats a draw, for a fixed route and k",
    ),
    SlashCommand(
        name="stop", argument='["text" …|none]', setting="stop", help="end the answer before a text"
    ),
    SlashCommand(
        name="route", argument="[name]", help="how to draft: auto, plain, copy, layer_skip …"
    ),
    SlashCommand(name="k", argument=f"[1…{MAX_K}|auto]", help="tokens drafted a round"),
    SlashCommand(name="check", help="run the last answer plainly: is it the same?"),
    SlashCommand(name="stats", help="tokens, speed and acceptance so far"),
    SlashCommand(name="theme", argument="[name]", help="colours"),
    SlashCommand(name="help", help="keys and commands"),
    SlashCommand(name="quit", help="leave the chat"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def parse(text: str) -> tuple[SlashCommand, str] | None:
    """The command that `text` is, with its argument, or None if it is a message.

    Raises `RequestError` for an unknown name or an argument out of range, saying what would do.
    """
    attempt = _ATTEMPT.match(text)
    if attempt is None:
        return None
    name, argument = attempt["name"], (attempt["argument"] or "").strip()
    command = _BY_NAME.get(name.lower().replace("_", "-"))
    if command is None:
        raise _unknown(name)
    if argument and not command.argument:
        raise RequestError(
            "bad_argument",
            f"/{command.name} takes no argument, not {argument[:40]!r}",
            f"Write /{command.name} alone.",
        )
    if argument and command.setting:
        _value(command.setting, argument)
    elif argument and command.name in ("route", "k"):
        _check_steering(command.name, argument)
    return command, argument


def as_message(text: str) -> str:
    """What is sent for a text that is no command: `//word …` says `/word …`."""
    return text[1:] if _ESCAPED.match(text) else text


def as_typed(message: str) -> str:
    """How a message is to be typed so that it is sent as it is."""
    return f"/{message}" if _ATTEMPT.match(message) or _ESCAPED.match(message) else message


def matching(typed: str) -> tuple[SlashCommand, ...]:
    """The commands that `typed` may become, those that begin with it first."""
    typed = typed.lower().replace("_", "-")
    begin = [command for command in COMMANDS if command.name.startswith(typed)]
    hold = [command for command in COMMANDS if typed in command.name and command not in begin]
    return (*begin, *hold)


def apply_setting(params: SamplingParams, command: SlashCommand, argument: str) -> SamplingParams:
    """`params` with the setting of `command` changed. Raises `RequestError` out of range."""
    return msgspec.structs.replace(params, **{command.setting: _value(command.setting, argument)})


def describe_setting(params: SamplingParams, command: SlashCommand) -> str:
    """What the setting is now, and what it may be, in a sentence."""
    value = getattr(params, command.setting)
    now = "not set" if value is None or value == () else f"{value}"
    if command.setting == "stop" and value:
        now = " ".join(map(repr, value))
    if command.setting == "temperature" and value == 0:
        now = "0, greedy"
    may = LIMITS.get(command.setting)
    return f"{command.name} is {now}" + (f"; it may be {may}." if may else ".")


def _value(setting: str, argument: str) -> Any:
    if setting == "stop":
        return _stops(argument)
    if setting == "seed" and argument.lower() in _UNSET:
        return None
    limits = LIMITS[setting]
    try:
        value = int(argument) if limits.whole else float(argument)
    except ValueError:
        value = math.nan
    low_enough = value > limits.low if limits.low_open else value >= limits.low
    if not (low_enough and value <= limits.high):
        raise _out_of_range(setting.replace("_", "-"), argument, str(limits))
    return value


def _stops(argument: str) -> tuple[str, ...]:
    if argument.lower() in _UNSET:
        return ()
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise _out_of_range("stop", argument, 'texts, each in "quotes"') from error
    stops = tuple(word.replace("\\n", "\n").replace("\\t", "\t") for word in words)
    if not all(stops):
        raise _out_of_range("stop", argument, "texts that are not empty")
    return stops


def _check_steering(name: str, argument: str) -> None:
    if name == "route" and argument not in ROUTES:
        raise _out_of_range("route", argument, f"one of {', '.join(ROUTES)}")
    is_k = argument == "auto" or (argument.isdecimal() and 1 <= int(argument) <= MAX_K)
    if name == "k" and not is_k:
        raise _out_of_range("k", argument, f"a whole number from 1 to {MAX_K}, or auto")


def _out_of_range(name: str, argument: str, may: str) -> RequestError:
    return RequestError("bad_setting", f"{name} can't be {argument[:40]!r}", f"It may be {may}.")


def _unknown(name: str) -> RequestError:
    near = difflib.get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.5)
    meant = f"Did you mean /{near[0]}? " if near else "/help lists them. "
    return RequestError(
        "unknown_command",
        f"there is no command /{name}",
        f"{meant}To send a message that begins with a slash, begin it with two.",
    )
