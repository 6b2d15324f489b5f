"""A place in a source that an answer follows, kept through what the answer changes.

While the answer says what the source says, the place moves along. At the first token that differs a
change begins, and each token of it tells more about where the source goes on: at the end of a known
replacement, after a token that stands a little further on (what lies between was replaced or left
out), or else, as a guess, right behind the token that differed. Two tokens in a row that agree end
the change, which is then learned (`changes`).

Invariant: `ahead` never says what its source does not, but for replacements seen in this answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from engine.draft.changes import Changes, Stretch
from engine.draft.ngrams import END, common_suffix

Standing = Literal["along", "known", "seen", "guess", "lost"]
"""Follows without doubt; inside a known replacement; one token agrees; only one token of a change
is known; nothing agrees."""

REACH: Final = (0, 16, 48, 256)
"""How far from where it should go on the source is searched for so many agreeing tokens."""
LONGEST_CHANGE: Final = 64
"""A change that lasts longer is none: the answer has left the source."""


class Place:
    """Where an answer stands in `source`."""

    def __init__(self, source: Sequence[int], at: int, changes: Changes, *, agreed: int) -> None:
        """The next token is expected to be `source[at]`, after `agreed` tokens that were."""
        self.source = source
        self.at = at
        self.run = agreed
        """Tokens followed since the last change."""
        self.total = agreed
        """Tokens followed in all."""
        self.changed = 0
        """Changes got over."""
        self.standing: Standing = "along"
        self._changes = changes
        self._start = at  # of the change, in the source
        self._said: list[int] = []  # by the answer since then
        self._rest: Stretch = ()  # of a known replacement

    @property
    def gone(self) -> bool:
        """Whether the answer has left the source for good."""
        return self.standing != "along" and len(self._said) > LONGEST_CHANGE

    def follow(self, token: int, limit: int) -> None:
        """Take in the answer's next token; only the source's first `limit` tokens can be meant."""
        if self.standing == "along":
            if self.at < limit and self.source[self.at] == token:
                self._changes.kept(self.source, self.at)
                self.at += 1
                self.run += 1
                self.total += 1
                return
            self._start, self._said = min(self.at, limit), []
        if not self.gone:
            self._said.append(token)
            self._search(limit)

    def ahead(self, most: int) -> list[int]:
        """Up to `most` tokens that should come next, known replacements made."""
        source, at = self.source, self.at
        tokens = list(self._rest)
        while len(tokens) < most:
            replaced = self._changes.foreseen(source, at)
            if replaced is not None:
                tokens += replaced[1]
                at += replaced[0]
                continue
            # Behind its end the answer's own text goes on into the draft: a period repeats.
            beyond = at - len(source)
            if beyond >= len(tokens):
                break
            token = source[at] if beyond < 0 else tokens[beyond]
            if token == END:
                break
            tokens.append(token)
            at += 1
        return tokens[:most]

    def _search(self, limit: int) -> None:
        """Find where the source goes on after what was said since the change began."""
        said, start = self._said, self._start
        self._rest = ()
        known = self._changes.begun(self.source, start, said)
        if known is not None:
            skipped, new = known
            self.standing, self.at, self._rest = "known", start + skipped, new[len(said) :]
            if not self._rest:
                self._over(self.at, 0)
            return
        length, end = self._agreeing(limit)
        if length >= 2:
            self._over(end, min(length, end - start))
        elif length:
            self.standing, self.at = "seen", end
        else:
            self.standing = "guess" if len(said) == 1 else "lost"
            self.at = min(start + 1, limit)

    def _over(self, at: int, agreed: int) -> None:
        """The change ended `agreed` tokens ago; the source goes on at `at`."""
        new = self._said[: len(self._said) - agreed]
        self._changes.learn(self.source, self._start, at - agreed, new)
        self.standing, self.at, self.run = "along", at, agreed
        self.total += agreed
        self.changed += 1

    def _agreeing(self, limit: int) -> tuple[int, int]:
        """How many of the last tokens said stand in the source near the change, and the position
        behind them: the most tokens, of equals the nearest to where the source should go on if
        something was put in, or replaced token by token."""
        said, start, source = self._said, self._start, self.source
        replaced = start + len(said)
        best, best_key = (0, start), (0, 0)
        # After more than one token the last may repeat what stands before a line that was put in.
        at = max(0, start - 1) if len(said) > 1 else start
        # The last token of all may be the one that was said, in the answer's own text.
        stop = min(limit, len(source) - 1, replaced + REACH[-1])
        while True:
            try:
                at = source.index(said[-1], at, stop) + 1
            except ValueError:
                return best
            length = common_suffix(source, at, said, len(said))
            far = min(abs(at - replaced), abs(at - start))
            key = (length, -far)
            if key > best_key and far <= REACH[min(length, len(REACH) - 1)]:
                best, best_key = (length, at), key
