"""The tokenizer edge: prompts become ids, ids become text, and the sets of ids that end an answer.

`TextCodec` reads a checkpoint's folder with the `tokenizers` package alone; transformers and torch
stay out, a warm start has no time for them. It knows no model and no decoding.

Invariant: what a user wrote (a turn, a snippet, a file) never becomes a marker id, whatever it
spells; only a template or a layout puts markers into a prompt. Text without marker spellings gets
exactly the ids that transformers gives it.
"""

from __future__ import annotations

import re
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
from tokenizers import AddedToken, Tokenizer

from engine.chat_template import ChatTemplate, turns_with_snippets
from engine.fill_layouts import FILL_MARKERS, choose_layout, fill_pieces, needed_markers
from engine.protocol import ChatPrompt, FillPrompt, RequestError, Turn
from engine.stream_text import StreamText
from engine.tokenizer_files import TokenizerFiles, read_tokenizer_files, text_decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_CHAT_ENDS = frozenset({
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|eot|>",
    "<|end_of_turn|>", "<end_of_turn>", "<turn|>", "<|end|>", "<|return|>", "<|EOT|>",
    "<｜end▁of▁sentence｜>", "<|user|>", "<|observation|>", "[/INST]",
})  # fmt: skip
"""Markers that end an assistant's message in one family or another, where the vocabulary has them
as added tokens. `</s>` is not among them: it is HTML in some vocabularies, and the configuration
names it where it is an end."""

_BARRED = re.compile(r"<[|｜].*[|｜]>")
"""How a marker looks even where the tokenizer's file forgot to call it special."""

_STAND_INS = range(0xF0000, 0xFFFFE)  # characters for private use
_LEAD_IN = "☺"  # a character that no vocabulary merges with its neighbours


