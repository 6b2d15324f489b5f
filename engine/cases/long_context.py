"""Cases of about 2k, 4k and 8k tokens, cut from the engine's own sources.

The longer prompts begin like the shorter ones, so that what was read for one is read for the next.
Invariant: the first file, which the edits ask for, is whole in all of them.
"""

from __future__ import annotations

from pathlib import Path

from engine.cases.case import Case
from engine.protocol import ChatPrompt, Turn

SOURCES = (
    "verify.py",
    "cache.py",
    "sampling.py",
    "slots.py",
    "telling.py",
    "stream_text.py",
    "host_memory.py",
    "gguf_file.py",
    "fill_layouts.py",
    "checkpoint.py",
)
SHORT, MIDDLE, LONG = 7_400, 14_600, 29_500
"""Characters that make about 2, 4 and 8 thousand tokens."""

_EXPLAIN = "Explain in a few sentences what one round of verification does."
_EDIT = (
    "Return the function `accept_greedy` exactly as it stands there, with the parameter `best` "
    "renamed to `choices`."
)
_CASES = (
    ("long-edit", MIDDLE, _EDIT),
    ("long-explain", MIDDLE, _EXPLAIN),
    ("long-4k-tests", MIDDLE, "Write three pytest tests for the acceptance rule."),
    ("long-2k-edit", SHORT, _EDIT),
    ("long-2k-explain", SHORT, _EXPLAIN),
    ("long-2k-review", SHORT, "Review this code: name the two things you would change first."),
    ("long-8k-edit", LONG, _EDIT),
    ("long-8k-explain", LONG, "Say in one sentence for each file what it is there for."),
)


def long_cases() -> tuple[Case, ...]:
    """The cases of the kind `long-context`."""
    here = Path(__file__).parents[1]
    texts = [f"# {name}\n{(here / name).read_text(encoding='utf-8')}" for name in SOURCES]
    sources = "\n\n".join(texts)
    return tuple(
        Case(name=name, kind="long-context", prompt=_about(sources[:characters], task))
        for name, characters, task in _CASES
    )


def _about(sources: str, task: str) -> ChatPrompt:
    question = f"Here are parts of a program.\n\n{sources}\n\n{task}"
    return ChatPrompt(turns=(Turn(role="user", content=question),))
