"""Brackets and strings of a piece of code, read without a grammar.

A scanner that any language with a row in `lsp.languages` gets: fast, forgiving, and able to start
in the middle of a file. It knows no document and no block. What it can't know (a nested comment, a
language's odd quotes) costs a wrong bracket at most, and callers only compare counts.

Invariant: scanning a text in two pieces, the state of the first handed to the second, ends as
scanning it whole does, if no delimiter is torn.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from lsp.languages import Language

_REGEX = r"(?<=[(,=:\[!&|?{};])[ \t]*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*"
"""Only where an operand may stand; else a slash divides."""

CLOSERS = {")": "(", "]": "[", "}": "{"}


class Lexed(Struct, frozen=True, kw_only=True):
    """Where a scan has come to."""

    stack: str = ""
    """Brackets that are open, outermost first."""
    quote: str = ""
    """What ends the string or long comment that the text is in."""
    comment: bool = False
    """What the text is in is a comment."""
    faults: int = 0
    """Closing brackets that close nothing, openers that another bracket's closer jumped over, and
    strings that their line's end cut off."""
    closed: int = 0
    """The fewest brackets that were open at any moment."""
    stray: tuple[int, ...] = ()
    """Offsets of the brackets that close something opened before the text, or nothing."""

    @property
    def cost(self) -> int:
        """How far from balanced: faults and brackets left open."""
        return self.faults + len(self.stack) + (1 if self.quote and not self.comment else 0)


START = Lexed()


def scan(text: str, language: Language, start: Lexed = START) -> Lexed:
    """Read on from a state. `stray` counts from the start of this text."""
    reader = _Reader(text, language, start)
    reader.run()
    stack = "".join(reader.stack)
    return Lexed(
        stack=stack,
        quote=reader.quote,
        comment=reader.comment,
        faults=reader.faults,
        closed=reader.lowest,
        stray=tuple(reader.stray),
    )


def plain_newlines(text: str) -> str:
    """The text with `\\n` for every line end of the protocol."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class _Reader:
    """One scan under way."""

    def __init__(self, text: str, language: Language, start: Lexed) -> None:
        self.text = text
        self.language = language
        self.stack = list(start.stack)
        self.quote, self.comment = start.quote, start.comment
        self.faults = start.faults
        self.lowest = len(start.stack)
        self.stray: list[int] = []

    def run(self) -> None:
        tokens = _tokens(self.language)
        at = self._to_end_of_string(0) if self.quote else 0
        while at < len(self.text):
            match = tokens.search(self.text, at)
            if match is None:
                return
            at = match.end()
            if not self._took(match.group(), match.start()):
                at = self._to_end_of_string(at)

    def _took(self, token: str, at: int) -> bool:
        """Take a bracket or a character; False if a string or comment was entered instead."""
        if token in "([{":
            self.stack.append(token)
        elif token in CLOSERS:
            self._close(CLOSERS[token], at)
        elif token in self.language.comments:
            self.quote, self.comment = "\n", True
            return False
        elif token in self.language.quotes or token in self.language.long_quotes:
            self.quote, self.comment = token, False
            return False
        else:
            end = dict(self.language.long_comments).get(token)
            if end is not None:
                self.quote, self.comment = end, True
                return False
        return True

    def _close(self, opener: str, at: int) -> None:
        if opener not in self.stack:
            self.faults += 1
            self.stray.append(at)
            return
        while self.stack.pop() != opener:
            self.faults += 1
        if len(self.stack) < self.lowest:
            self.lowest = len(self.stack)
            self.stray.append(at)

    def _to_end_of_string(self, at: int) -> int:
        """The offset behind the string or comment that `at` lies in."""
        one_line = self.quote in self.language.quotes or (self.comment and self.quote == "\n")
        for match in _string_ends(self.quote, one_line, not self.comment).finditer(self.text, at):
            token = match.group()
            if token.startswith("\\"):
                continue
            if token != self.quote:
                self.faults += 1
            self.quote, self.comment = "", False
            return match.end()
        return len(self.text)


@lru_cache(maxsize=64)
def _tokens(language: Language) -> re.Pattern[str]:
    """Whatever may start a string or a comment, and the brackets."""
    words = [*language.long_quotes, *language.quotes, *language.comments]
    words += [start for start, _ in language.long_comments]
    words.sort(key=len, reverse=True)
    choices = [re.escape(word) for word in words]
    if language.regexes:
        choices.insert(0, _REGEX)
    if language.chars:
        choices.insert(0, r"'(?:\\[^\n]{1,8}?|[^'\\\n])'")
    return re.compile("|".join([*choices, r"[()\[\]{}]"]))


@lru_cache(maxsize=64)
def _string_ends(quote: str, one_line: bool, escapes: bool) -> re.Pattern[str]:
    choices = [r"\\[\s\S]"] if escapes else []
    choices.append(re.escape(quote))
    if one_line and quote != "\n":
        choices.append(r"\n")
    return re.compile("|".join(choices))