class OpenChat(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that ends inside an assistant's message."""

    ids: list[int]
    """Up to where the message begins."""
    said: str
    """What it says so far."""
    lead: str
    """White space that stands between the two when the template writes the message."""


class TextCodec:
    """One checkpoint's way between text and ids. Safe to use from several threads."""

    def __init__(self, files: TokenizerFiles) -> None:
        tokenizer = files.tokenizer
        self._tokenizer = tokenizer
        source = files.template or ""
        self._template = ChatTemplate(source, files.special_texts) if source else None
        self._leading_ids = files.leading_ids
        self._lock = Lock()  # the tokenizer's switch for special tokens is one for all callers
        self._layout = choose_layout(lambda text: tokenizer.token_to_id(text) is not None)
        _list_markers(tokenizer, () if self._layout is None else needed_markers(self._layout))
        added: dict[int, AddedToken] = tokenizer.get_added_tokens_decoder()
        hidden = {i: t.content for i, t in added.items() if _is_marker(t)}
        named = [t.content for t in added.values() if t.content in source]
        self._said = _spelling(hidden.values())
        self._typed = _spelling([*hidden.values(), *named])
        _make_special(tokenizer, self._typed)
        self._marker_ids = {text: i for i, text in hidden.items()}
        ends = (i for i, t in added.items() if t.content in _CHAT_ENDS)
        self.never_ids: frozenset[int] = files.eos_ids.union(hidden)
        """Ids that must not show in any text."""
        self.chat_stop_ids: frozenset[int] = files.eos_ids.union(ends)
        """Ids that end an assistant's message."""
        self.fill_stop_ids: frozenset[int] = self.chat_stop_ids | self.never_ids
        """Ids that end a fill: those of a message and every marker, which no code contains."""
        unknown = {
            files.special_texts.get("unk_token"),
            getattr(tokenizer.model, "unk_token", None),
        }
        self._guarded = frozenset(i for i, text in hidden.items() if text not in unknown)
        self._spaced = _first_token(tokenizer).startswith(("▁", "Ġ"))
        self._decode = text_decoder(tokenizer)

    @classmethod
    def from_folder(cls, folder: Path) -> TextCodec:
        """Read a checkpoint's tokenizer files.

        Raises `ModelError` when the tokenizer is missing or unreadable.
        """
        return cls(read_tokenizer_files(folder))

    @property
    def can_chat(self) -> bool:
        """The checkpoint has a chat template."""
        return self._template is not None

    @property
    def can_fill(self) -> bool:
        """The vocabulary has the markers of a known fill-in-the-middle layout."""
        return self._layout is not None

    def chat_ids(self, prompt: ChatPrompt) -> list[int]:
        """The conversation as ids, ending where the assistant's next words come.

        Raises `RequestError` without a chat template, without a question, or when the template
        refuses the conversation; `ModelError` when the template itself fails.
        """
        opened = self.open_chat(prompt)
        return [*opened.ids, *self.said_ids(opened)]

    def open_chat(self, prompt: ChatPrompt) -> OpenChat:
        """The conversation up to where the assistant's message begins, and what it says so far.

        Raises as `chat_ids`.
        """
        if self._template is None:
            raise RequestError(
                "no_chat_template",
                "This model has no chat template, so it can't hold a conversation",
                "Completion still works; for chat choose an instruct model.",
            )
        turns, said = turns_with_snippets(prompt), ""
        if turns[-1].role == "assistant":
            turns, said = turns[:-1], turns[-1].content
        disguised, stand_ins = self._disguised(turns)
        ids = self._template_ids(self._template.render(disguised), stand_ins)
        return OpenChat(ids=ids, said=said, lead=self._template.lead(disguised) if said else "")

    def said_ids(self, opened: OpenChat, heard: Iterable[Sequence[int]] = ()) -> list[int]:
        """An unfinished message as ids: as far as possible those of `heard`, sequences of which one
        may be how the model itself said it, and for the rest as the tokenizer would have it."""
        kept = max((self._agreeing(opened.said, ids) for ids in heard), key=len, default=[])
        rest = opened.said[len(self.decode(kept)) :] if kept else opened.lead + opened.said
        parts = enumerate(re.split(f"({self._said.pattern})", rest) if opened.said else ())
        ids = [self._encode(part, plain=at % 2 == 1, joined=True) for at, part in parts if part]
        return [*kept, *chain.from_iterable(ids)]

    def _agreeing(self, said: str, ids: Sequence[int]) -> list[int]:
        """The longest beginning of `ids` that reads as the beginning of `said`."""
        stream, length, best = self.stream(), 0, 0
        for count, token in enumerate(ids, start=1):
            piece = stream.push([token])
            if token in self.never_ids or said[length : length + len(piece)] != piece:
                break
            length += len(piece)
            if stream.settled:
                best = count
        return list(ids[:best])

    def _template_ids(self, rendering: str, stand_ins: Mapping[str, str]) -> list[int]:
        if not stand_ins:
            return self._encode(rendering, plain=False)
        ids: list[int] = []
        for part in re.split(f"([{''.join(stand_ins)}])", rendering):
            plain = part in stand_ins
            ids += self._encode(stand_ins.get(part, part), plain=plain, joined=bool(ids))
        return ids

    def fill_ids(self, prompt: FillPrompt) -> list[int]:
        """The hole's surroundings as ids, in the vocabulary's fill-in-the-middle layout.

        Raises `RequestError` when the vocabulary has none.
        """
        if self._layout is None:
            raise RequestError(
                "no_fill_tokens",
                "This model's vocabulary has no fill-in-the-middle markers",
                "Choose a model trained for filling, such as qwen2.5-coder-0.5b, or ask in chat.",
            )
        ids = list(self._leading_ids)
        for piece in fill_pieces(self._layout, prompt):
            if piece.marker:
                ids.append(self._marker_ids[piece.text])
            else:
                ids += self._encode(piece.text, plain=True, joined=piece.joined)
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """`text` as ids, none of which is a marker."""
        return self._encode(text, plain=True)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; markers leave none, bytes that form no character become U+FFFD."""
        return self._decode([i for i in ids if i not in self.never_ids])

    def stream(self, stop_strings: Sequence[str] = (), after: Sequence[int] = ()) -> StreamText:
        """A fresh incremental decoder for one answer, which goes on from the ids `after`."""
        return StreamText(self._decode, stop_strings, skip=self.never_ids, after=after)

    def _disguised(self, turns: Sequence[Turn]) -> tuple[list[Turn], dict[str, str]]:
        """The turns with a character of private use for each marker spelled in them.

        Also which character stands for what. An assistant's own words may hold markers that a
        template looks for in them, such as the end of its reasoning: those stay.
        """
        free = _unused("".join(turn.content for turn in turns))
        by_marker: dict[str, str] = {}

        def swap(match: re.Match[str]) -> str:
            if match[0] not in by_marker:
                by_marker[match[0]] = next(free)
            return by_marker[match[0]]

        spelled = {"assistant": self._said, "user": self._typed, "system": self._typed}
        out = [
            msgspec.structs.replace(t, content=spelled[t.role].sub(swap, t.content)) for t in turns
        ]
        return out, {character: marker for marker, character in by_marker.items()}

    def _encode(self, text: str, *, plain: bool, joined: bool = False) -> list[int]:
        if joined and self._spaced:
            ids = self._encode_joined(text, plain)
        else:
            ids = self._raw_ids(text, plain)
        if not plain or self._guarded.isdisjoint(ids):
            return ids
        # Ordinary merges can lead to a marker's id; cut inside the spelling, they can't.
        cut = len(text) // 2
        if not cut:
            return []
        halves = self._encode(text[:cut], plain=True, joined=joined)
        return halves + self._encode(text[cut:], plain=True, joined=True)

    def _encode_joined(self, text: str, plain: bool) -> list[int]:
        """Ids without the space that the tokenizer puts before the beginning of a text."""
        lead, ids = self._raw_ids(_LEAD_IN, plain), self._raw_ids(_LEAD_IN + text, plain)
        return ids[len(lead) :] if ids[: len(lead)] == lead else self._raw_ids(text, plain)

    def _raw_ids(self, text: str, plain: bool) -> list[int]:
        with self._lock:
            self._tokenizer.encode_special_tokens = plain
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _is_marker(token: AddedToken) -> bool:
    text = token.content
    known = text in FILL_MARKERS or text in _CHAT_ENDS or _BARRED.fullmatch(text) is not None
    return not text.isspace() and (token.special or known)


def _spelling(markers: Iterable[str]) -> re.Pattern[str]:
    """Matches any of `markers`, the longest first; nothing at all when there is none.

    A leading ▁ is the vocabulary's way to write a space and not part of the spelling.
    """
    texts = {spelled for m in markers if not m.isspace() for spelled in (m, m.lstrip("▁"))}
    longest_first = sorted(texts - {""}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _list_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> None:
    """Make added tokens of markers that the file has only among its ordinary pieces."""
    listed = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokenizer.add_special_tokens(
        [AddedToken(m, normalized=False) for m in markers if m not in listed]
    )


def _make_special(tokenizer: Tokenizer, spelling: re.Pattern[str]) -> None:
    """Put markers under the tokenizer's switch for special tokens, their other traits kept."""
    changed = []
    for token in tokenizer.get_added_tokens_decoder().values():
        if spelling.fullmatch(token.content) and not token.special:
            token.special = True
            changed.append(token)
    tokenizer.add_special_tokens(changed)


def _first_token(tokenizer: Tokenizer) -> str:
    tokens = tokenizer.encode("a", add_special_tokens=False).tokens
    return str(tokens[0]) if tokens else ""


def _unused(text: str) -> Iterator[str]:
    taken = set(text)
    return (c for c in map(chr, _STAND_INS) if c not in taken)
