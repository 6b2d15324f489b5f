"""A conversation as a Markdown document.

Owns the form of the document: front matter, a heading for each turn, attached files as fenced
blocks. Pure: texts in, text out. It must not know files or the store. What was said is put in as it
is; only what would swallow the next turn or end the front matter is closed, fenced or quoted.

Invariant: a fence is longer than any run of its character inside the block; every value of the
front matter is a JSON string or number, which YAML reads the same way.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
from markdown_it import MarkdownIt

from engine.protocol import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.protocol import Snippet
    from tui.history_records import Conversation, Message

_HEADINGS = {"user": "You", "assistant": "Assistant", "system": "System"}
_STATES = {
    "partial": "_This answer was stopped before its end._",
    "failed": "_This answer ended in an error._",
}

_HTML_ENDS = (
    "\n-->",
    "\n</pre>",
    "\n</script>",
    "\n</style>",
    "\n</textarea>",
    "\n?>",
    "\n]]>",
    "\n>",
)
"""What ends a block of HTML that goes on over empty lines."""
_PROBE = "next"


def as_markdown(conversation: Conversation, messages: Sequence[Message]) -> str:
    """The thread as one document that ends in a line feed."""
    parts = [_front_matter(conversation, messages), f"# {_title(conversation)}"]
    if conversation.system:
        parts.append(f"## System\n\n{_on_its_own(conversation.system)}")
    parts += map(_turn, messages)
    return "\n\n".join(parts) + "\n"


def _front_matter(conversation: Conversation, messages: Sequence[Message]) -> str:
    models = list(dict.fromkeys(message.model for message in messages if message.model))
    samplings = [message.sampling for message in messages if message.sampling is not None]
    lines = [
        "---",
        f"title: {_value(_title(conversation))}",
        f"date: {_value(_moment(conversation.created))}",
        f"updated: {_value(_moment(conversation.updated))}",
    ]
    if models:
        lines.append(f"model: {_value(models[0] if len(models) == 1 else models)}")
    if samplings:
        lines += ["sampling:", *_sampling(samplings[-1])]
    elif any(message.role == "assistant" for message in messages):
        greedy = all(message.greedy for message in messages if message.role == "assistant")
        lines.append(f"greedy: {_value(greedy)}")
    return "\n".join([*lines, "---"])


def _sampling(sampling: SamplingParams) -> list[str]:
    """The temperature, and whatever differs from what it is by itself."""
    told = msgspec.to_builtins(sampling)
    usual = msgspec.to_builtins(SamplingParams())
    return [
        f"  {name}: {_value(value)}"
        for name, value in told.items()
        if name == "temperature" or value != usual[name]
    ]


def _turn(message: Message) -> str:
    parts = [f"## {_HEADINGS[message.role]}", *map(_attached, message.snippets)]
    if message.content.strip():
        parts.append(_on_its_own(message.content))
    if message.state in _STATES:
        parts.append(_STATES[message.state])
    return "\n\n".join(parts)


def _on_its_own(text: str) -> str:
    """The text with whatever it leaves open closed, so that what follows stays outside of it."""
    text = text.strip("\n")
    fences = [f"\n{marks}" for marks in dict.fromkeys(re.findall(r"`{3,}|~{3,}", text))]
    for end in ("", *fences, *_HTML_ENDS):
        if _ends_with_heading(f"{text}{end}\n\n## {_PROBE}\n"):
            return text + end
    return _fenced(text, "")


def _ends_with_heading(document: str) -> bool:
    last = MarkdownIt().parse(document)[-2:]
    return [token.type for token in last] == ["inline", "heading_close"] and last[1].level == 0


def _fenced(text: str, info: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{fence}{info}\n{text}{end}{fence}"


def _attached(snippet: Snippet) -> str:
    name = " ".join(snippet.path.split())
    language = PurePath(name).suffix.removeprefix(".")
    info = language if re.fullmatch(r"[A-Za-z0-9+#-]+", language) else ""
    return f"File {_code(name)}:\n\n{_fenced(snippet.text, info)}"


def _code(text: str) -> str:
    """The text as an inline code span."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    ticks = "`" * (longest + 1)
    return f"{ticks} {text} {ticks}"


def _title(conversation: Conversation) -> str:
    return " ".join(conversation.title.split()) or "Untitled conversation"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
