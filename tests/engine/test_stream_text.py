"""Text that is returned never changes, whatever the bytes, the chunks and the stop strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import RequestError
from engine.stream_text import StreamText
from engine.tokenizer_files import text_decoder

from .tiny_tokenizers import byte_fallback, byte_level

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKENIZER = byte_level()
DECODE = text_decoder(TOKENIZER)
SPACED = byte_fallback(merges=(("▁", "a"), ("a", "b")))
DECODE_SPACED = text_decoder(SPACED)
SAMPLE = "Grüße, 你好世界 👩‍💻👍🏽 e\u0301a\u0308 नमस्ते \U0001f1e9\U0001f1ea\r\n\tx = '\x00'"

vocabulary_ids = st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=120)
spaced_ids = st.lists(st.integers(3, SPACED.get_vocab_size() - 1), max_size=120)
text_ids = st.text(max_size=60).map(lambda text: TOKENIZER.encode(text).ids)
cuts = st.lists(st.integers(1, 40), max_size=130)


def streamed(stream: StreamText, ids: Sequence[int], sizes: Sequence[int] = ()) -> str:
    """All text of `ids`, pushed in chunks of `sizes`, then one by one."""
    parts, at = [], 0
    for size in sizes:
        parts.append(stream.push(ids[at : at + size]))
        at += size
    parts += [stream.push([i]) for i in ids[at:]]
    return "".join(parts) + stream.flush()


def cut_at_first_completed(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The rule, read character by character."""
    for end in range(1, len(text) + 1):
        ended = [s for s in stops if text[:end].endswith(s)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(ids=st.one_of(vocabulary_ids, text_ids), sizes=cuts)
@settings(max_examples=300, deadline=None)
def test_byte_level_pieces_join_to_the_whole(ids: list[int], sizes: list[int]) -> None:
    assert streamed(StreamText(DECODE), ids, sizes) == DECODE(ids)


@given(ids=spaced_ids, sizes=cuts)
@settings(max_examples=300, deadline=None)
def test_byte_fallback_pieces_join_to_the_whole(ids: list[int], sizes: list[int]) -> None:
    assert streamed(StreamText(DECODE_SPACED), ids, sizes) == DECODE_SPACED(ids)


@given(
    ids=vocabulary_ids,
    sizes=cuts,
    stops=st.lists(st.text("ab\n �é<|>", min_size=1, max_size=4), max_size=3),
    word=st.sampled_from(["", "ab\n", "<|>", "aab"]),
)
@settings(max_examples=300, deadline=None)
def test_a_stop_string_cuts_the_same_text_in_any_chunking(
    ids: list[int], sizes: list[int], stops: list[str], word: str
) -> None:
    ids = ids[:40] + TOKENIZER.encode(word + "a" + word).ids + ids[40:]
    stream = StreamText(DECODE, stops)
    text = streamed(stream, ids, sizes)
    assert (text, stream.stopped) == cut_at_first_completed(DECODE(ids), stops)


def test_every_pushed_character_is_final() -> None:
    ids = TOKENIZER.encode(SAMPLE * 5).ids
    stream, shown = StreamText(DECODE), ""
    for i in ids:
        fresh = stream.push([i])
        assert "\ufffd" not in fresh
        shown += fresh
        assert (SAMPLE * 5).startswith(shown)
    assert shown + stream.flush() == SAMPLE * 5


def bytes_of(character: str) -> list[int]:
    """One id for each byte of the character."""
    (shown, _), *_ = TOKENIZER.pre_tokenizer.pre_tokenize_str(character)
    return [TOKENIZER.token_to_id(mark) for mark in shown]


def test_an_unfinished_character_waits_and_shows_up_at_the_end() -> None:
    stream = StreamText(DECODE)
    half = bytes_of("é")[:1]
    assert stream.push(TOKENIZER.encode("caf").ids) == "caf"
    assert stream.push(half) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_bytes_that_form_no_character_do_not_hold_up_the_text() -> None:
    stream = StreamText(DECODE)
    broken = bytes_of("é")[1:]
    shown = "".join(stream.push(broken) for _ in range(500))
    assert shown == "\ufffd" * 499
    assert stream.push(TOKENIZER.encode("x").ids) == "\ufffdx"


@pytest.mark.parametrize("early", [1, 2, 3])
def test_a_character_may_be_torn_apart_by_ids_without_text(early: int) -> None:
    nothing = [TOKENIZER.get_vocab_size() + 5] * 100
    thumb = bytes_of("👍")
    ids = TOKENIZER.encode("x" * 99).ids + thumb[:early] + nothing + thumb[early:]
    assert streamed(StreamText(DECODE), ids) == "x" * 99 + "👍"


def test_a_spelled_byte_run_shows_each_character_as_soon_as_it_is_complete() -> None:
    stream = StreamText(DECODE_SPACED)
    run = [SPACED.token_to_id(f"<0x{b:02X}>") for b in "你好".encode()]
    assert [stream.push([i]) for i in run] == ["", "", "你", "", "", "好"]


def test_a_stop_string_across_tokens_is_held_back_and_cut() -> None:
    stream = StreamText(DECODE, ["\n\nclass"])
    ids = [TOKENIZER.encode(part).ids for part in ("x", "\n", "\n", "cl", "ass", " Y")]
    assert [stream.push(part) for part in ids] == ["x", "", "", "", "", ""]
    assert stream.stopped == "\n\nclass"
    assert stream.flush() == ""


def test_held_text_is_passed_on_when_it_was_no_stop_string() -> None:
    stream = StreamText(DECODE, ["END"])
    assert stream.push(TOKENIZER.encode("EN").ids) == ""
    assert stream.push(TOKENIZER.encode("TER").ids) == "ENTER"
    assert stream.push(TOKENIZER.encode("E").ids) == ""
    assert stream.flush() == "E"
    assert stream.stopped is None


def test_skipped_ids_leave_no_text() -> None:
    skip = TOKENIZER.encode("def").ids
    stream = StreamText(DECODE, skip=skip)
    assert stream.push(skip + TOKENIZER.encode("x").ids + skip) == "x"


def test_the_cost_grows_with_the_length_only() -> None:
    decoded = 0

    def counting(ids: Sequence[int]) -> str:
        nonlocal decoded
        decoded += len(ids)
        return DECODE(ids)

    ids = TOKENIZER.encode(SAMPLE * 200).ids
    assert streamed(StreamText(counting), ids) == SAMPLE * 200
    assert decoded < 60 * len(ids)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="empty"):
        StreamText(DECODE, ["x", ""])
