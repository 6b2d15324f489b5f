"""Built-in questions, made from templates and topics: what the model answers to show how it writes.

A few hundred, of every kind that an assistant for code is asked, none of them one of the bench's
own cases. Pure data. Invariant: the order is fixed and mixed, so that any beginning of the list is
a fair share of all kinds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from engine.protocol import ChatPrompt, Turn
from engine.train.topics import (
    CONCEPTS,
    LANGUAGES,
    RECORDS,
    SNIPPETS,
    TASKS,
    THINGS,
    TOOLS,
    TYPES,
)

_FUNCTION = (
    "Write a {language} function that {task}.",
    "Write a {language} function that {task}. Handle bad input and add a docstring or comment.",
    "Show me how to {plain} in {language}, with a short example of its use.",
    "I need {language} code that {task}. Keep it simple.",
    "Implement a function in {language} that {task}, then test it with three examples.",
)
_CLASS = (
    "Write a Python class for {thing} with type hints and a short usage example.",
    "Design a small {language} type for {thing} and show how it is used.",
    "Implement {thing} in {language}. Explain the choice of data structure in one sentence.",
)
_EXPLAIN = (
    "Explain {concept} to a programmer who has never met it. Use plain sentences.",
    "What is {concept}, and when should I care about it?",
    "Give me a short explanation of {concept} with one small example.",
    "What are the pros and cons of {concept}?",
    "Write three paragraphs about {concept} for our team's handbook.",
)
_SNIPPET = (
    "Explain what this code does.\n\n{code}",
    "Find the problem in this code and fix it.\n\n{code}",
    "Write unit tests with pytest for this code.\n\n{code}",
    "Refactor this code so that it is easier to read.\n\n{code}",
    "Add type hints and docstrings to this code and return the whole of it.\n\n{code}",
    "Translate this code to TypeScript.\n\n{code}",
    "Translate this code to Go.\n\n{code}",
    "Rename the variables in this code to clearer names and return the whole code.\n\n{code}",
    "Make this code faster and say why it is.\n\n{code}",
)
_JSON = (
    "Make up five {record} as a JSON list of objects with the keys {keys}. Only JSON.",
    "Write a JSON schema for {record} with the fields {keys}.",
    "Turn this description into JSON with the keys {keys}: one of our {record}, details made up.",
    "Give an example of a REST response that returns three {record} as JSON ({keys}).",
)
_DATA = (
    "Write an SQL query: tables for {record} with columns {keys}; the ten newest ones.",
    "Write the SQL to create a table for {record} with the columns {keys} and useful indexes.",
    "Write a Python dataclass for {record} with {keys} and a method that loads it from JSON.",
    "Write a TypeScript interface for {record} with {keys} and a function that validates it.",
    "Write a Rust struct for {record} with {keys} that can be serialized with serde.",
    "Write a small FastAPI router that lists, adds and deletes {record} ({keys}).",
)
_TOOL = (
    "Write {tool} and explain it briefly.",
    "Give me {tool}.",
)


def built_in_prompts(seed: int = 0) -> list[ChatPrompt]:
    """All of them, shuffled by `seed`."""
    texts = list(dict.fromkeys(_texts(random.Random(seed))))
    random.Random(seed).shuffle(texts)
    return [ChatPrompt(turns=(Turn(role="user", content=text),)) for text in texts]


def _texts(pick: random.Random) -> Iterator[str]:
    for i, (plain, task) in enumerate(TASKS):
        for turn in range(3):
            language = "Python" if (i + turn) % 3 == 0 else pick.choice(LANGUAGES)
            template = _FUNCTION[(i + turn * 2) % len(_FUNCTION)]
            yield template.format(language=language, task=task, plain=plain)
    for i, thing in enumerate(THINGS):
        template = _CLASS[i % len(_CLASS)]
        yield template.format(thing=thing, language=pick.choice(TYPES))
    # All of them: prose is what drafts guess worst.
    yield from (template.format(concept=concept) for concept in CONCEPTS for template in _EXPLAIN)
    for i, code in enumerate(SNIPPETS):
        for turn in range(5):
            yield _SNIPPET[(i * 2 + turn) % len(_SNIPPET)].format(code=f"```python\n{code}```")
    for i, (record, keys) in enumerate(RECORDS):
        yield _JSON[i % len(_JSON)].format(record=record, keys=keys)
        yield _JSON[(i + 1) % len(_JSON)].format(record=record, keys=keys)
        for turn in range(2):
            yield _DATA[(i + turn * 3) % len(_DATA)].format(record=record, keys=keys)
    for i, tool in enumerate(TOOLS):
        yield _TOOL[i % len(_TOOL)].format(tool=tool)
