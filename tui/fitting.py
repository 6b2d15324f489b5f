"""Whether a question fits into the context, and what goes along if it does not.

Owns the count before sending and the user's choice of what is left out. A prompt that is surely
short enough is not counted, so that the usual question is not held up.

Invariant: what is sent fits by the engine's own count, and nothing is left out that the user did
not mark.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Snippet
from tui.pastes import Draft

if TYPE_CHECKING:
    from engine.protocol import ChatPrompt, PromptCost
    from tui.chat_parts import ChatParts
    from tui.conversation import Talk

TEMPLATE_TOKENS = 16
"""More than any chat template spends on a turn, or a quote on a file."""


class Question(Struct, frozen=True, kw_only=True):
    """What was sent from the input."""

    text: str
    snippets: tuple[Snippet, ...] = ()
    draft: Draft = Draft(text="")
    """How it stood in the input, where it goes back if it is not sent."""
    waited: int | None = None
    """The number under which the history keeps it while it waits."""


async def fitted(screen: ChatParts, question: Question) -> Question | None:
    """The question as it may be sent, or None if the user does not want it so.

    Raises `EngineError` where it can't be counted.
    """
    talk = screen.asking.talk
    status = screen.asking.status
    limit = status.context_limit if status is not None else 0
    while True:
        prompt = await asyncio.to_thread(talk.prompt_with, question.text, question.snippets)
        if most_tokens(prompt) + talk.sampling.max_tokens <= limit:
            return question
        cost = await screen.asking.cost_of(question.text, question.snippets)
        if cost.total_tokens + talk.sampling.max_tokens <= cost.context_limit:
            return question
        chosen = await _choose(screen, talk, question, cost)
        if chosen is None:
            return None
        question = chosen


def most_tokens(prompt: ChatPrompt) -> int:
    """A bound on the tokens of a prompt: none is shorter than a byte."""
    texts = [turn.content for turn in prompt.turns]
    texts += [snippet.path + snippet.text for snippet in prompt.snippets]
    spent = sum(len(text.encode("utf-8", "surrogatepass")) + TEMPLATE_TOKENS for text in texts)
    return spent + TEMPLATE_TOKENS * 4


async def _choose(
    screen: ChatParts, talk: Talk, question: Question, cost: PromptCost
) -> Question | None:
    from tui.ledger import Entry, LedgerScreen, several

    ids = await asyncio.to_thread(talk.messages_of_turns)
    prompt = await asyncio.to_thread(talk.prompt_with, question.text, question.snippets)
    ledger = LedgerScreen(
        cost,
        [Entry(role=turn.role, text=turn.content) for turn in prompt.turns],
        [snippet.path for snippet in question.snippets],
        talk.sampling.max_tokens,
    )
    choice = await screen.app.push_screen_wait(ledger)
    if choice is None:
        return None
    gone = {message for turn in choice.turns for message in ids[turn]}
    talk.left_out |= gone
    left_out = f"{several(len(gone), 'message')}, {several(len(choice.files), 'file')}"
    screen.note(f"Left out of what the model sees: {left_out}.")
    kept = [snippet for n, snippet in enumerate(question.snippets) if n not in choice.files]
    return replace(question, snippets=tuple(kept))
