"""Text that a model says and a program never should show: its own tokens, talk, fences.

Pure recognisers, one line or one text at a time. Knows no document; whether talk is out of place
where the cursor stands is the caller's business.

Invariant: what `special_at` finds stays where it is when more text follows.
"""

from __future__ import annotations

import re

_ALWAYS = (
    r"<\|[A-Za-z][\w▁/.-]*\|>",
    r"<｜[^<>｜\n]{1,40}｜>",
    r"<\[(?:fim-|end|begin|PAD)[\w▁-]*\]>",
    r"</?(?:fim|file|repo|gh|issue|jupyter|commit|empty|end|start|begin)[_-][a-z_-]+>",
    r"<(?:reponame|filename|endoftext|end_of_turn|start_of_turn|NO_EDITS)>",
    r"<(?:PRE|SUF|MID|EOT)>",
    r"\[/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    r"<<SYS>>|<</SYS>>",
    r"(?<=\n)\[(?:SUFFIX|PREFIX|MIDDLE)\]",
)
_OUTSIDE_MARKUP = (r"</?s>", r"<pad>", r"<unk>", r"<bos>", r"<eos>")
_SPECIAL = re.compile("|".join((*_ALWAYS, *_OUTSIDE_MARKUP)))
_SPECIAL_IN_MARKUP = re.compile("|".join(_ALWAYS))
_TORN = re.compile(r"<[|｜][\w▁｜|-]*$|</?(?:fim|repo|file|gh)[_-][a-z_-]*$")
"""The start of a token that the end of the text cut off."""

_THING = (
    r"(?:code|function|method|snippet|implementation|class|script|program|completion|line|solution|"
    r"answer|error|issue|problem|middle|text)s?\b"
)
_TALK = re.compile(
    r"\s*(?:"
    r"(?:Sure|Certainly|Of course|Absolutely|Okay|OK)[,!.:]|"
    r"Here(?:'s| is| are)\s+(?:the|a|an|your|my|one|some|how|what)\b|"
    r"(?:I(?:'m| am) sorry|I apologi[sz]e|I can(?:'t|not)|I(?:'ve| have) \w+|As an AI)\s|"
    r"(?:I will|I'll)\s|"
    r"(?:The|This|That|Your|My) (?:\w+ )?" + _THING + r"[^=(:;{]*(?:\s\w+){2}|"
    r"To (?:complete|implement|fix|fill|solve|achieve|do this)\b.*(?:\s\w+){2}|"
    r"(?:You|We) (?:can|should|need|could|may|have)\s|"
    r"(?:Note|Please note)(?: that)?[:,]?\s+\w+\s\w+|(?:Please|Let me|Let's)\s+\w+\s\w+|"
    r"(?:Explanation|Output|Answer|Solution|Example usage|Completion|Response)\s*:\s*$|"
    r"(?:In this|In the) (?:code|example|snippet|function|case|above|following)\b|"
    r"\*\*[A-Z][\w ]+:?\*\*\s*$"
    r")"
)
_FENCE = re.compile(r"\s{0,3}(?:```+|~~~+)\s*([\w+#.-]*)\s*$")


def special_at(text: str, markup: bool) -> tuple[int, int] | None:
    """Start and end of the first token of a model's own; None without one."""
    match = (_SPECIAL_IN_MARKUP if markup else _SPECIAL).search(text)
    return match.span() if match else None


def without_torn(text: str) -> str:
    """The text less the beginning of such a token at its very end."""
    match = _TORN.search(text)
    return text[: match.start()] if match else text


def is_talk(line: str) -> bool:
    """Whether a line is a sentence to the user, where code was wanted."""
    return _TALK.match(line) is not None


def is_fence(line: str) -> bool:
    """Whether a line begins or ends a block of code in Markdown, and holds nothing else."""
    return _FENCE.match(line) is not None
