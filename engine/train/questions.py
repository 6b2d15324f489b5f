"""From prompts to what the decoder answers: ids, ends, lengths, and every other one greedy.

A model without a chat template is asked fills only, one without fill markers chats only. Invariant:
the same model and folder give the same questions in the same order, so a run can go on where an
earlier one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.protocol import ChatPrompt, FillPrompt, ModelError, RequestError
from engine.text import TextCodec
from engine.train.answers import TEMPERATURE, Question
from engine.train.project_text import fills_and_edits, interleaved
from engine.train.prompts import built_in_prompts

CHAT_TOKENS = 220
FILL_TOKENS = 96
PROMPT_TOKENS = 640
"""Longer prompts are left out: time is better spent on answers."""
CUTS = 260
"""Prompts cut from files."""
HELD_OUT = 12
"""One question of so many is never trained on."""


def questions_for(text: TextCodec, folder: Path | None, context_tokens: int) -> list[Question]:
    """All questions to a model. Raises `ModelError` where it takes neither chats nor fills."""
    prompts = interleaved(built_in_prompts(), list(fills_and_edits(folder, CUTS)))
    found = list(_encoded(text, prompts, context_tokens))
    if not found:
        raise ModelError(
            "no_questions",
            "this model has neither a chat template nor markers for fills, so it can't be asked",
            "Choose an instruct or a code model.",
        )
    return found


def is_held_out(key: str) -> bool:
    """Whether the answer to a question serves for judging, in this run and in every other."""
    return int(key, 16) % HELD_OUT == 0


def _encoded(
    text: TextCodec, prompts: list[ChatPrompt | FillPrompt], context_tokens: int
) -> Iterator[Question]:
    for number, prompt in enumerate(prompts):
        is_fill = isinstance(prompt, FillPrompt)
        if not (text.can_fill if is_fill else text.can_chat):
            continue
        try:
            ids = text.fill_ids(prompt) if isinstance(prompt, FillPrompt) else text.chat_ids(prompt)
        except RequestError:
            continue
        most = FILL_TOKENS if is_fill else CHAT_TOKENS
        if not 1 < len(ids) <= min(PROMPT_TOKENS, context_tokens - most - 1):
            continue
        yield Question(
            ids=ids,
            stop_ids=text.fill_stop_ids if is_fill else text.chat_stop_ids,
            max_tokens=most,
            temperature=TEMPERATURE if number % 2 else 0.0,
        )
