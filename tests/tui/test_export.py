"""A conversation as Markdown: what it holds, and that nothing in it can break its form."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from engine.protocol import Role, SamplingParams, Snippet
from tui.export import as_markdown
from tui.history_records import Conversation, Message

WHOLE = """---
title: "Sort: a \\"list\\""
date: "2026-03-01T12:00:00+00:00"
updated: "2026-03-01T12:05:00+00:00"
model: "coder-0.5b"
sampling:
  temperature: 0.2
  stop: ["\\n\\n"]
  seed: 7
---

# Sort: a "list"

## System

Be brief.

## You

File `src/a.py`:

```py
x = 1
```

How?

## Assistant

Use `sorted`.

## You

And now?

## Assistant

_This answer was stopped before its end._
"""


def conversation(**changes: Any) -> Conversation:
    usual = {
        "id": 1,
        "title": 'Sort: a "list"',
        "system": "",
        "created": 1772366400.0,
        "updated": 1772366700.0,
        "messages": 2,
    }
    return Conversation(**(usual | changes))


def said(role: Role, content: str, **more: Any) -> Message:
    return Message(id=1, conversation=1, parent=None, role=role, content=content, created=0, **more)


def test_the_whole_document() -> None:
    sampling = SamplingParams(temperature=0.2, seed=7, stop=("\n\n",))
    messages = [
        said("user", "How?", snippets=(Snippet(path="src/a.py", text="x = 1\n"),)),
        said("assistant", "Use `sorted`.\n", model="coder-0.5b", sampling=sampling),
        said("user", "And now?"),
        said("assistant", "", state="partial", model="coder-0.5b", sampling=sampling),
    ]
    assert as_markdown(conversation(system="Be brief."), messages) == WHOLE


def test_what_is_not_known_is_left_out() -> None:
    document = as_markdown(conversation(title=""), [said("user", "q")])
    front = document.split("---\n")[1]
    assert [line.split(":")[0] for line in front.splitlines()] == ["title", "date", "updated"]
    assert "# Untitled conversation" in document


@pytest.mark.parametrize(("greedy", "told"), [(True, "greedy: true"), (False, "greedy: false")])
def test_without_its_sampling_an_answer_still_says_whether_it_was_greedy(
    greedy: bool, told: str
) -> None:
    document = as_markdown(conversation(), [said("assistant", "a", greedy=greedy)])
    assert told in document.splitlines()


def test_several_models_are_all_named() -> None:
    messages = [said("assistant", "a", model=name) for name in ("m1", "m2", "m1")]
    assert 'model: ["m1", "m2"]' in as_markdown(conversation(), messages).splitlines()


def test_an_answer_cut_in_a_block_does_not_swallow_the_next_turn() -> None:
    messages = [
        said("assistant", "see:\n````python\nx = '```'\n```\n", state="partial"),
        said("user", "go on"),
    ]
    document = as_markdown(conversation(), messages)
    headings = [token.content for token in parsed(document) if token.type == "inline"]
    assert "You" in headings
    assert "_This answer was stopped before its end._" in headings


def parsed(document: str) -> list[Any]:
    body = re.sub(r"\A---\n.*?\n---\n", "", document, flags=re.DOTALL)
    return MarkdownIt().parse(body)


PIECES = ["`", "~", "```", "~~~\n", "\n", "a", " ", "#", "---", "\t", "- ", "> ", "1. "]
HTML = ["<!--", "-->", "<pre>", "<script>", "</pre>", "<div>", "<?", "<![CDATA[", "<!A", "[a]: "]
MARKDOWN = st.lists(st.sampled_from(PIECES + HTML)).map("".join)


@given(text=MARKDOWN, path=st.sampled_from(["a.py", "we`ird``.x y", "a\nb.md", "Makefile"]))
def test_an_attached_file_stays_in_its_block(text: str, path: str) -> None:
    messages = [said("user", "after", snippets=(Snippet(path=path, text=text),))]
    tokens = parsed(as_markdown(conversation(), messages))
    (fence,) = (token for token in tokens if token.type == "fence")
    # The parser ends the last line where the file did not.
    ended = text if not text or text.endswith("\n") else text + "\n"
    assert fence.content == ended
    assert [token.content for token in tokens if token.type == "inline"][-1] == "after"


@given(MARKDOWN)
def test_what_follows_an_answer_is_always_a_turn_of_its_own(text: str) -> None:
    tokens = parsed(as_markdown(conversation(), [said("assistant", text), said("user", "next")]))
    headings = [
        following.content
        for token, following in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]
    assert headings[-1] == "You"
    assert tokens[-2].content == "next"


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_the_front_matter_holds_any_title(title: str) -> None:
    document = as_markdown(conversation(title=title), [])
    lines = document.split("\n---\n")[0].split("\n")
    assert lines[0] == "---"
    assert len(lines) == 4
    told = json.loads(lines[1].removeprefix("title: "))
    assert told == (" ".join(title.split()) or "Untitled conversation")
