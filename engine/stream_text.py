"""Token ids in, final text out: the incremental detokeniser and the stop strings.

`StreamText` owns what lies between the decoder's tokens and the client's text. It knows no
tokenizer, only a function from ids to text, and decodes a bounded window of recent ids each time,
so the cost of an answer grows linearly with its length.

Invariants: text once returned never changes; all `push` results and the `flush` joined equal the
decoding of all ids at once, or, when a stop string came up, that text cut before it; neither
depends on how the ids were grouped into pushes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_UNFINISHED = "\ufffd"
_WINDOW_IDS = 48
_KEPT_IDS = 16  # four characters even where each takes four ids


class StreamText:
    """One answer's text as it grows.

    `decode` must map ids to text in a way that only its last character can still change when ids
    are appended, and only from U+FFFD (byte-level and byte-fallback vocabularies do); a leading
    space that it strips from the whole is fine. Ids in `skip` leave no text. `after` are ids whose
    text was told before: what comes reads as their continuation.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stop_strings: Sequence[str] = (),
        skip: Collection[int] = frozenset(),
        after: Sequence[int] = (),
    ) -> None:
        if "" in stop_strings:
            raise RequestError(
                "bad_setting", "A stop string is empty", "Leave it out, or give it some text."
            )
        self._decode = decode
        self._stops = tuple(stop_strings)
        self._longest = max(map(len, self._stops), default=1)
        self._skip = frozenset(skip)
        self._window = [i for i in after if i not in self._skip][-_KEPT_IDS:]
        # Characters of the window's text that are already out of it.
        self._shown = len(decode(self._window)) if self._window else 0
        self._held = ""  # final characters that may be the beginning of a stop string
        self._stopped: str | None = None

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text: of several, the one completed first."""
        return self._stopped

    @property
    def settled(self) -> bool:
        """Whether all ids so far have become text: nothing is held back."""
        return not self._held and self._shown == len(self._decode(self._window))

    def push(self, ids: Sequence[int]) -> str:
        """The text that became final with these ids; empty after a stop string."""
        if self._stopped is not None:
            return ""
        self._window.extend(i for i in ids if i not in self._skip)
        text = self._decode(self._window)
        final = len(text) - text.endswith(_UNFINISHED)
        fresh = text[self._shown : final]
        self._shown = max(self._shown, final)
        if len(self._window) > _WINDOW_IDS:
            self._slide(text)
        return self._release(fresh)

    def flush(self) -> str:
        """What was held back, once no more ids will come. Calling it twice returns nothing new."""
        if self._stopped is not None:
            return ""
        text = self._decode(self._window)
        fresh, self._shown = text[self._shown :], len(text)
        out = self._release(fresh)
        if self._stopped is None:
            out, self._held = out + self._held, ""
        return out

    def _slide(self, text: str) -> None:
        """Forget old ids; the kept ones must go on to give the same text without them.

        A cut inside a character leaves at most three bytes of it behind, so from the fourth
        character on the kept ids read as they did before.
        """
        tail = self._decode(self._window[-_KEPT_IDS:])
        if len(tail) > 3:
            del self._window[:-_KEPT_IDS]
            self._shown -= len(text) - len(tail)

    def _release(self, fresh: str) -> str:
        """Pass on all of the held and fresh text that can't belong to a stop string."""
        self._held += fresh
        found = [(at + len(s), at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            _, at, self._stopped = min(found)
            out, self._held = self._held[:at], ""
            return out
        keep = self._possible_beginning()
        cut = len(self._held) - keep
        out, self._held = self._held[:cut], self._held[cut:]
        return out

    def _possible_beginning(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        for size in range(min(self._longest - 1, len(self._held)), 0, -1):
            end = self._held[-size:]
            if any(s.startswith(end) for s in self._stops):
                return size
        return 0
