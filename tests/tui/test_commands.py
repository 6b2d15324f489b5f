"""Slash commands: what is one, what its argument may be, and that the ranges are the engine's."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import MAX_DRAFT_TOKENS, check_sampling
from engine.protocol import EngineError, RequestError, SamplingParams
from tui.commands import (
    COMMANDS,
    LIMITS,
    MAX_K,
    SlashCommand,
    apply_setting,
    as_message,
    as_typed,
    describe_setting,
    matching,
    parse,
)

BY_NAME = {command.name: command for command in COMMANDS}
SETTINGS = [command for command in COMMANDS if command.setting]


def parsed(text: str) -> tuple[str, str]:
    found = parse(text)
    assert found is not None
    return found[0].name, found[1]


def refusal(text: str) -> EngineError:
    with pytest.raises(RequestError) as refused:
        parse(text)
    return refused.value


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/new", "new", ""),
        ("/new ", "new", ""),
        ("/NEW", "new", ""),
        ("/temperature 0.7", "temperature", "0.7"),
        ("/top_p 0.5", "top-p", "0.5"),
        ("/system be brief\nand kind\n", "system", "be brief\nand kind"),
        ("/stop '\\n\\n' end", "stop", "'\\n\\n' end"),
        ("/seed none", "seed", "none"),
        ("/k auto", "k", "auto"),
        ("/k 4", "k", "4"),
        ("/route layer_skip", "route", "layer_skip"),
        ("/export my notes.md", "export", "my notes.md"),
        ("/model", "model", ""),
    ],
)
def test_a_command_is_parsed(text: str, name: str, argument: str) -> None:
    assert parsed(text) == (name, argument)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        " /new",
        "/",
        "//new",
        "/usr/bin/env python",
        "/* c */",
        "/5",
        "// x",
        "///",
        "a /new",
    ],
)
def test_a_message_is_no_command(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("//new", "/new"),
        ("//etc is a folder", "/etc is a folder"),
        ("///new", "//new"),
        ("// a comment", "// a comment"),
        ("///", "///"),
        ("//usr/bin", "//usr/bin"),
        ("/usr/bin", "/usr/bin"),
        ("plain", "plain"),
        (" //new", " //new"),
    ],
)
def test_two_slashes_send_one_only_where_one_would_be_a_command(typed: str, sent: str) -> None:
    assert parse(typed) is None
    assert as_message(typed) == sent


@given(st.one_of(st.text(max_size=9), st.text("/ab -_\n", max_size=6)))
def test_any_message_can_be_typed(text: str) -> None:
    assert parse(as_typed(text)) is None
    assert as_message(as_typed(text)) == text


def test_an_unknown_command_is_refused_with_a_suggestion() -> None:
    error = refusal("/temprature 1")
    assert error.code == "unknown_command"
    assert "/temprature" in error.message
    assert "Did you mean /temperature?" in error.hint
    assert "begin it with two" in error.hint
    assert "/help" in refusal("/xyzzy").hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("/temperature hot", "0 to 10"),
        ("/temperature -1", "0 to 10"),
        ("/temperature nan", "0 to 10"),
        ("/temperature inf", "0 to 10"),
        ("/top-p 0", "above 0 to 1"),
        ("/top-k 1.5", "whole number from 0"),
        ("/max-tokens 0", "from 1"),
        ("/seed -1", "whole number from 0"),
        ("/stop 'open", "quotes"),
        ("/stop ''", "not empty"),
        ("/k 0", "1 to 32"),
        ("/k 33", "1 to 32"),
        ("/k many", "auto"),
        ("/route exit", "layer_skip, exit_head, low_precision"),
        ("/new now", "Write /new alone"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_with_what_can(text: str, says: str) -> None:
    error = refusal(text)
    assert says in error.hint
    assert text.split(maxsplit=1)[1] in error.message


def engine_takes(setting: str, value: float) -> bool:
    try:
        check_sampling(msgspec.structs.replace(SamplingParams(), **{setting: value}))
    except RequestError:
        return False
    return True


def chat_takes(command: SlashCommand, value: float) -> bool:
    try:
        parse(f"/{command.name} {value}")
    except RequestError:
        return False
    return True


@pytest.mark.parametrize("command", [one for one in SETTINGS if one.setting in LIMITS])
def test_the_ranges_are_the_engine_s(command: SlashCommand) -> None:
    """At each bound, just inside and just outside it, both say the same. Of the seeds that the
    engine takes the chat leaves out the negative ones and those of more than 63 bits."""
    limits = LIMITS[command.setting]
    step = 1 if limits.whole else 1e-9
    edges = [limits.low - step, limits.low, limits.low + step, limits.high - step, limits.high]
    if command.setting == "seed":
        assert [chat_takes(command, int(edge)) for edge in edges] == [False] + [True] * 4
        return
    for edge in [*edges, limits.high + step, math.inf]:
        value = int(edge) if limits.whole and math.isfinite(edge) else edge
        assert chat_takes(command, value) == engine_takes(command.setting, value), value


def test_the_range_of_k_is_the_engine_s() -> None:
    assert MAX_K == MAX_DRAFT_TOKENS


def test_a_setting_is_applied_and_described() -> None:
    params = SamplingParams()
    for text, field, value in [
        ("/temperature 0.5", "temperature", 0.5),
        ("/top-p .9", "top_p", 0.9),
        ("/top-k 40", "top_k", 40),
        ("/min-p 0.05", "min_p", 0.05),
        ("/repetition-penalty 1.1", "repetition_penalty", 1.1),
        ("/max-tokens 64", "max_tokens", 64),
        ("/seed 7", "seed", 7),
        ('/stop "\\n\\n" END', "stop", ("\n\n", "END")),
    ]:
        command, argument = parse(text) or pytest.fail(text)
        params = apply_setting(params, command, argument)
        assert getattr(params, field) == value
    assert check_sampling(params) is params
    assert describe_setting(params, BY_NAME["temperature"]) == (
        "temperature is 0.5; it may be a number from 0 to 10."
    )
    assert describe_setting(params, BY_NAME["stop"]) == "stop is '\\n\\n' 'END'."
    for text in ("/seed none", "/stop none"):
        command, argument = parse(text) or pytest.fail(text)
        params = apply_setting(params, command, argument)
    assert (params.seed, params.stop) == (None, ())
    assert describe_setting(params, BY_NAME["seed"]).startswith("seed is not set")
    assert "0, greedy" in describe_setting(SamplingParams(), BY_NAME["temperature"])


def test_every_sampling_setting_has_its_command() -> None:
    assert {command.setting for command in SETTINGS} == set(SamplingParams.__struct_fields__)
    assert {name for command in SETTINGS for name in [command.setting]} - {"stop"} == set(LIMITS)


def test_names_are_unique_and_can_be_parsed() -> None:
    assert len(BY_NAME) == len(COMMANDS)
    for command in COMMANDS:
        assert parsed(f"/{command.name}") == (command.name, "")
        assert len(command.help) <= 50


def test_the_popup_offers_what_begins_so_first() -> None:
    assert matching("te")[0].name == "temperature"
    assert [one.name for one in matching("TOP_")] == ["top-p", "top-k"]
    assert matching("") == COMMANDS
    assert matching("zzz") == ()
