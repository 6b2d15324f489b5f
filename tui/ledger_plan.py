"""What a prompt that is too long could leave out, worked out before anything is left out.

Owns the sums: what is over, which of the oldest messages make up for it, what a choice would free.
Pure; knows neither screens nor the conversation. Counts are tokens, messages are told by their
index among the turns of the prompt.

Invariant: the newest message and the system text are never offered; a question never goes without
its answers, so that what is left still begins with a question.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from engine.protocol import PromptCost, Role


class Choice(Struct, frozen=True, kw_only=True):
    """What is left out: indices of turns and of files."""

    turns: tuple[int, ...] = ()
    files: tuple[int, ...] = ()


class Plan(Struct, frozen=True, kw_only=True):
    """What must go for the prompt to fit, the oldest first."""

    turns: tuple[int, ...]
    short_by: int
    """Tokens that are still too many with all of these gone: a file must go, or the answer must be
    shorter. 0 if it fits."""


def excess(cost: PromptCost, reserve: int) -> int:
    """Tokens by which the prompt and an answer of `reserve` tokens exceed the context; 0 if they
    fit."""
    return max(0, cost.total_tokens + reserve - cost.context_limit)


def exchanges(cost: PromptCost, roles: Sequence[Role] = ()) -> tuple[tuple[int, ...], ...]:
    """The turns that may go, oldest first, as groups that go together: a question, its answers.

    Without roles the turns alternate, the first being a question.
    """
    count = len(cost.turn_tokens)
    known: Sequence[Role] = roles or tuple("assistant" if n % 2 else "user" for n in range(count))
    assert len(known) == count, f"{len(known)} roles for {count} turns"
    newest = max((n for n, role in enumerate(known) if role == "user"), default=count)
    groups: list[list[int]] = []
    for n in range(newest):
        if known[n] == "system":
            continue
        if known[n] == "user" or not groups:
            groups.append([])
        groups[-1].append(n)
    return tuple(map(tuple, groups))


def plan(
    cost: PromptCost, reserve: int, roles: Sequence[Role] = (), files: Sequence[int] = ()
) -> Plan:
    """The fewest of the oldest exchanges that must go, given that `files` go already."""
    over = excess(cost, reserve) - sum(cost.snippet_tokens[n] for n in files)
    gone: list[int] = []
    for group in exchanges(cost, roles):
        if over <= 0:
            break
        gone += group
        over -= sum(cost.turn_tokens[n] for n in group)
    return Plan(turns=tuple(gone), short_by=max(0, over))


def still_over(cost: PromptCost, reserve: int, choice: Choice) -> int:
    """Tokens too many once `choice` is left out; negative for room to spare. The engine's own count
    of what is then left is what decides."""
    freed = sum(cost.turn_tokens[n] for n in choice.turns)
    freed += sum(cost.snippet_tokens[n] for n in choice.files)
    return cost.total_tokens + reserve - cost.context_limit - freed
