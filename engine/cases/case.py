"""What a case is, and the kinds of request that cases stand for."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from engine.protocol import ChatPrompt, FillPrompt

Kind = Literal[
    "chat-code", "explain-prose", "fill", "edit", "edit-every-line", "json", "long-context"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""`edit` gives a whole file back with a small change, `edit-every-line` with one in each line."""


class Case(Struct, frozen=True, kw_only=True):
    """One prompt and what it stands for."""

    name: str
    kind: Kind
    prompt: ChatPrompt | FillPrompt
    max_tokens: int = 128
    """How much of the answer is decoded unless something else was asked for."""


class LeftOut(Struct, frozen=True, kw_only=True):
    """A case that was not run, or not with one arm."""

    case: str
    reason: str
    arm: str | None = None
    """None: with none of them."""
