"""What a client asks for: prompts, sampling, steering, and what a prompt would cost."""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.words import Priority, Role, RouteChoice


class Turn(Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Role
    content: str


class Snippet(Struct, frozen=True, kw_only=True):
    """Text from another file that the model should see."""

    path: str
    text: str


class ChatPrompt(Struct, frozen=True, kw_only=True, tag="chat"):
    """A conversation whose next assistant message is wanted.

    When the last turn is the assistant's own, that message is unfinished and is gone on with.
    """

    turns: tuple[Turn, ...]
    snippets: tuple[Snippet, ...] = ()


class FillPrompt(Struct, frozen=True, kw_only=True, tag="fill"):
    """A hole in a file: the text before it and after it."""

    prefix: str
    suffix: str
    path: str | None = None
    language: str | None = None
    snippets: tuple[Snippet, ...] = ()


class SamplingParams(Struct, frozen=True, kw_only=True):
    """How tokens are drawn from the target's law; `temperature == 0` is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps every token."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens seen in prompt or output, multiplies negative ones."""
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    seed: int | None = None
    """Fixes the draw for a fixed route and k; a dynamic k keeps the law but not the draw."""


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """One answer that is wanted."""

    id: str
    prompt: ChatPrompt | FillPrompt
    sampling: SamplingParams = SamplingParams()
    priority: Priority = "chat"
    route: RouteChoice = "auto"
    k: int | None = None
    """Pins the number of drafted tokens; `None` lets the controller choose."""
    client: str = "chat"
    """Who asks, in a word that others may read: `chat`, `editor`, `ask`."""
    conversation: str | None = None
    """Requests of one conversation (or one file) name it alike, so that the engine can say when
    what it had kept of it was pushed out."""


class Steering(Struct, frozen=True, kw_only=True):
    """How a running answer is to draft from its next round on. Never changes what it may say."""

    route: RouteChoice = "auto"
    k: int | None = None


class PromptCost(Struct, frozen=True, kw_only=True):
    """What a prompt takes of the context, in tokens."""

    total_tokens: int
    """The whole prompt as it would be sent, the template's own tokens included."""
    turn_tokens: tuple[int, ...]
    """One count for each turn of a chat prompt; empty for a fill."""
    snippet_tokens: tuple[int, ...]
    context_limit: int
