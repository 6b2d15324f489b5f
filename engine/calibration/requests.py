"""A file of one's own requests, as questions to the model.

One request a line: a plain line is a question of a chat; a JSON object holds `prompt`, or
`messages` of `role` and `content`, or `prefix` and `suffix` of a hole to fill. It knows nothing of
what is measured on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from engine.protocol import ChatPrompt, FillPrompt, RequestError, Role, Turn
from engine.text import TextCodec
from engine.train.answers import TEMPERATURE, Question
from engine.train.questions import CHAT_TOKENS, FILL_TOKENS, PROMPT_TOKENS

_HINT = 'One request a line: plain text, or JSON as in {"prompt": "…"}.'


class _Message(Struct):
    role: Role
    content: str


class _Line(Struct):
    prompt: str = ""
    messages: list[_Message] = []
    prefix: str | None = None
    suffix: str | None = None


def read_prompts(file: Path) -> list[ChatPrompt | FillPrompt]:
    """What `file` asks, line by line. Raises `RequestError` for a file that can't be read, a line
    that asks nothing, or no line at all."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        message = f"the requests '{file}' can't be read: {error.strerror}"
        raise RequestError("requests_file", message, _HINT) from error
    except UnicodeDecodeError as error:
        message = f"the requests '{file}' are not UTF-8 text (byte {error.start})"
        raise RequestError("requests_file", message, _HINT) from error
    numbered = enumerate(lines, start=1)
    prompts = [_prompt(file, number, line) for number, line in numbered if line.strip()]
    if not prompts:
        raise RequestError("requests_file", f"'{file}' holds no request", _HINT)
    return prompts


def read_requests(file: Path, text: TextCodec, context_tokens: int) -> list[Question]:
    """The requests of `file` that this model can take and that are short enough to be measured on.

    Raises `RequestError` as `read_prompts` does, and where no request is left.
    """
    prompts = read_prompts(file)
    found = list(_questions(prompts, text, context_tokens))
    if not found:
        raise RequestError(
            "requests_file",
            f"'{file}' holds no request that this model can take, of at most {PROMPT_TOKENS} "
            "tokens",
            "Shorten them, or leave --requests out.",
        )
    return found


def _questions(
    prompts: Sequence[ChatPrompt | FillPrompt], text: TextCodec, context_tokens: int
) -> Iterator[Question]:
    for number, prompt in enumerate(prompts):
        is_fill = isinstance(prompt, FillPrompt)
        if not (text.can_fill if is_fill else text.can_chat):
            continue
        ids = text.fill_ids(prompt) if isinstance(prompt, FillPrompt) else text.chat_ids(prompt)
        most = FILL_TOKENS if is_fill else CHAT_TOKENS
        if 1 < len(ids) <= min(PROMPT_TOKENS, context_tokens - most - 1):
            yield Question(
                ids=ids,
                stop_ids=text.fill_stop_ids if is_fill else text.chat_stop_ids,
                max_tokens=most,
                temperature=TEMPERATURE if number % 2 else 0.0,
            )


def _prompt(file: Path, number: int, line: str) -> ChatPrompt | FillPrompt:
    if not line.lstrip().startswith("{"):
        return ChatPrompt(turns=(Turn(role="user", content=line.strip()),))
    try:
        told = msgspec.json.decode(line.encode(), type=_Line)
    except msgspec.MsgspecError as error:
        message = f"line {number} of '{file}' is no request: {error}"
        raise RequestError("requests_file", message, _HINT) from error
    if told.prefix is not None:
        return FillPrompt(prefix=told.prefix, suffix=told.suffix or "")
    turns = tuple(Turn(role=one.role, content=one.content) for one in told.messages)
    if told.prompt:
        turns = (*turns, Turn(role="user", content=told.prompt))
    if not turns or turns[-1].role != "user":
        message = f"line {number} of '{file}' asks nothing"
        raise RequestError("requests_file", message, _HINT)
    return ChatPrompt(turns=turns)
