"""Which characters belong to which token: spans under any grouping, and what is never told."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import TextDelta, TokenKind
from engine.stream_text import StreamText
from engine.telling import Telling
from engine.tokenizer_files import text_decoder

from .tiny_tokenizers import byte_level

TOKENIZER = byte_level()
DECODE = text_decoder(TOKENIZER)
STOP = TOKENIZER.get_vocab_size() + 1
KINDS: tuple[TokenKind, ...] = ("accepted", "recovered", "bonus", "plain")

tokens_of = st.one_of(
    st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=60),
    st.text(max_size=40).map(lambda text: TOKENIZER.encode(text).ids),
)
groups = st.lists(st.integers(1, 9), max_size=70)
stops = st.lists(st.text("ab\n é", min_size=1, max_size=3), max_size=2)


def kinds_of(tokens: Sequence[int]) -> list[TokenKind]:
    return [KINDS[at % len(KINDS)] for at in range(len(tokens))]


def told(tokens: Sequence[int], sizes: Sequence[int], stop: Sequence[str]) -> list[TextDelta]:
    """The deltas of `tokens`, said in rounds of `sizes` and then one by one."""
    telling = Telling(StreamText(DECODE, stop), frozenset({STOP}))
    kinds, at, deltas = kinds_of(tokens), 0, []
    for size in [*sizes, *[1] * len(tokens)]:
        deltas.append(telling.say(tokens[at : at + size], kinds[at : at + size]))
        at += size
    deltas.append(telling.rest())
    found = [delta for delta in deltas if delta is not None]
    assert telling.text == "".join(delta.text for delta in found)
    assert telling.rest() is None
    return found


@given(tokens=tokens_of, sizes=groups, stop=stops)
@settings(max_examples=200, deadline=None)
def test_every_token_is_told_once_and_in_order(
    tokens: list[int], sizes: list[int], stop: list[str]
) -> None:
    deltas = told(tokens, sizes, stop)
    assert all(delta.text for delta in deltas)
    assert all(len(delta.kinds) == len(delta.spans) for delta in deltas)
    assert all(sum(delta.spans) <= len(delta.text) for delta in deltas)
    kinds = [kind for delta in deltas for kind in delta.kinds]
    assert kinds == kinds_of(tokens)[: len(kinds)]


@given(tokens=tokens_of, sizes=groups)
@settings(max_examples=200, deadline=None)
def test_each_tokens_characters_are_those_that_it_completed(
    tokens: list[int], sizes: list[int]
) -> None:
    """Whatever the grouping: what a token adds to the final text is its span."""
    alone = StreamText(DECODE)
    wanted = [len(alone.push([token])) for token in tokens]
    deltas = told(tokens, sizes, [])
    spans = [span for delta in deltas for span in delta.spans]
    assert spans == wanted[: len(spans)]
    assert not any(wanted[len(spans) :]), "only tokens without text go untold"


@given(tokens=tokens_of, sizes=groups)
@settings(max_examples=100, deadline=None)
def test_only_text_that_was_held_back_goes_beyond_the_spans(
    tokens: list[int], sizes: list[int]
) -> None:
    *before, last = told(tokens, sizes, []) or [TextDelta(text="", kinds=(), spans=())]
    assert all(sum(delta.spans) == len(delta.text) for delta in before)
    assert len(last.text) - sum(last.spans) <= 1, "half a character at the very end"


def test_a_token_whose_text_waits_is_told_with_the_text() -> None:
    telling = Telling(StreamText(DECODE), frozenset())
    (shown, _), *_ = TOKENIZER.pre_tokenizer.pre_tokenize_str("é")
    first, second = (TOKENIZER.token_to_id(mark) for mark in shown)
    assert telling.say([first], ["accepted"]) is None
    delta = telling.say([second], ["bonus"])
    assert delta == TextDelta(text="é", kinds=("accepted", "bonus"), spans=(0, 1))


def test_the_beginning_of_a_stop_string_belongs_to_the_token_told_last() -> None:
    telling = Telling(StreamText(DECODE, ["x)END"]), frozenset())
    x, bracket = TOKENIZER.encode("x").ids[0], TOKENIZER.encode(")").ids[0]
    assert telling.say([x, bracket], ["accepted", "recovered"]) is None
    assert telling.rest() == TextDelta(text="x)", kinds=("accepted", "recovered"), spans=(0, 0))


def test_a_stop_token_is_not_told() -> None:
    telling = Telling(StreamText(DECODE), frozenset({STOP}))
    x = TOKENIZER.encode("x").ids[0]
    assert telling.say([x, STOP], ["accepted", "bonus"]) == TextDelta(
        text="x", kinds=("accepted",), spans=(1,)
    )


def test_nothing_behind_a_stop_string_is_told() -> None:
    telling = Telling(StreamText(DECODE, [";"]), frozenset())
    x, semicolon = TOKENIZER.encode("x").ids[0], TOKENIZER.encode(";").ids[0]
    delta = telling.say([x, semicolon, x, x], ["accepted", "accepted", "accepted", "bonus"])
    assert delta == TextDelta(text="x", kinds=("accepted", "accepted"), spans=(1, 0))
    assert telling.stopped
    assert telling.say([x], ["plain"]) is None
