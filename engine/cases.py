"""The prompts that `verify` and `bench` run: one small set for both, shipped with the engine.

Short ones are written out; the long ones are cut from this package's own sources, which every
installation has and nobody has to download. Pure data, no model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from engine.protocol import ChatPrompt, FillPrompt, Turn

Kind = Literal["chat", "prose", "fill", "edit", "json", "long"]

EDIT_FILE = '''\
"""A small inventory kept in memory."""

from dataclasses import dataclass, field


@dataclass
class Item:
    name: str
    price_cents: int
    quantity: int = 0
    tags: set[str] = field(default_factory=set)


class Inventory:
    """Items by name, with totals and a simple search."""

    def __init__(self) -> None:
        self._items: dict[str, Item] = {}

    def add(self, name: str, price_cents: int, quantity: int = 1) -> Item:
        item = self._items.get(name)
        if item is None:
            item = Item(name=name, price_cents=price_cents)
            self._items[name] = item
        item.quantity += quantity
        return item

    def remove(self, name: str, quantity: int = 1) -> None:
        item = self._items.get(name)
        if item is None:
            raise KeyError(name)
        if quantity > item.quantity:
            raise ValueError(f"only {item.quantity} of {name} left")
        item.quantity -= quantity
        if item.quantity == 0:
            del self._items[name]

    def total_cents(self) -> int:
        return sum(item.price_cents * item.quantity for item in self._items.values())

    def find(self, text: str) -> list[Item]:
        wanted = text.lower()
        return [item for item in self._items.values() if wanted in item.name.lower()]

    def tagged(self, tag: str) -> list[Item]:
        return [item for item in self._items.values() if tag in item.tags]

    def report(self) -> str:
        lines = []
        for item in sorted(self._items.values(), key=lambda item: item.name):
            amount = item.price_cents * item.quantity / 100
            lines.append(f"{item.name:<20} {item.quantity:>4} {amount:>10.2f}")
        lines.append(f"{'total':<25} {self.total_cents() / 100:>10.2f}")
        return "\\n".join(lines)


def main() -> None:
    inventory = Inventory()
    inventory.add("pencil", 120, 10)
    inventory.add("notebook", 450, 3)
    print(inventory.report())
'''
"""Sixty-odd lines whose one method is renamed by the edit case."""

_FILL_FROM, _FILL_TO = "    def report(self) -> str:\n", "\n\ndef main() -> None:\n"
"""The hole of the fill case: the body of a method that uses what the file defines."""
_RECORDS = "\n".join(
    f"{name}, {city}, {year}"
    for name, city, year in (
        ("Ada Lovelace", "London", 1815),
        ("Emmy Noether", "Erlangen", 1882),
        ("Alan Turing", "London", 1912),
        ("Grace Hopper", "New York", 1906),
        ("Kurt Gödel", "Brno", 1906),
        ("Barbara Liskov", "Los Angeles", 1939),
    )
)


_SHORT: tuple[tuple[str, Kind, str], ...] = (
    ("chat-short", "chat", "Write a Python function that checks whether a number is prime."),
    (
        "chat-code",
        "chat",
        "Write a Python class for a least-recently-used cache with get and put in constant time, "
        "with type hints and a short usage example.",
    ),
    (
        "prose",
        "prose",
        "Explain to a new colleague what a race condition is, why it is hard to find, and three "
        "ways to avoid one. Use plain sentences.",
    ),
    (
        "json",
        "json",
        "Turn these lines into a JSON list of objects with the keys name, city and born. Answer "
        f"with the JSON only.\n\n{_RECORDS}",
    ),
)
_EDIT = (
    "Rename the method `total_cents` to `sum_cents` everywhere in this file and return the whole "
    f"file, nothing else.\n\n```python\n{EDIT_FILE}```"
)


class Case(Struct, frozen=True, kw_only=True):
    """One prompt and what it stands for."""

    name: str
    kind: Kind
    prompt: ChatPrompt | FillPrompt


class LeftOut(Struct, frozen=True, kw_only=True):
    """A case that was not run."""

    case: str
    reason: str


def built_in_cases() -> tuple[Case, ...]:
    """All cases, short prompts first."""
    before, rest = EDIT_FILE.split(_FILL_FROM)
    after = rest[rest.index(_FILL_TO) :]
    hole = FillPrompt(prefix=before + _FILL_FROM, suffix=after, path="inventory.py")
    sources = _sources(("decode.py", "verify.py", "draft_length.py", "cache.py"))
    return (
        *(_chat(name, kind, question) for name, kind, question in _SHORT),
        Case(name="fill", kind="fill", prompt=hole),
        _chat("edit-rename", "edit", _EDIT),
        _chat(
            "long-explain",
            "long",
            f"Here are parts of a program.\n\n{sources}\n\nExplain in a few sentences what one "
            "round of decoding does.",
        ),
        _chat(
            "long-edit",
            "long",
            f"Here are parts of a program.\n\n{sources}\n\nReturn the function `accept_greedy` "
            "exactly as it stands there, with the parameter `best` renamed to `choices`.",
        ),
    )


def _chat(name: str, kind: Kind, question: str) -> Case:
    return Case(
        name=name, kind=kind, prompt=ChatPrompt(turns=(Turn(role="user", content=question),))
    )


def _sources(names: tuple[str, ...]) -> str:
    """This package's files, cut to about 3,000 tokens in all."""
    here = Path(__file__).parent
    texts = [f"# {name}\n{(here / name).read_text(encoding='utf-8')}" for name in names]
    return "\n\n".join(texts)[:11_500]
