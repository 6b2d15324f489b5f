"""Going on from an unfinished assistant's message: in every template, from any token border."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.protocol import ChatPrompt, Finished, GenerateRequest, SamplingParams, Started, Turn
from engine.text import TextCodec

from .paced import PacedModel, with_model
from .stream_rules import check_stream
from .test_text import CHATML, HEADERS, LLAMA_MARKERS, PLAIN_LOOP, UNMARKED
from .tiny_session import answered, ask, codec, finish, text_of, tiny_session
from .tiny_tokenizers import CHAT_MARKERS, byte_fallback, byte_level, save

GEMMA = (
    "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else "
    "m.role %}{{ '<start_of_turn>' + role + '\\n' + m.content | trim + '<end_of_turn>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
BRACKETS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '[INST] ' + m.content | trim + ' [/INST]' }}{% else %}"
    "{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}"
)
THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.role == 'assistant' %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{{ m.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
REFUSING = (
    "{% for m in messages %}{% if m.content | length < 2 %}{{ raise_exception('too short') }}"
    "{% endif %}{{ '<|im_start|>' + m.content + '<|im_end|>' }}{% endfor %}{{ '<|im_start|>' }}"
)
GEMMA_MARKERS = ("<bos>", "<start_of_turn>", "<end_of_turn>")
TEMPLATES = {
    "chatml": (CHATML, CHAT_MARKERS, {"eos_token": "<|im_end|>"}, ""),
    "headers": (HEADERS, LLAMA_MARKERS, {"bos_token": "<|begin_of_text|>"}, ""),
    "loop": (PLAIN_LOOP, CHAT_MARKERS, {}, ""),
    "gemma": (GEMMA, GEMMA_MARKERS, {"bos_token": "<bos>", "eos_token": "<end_of_turn>"}, ""),
    "brackets": (
        BRACKETS, ("<s>", "</s>", "[INST]", "[/INST]"),
        {"bos_token": "<s>", "eos_token": "</s>"}, " ",
    ),
    "thinking": (THINKING, (*CHAT_MARKERS, "<think>", "</think>"), {}, ""),
    "refusing": (REFUSING, CHAT_MARKERS, {}, ""),
}  # fmt: skip
"""Name → template, markers, special texts, and what stands before the words of a message."""

QUESTION = Turn(role="user", content="What does this function return?")


def open_prompt(said: str, *before: Turn) -> ChatPrompt:
    return ChatPrompt(turns=(*before, QUESTION, Turn(role="assistant", content=said)))


@pytest.fixture(scope="module", params=TEMPLATES)
def templated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TextCodec, str]:
    """A codec with each of the templates, and its lead."""
    template, markers, texts, lead = TEMPLATES[request.param]
    folder: Path = tmp_path_factory.mktemp("open") / "m"
    tokenizer = byte_level(markers, UNMARKED)
    return TextCodec.from_folder(save(folder, tokenizer, template=template, config=texts)), lead


@pytest.mark.parametrize(
    "said", ["def load", "  return x", "It\n\n", "\n\nso", "a </s> b <|im_end|> c", "Grüße 👩‍💻"]
)
def test_an_open_message_follows_the_generation_prompt_and_has_no_end(
    templated: tuple[TextCodec, str], said: str
) -> None:
    codec, lead = templated
    begun = codec.chat_ids(ChatPrompt(turns=(QUESTION,)))
    ids = codec.chat_ids(open_prompt(said))
    assert ids[: len(begun)] == begun
    assert codec.decode(ids[len(begun) :]) == lead + said
    assert codec.never_ids.isdisjoint(ids[len(begun) :])


def test_a_message_that_says_nothing_yet_is_just_begun(templated: tuple[TextCodec, str]) -> None:
    codec, _ = templated
    assert codec.chat_ids(open_prompt("")) == codec.chat_ids(ChatPrompt(turns=(QUESTION,)))


def test_earlier_messages_are_closed(templated: tuple[TextCodec, str]) -> None:
    codec, lead = templated
    earlier = (QUESTION, Turn(role="assistant", content="It returns x."))
    begun = codec.chat_ids(ChatPrompt(turns=(*earlier, QUESTION)))
    ids = codec.chat_ids(open_prompt("go on", *earlier))
    assert ids[: len(begun)] == begun
    assert codec.decode(ids[len(begun) :]) == lead + "go on"


def test_what_a_model_says_in_ordinary_added_tokens_is_encoded_as_them(tmp_path: Path) -> None:
    tokenizer = byte_level(CHAT_MARKERS, ("<think>", "</think>"))
    where = save(tmp_path / "m", tokenizer, template=THINKING)
    codec = TextCodec.from_folder(where)
    ids = codec.chat_ids(open_prompt("<think>hm <|im_end|>"))
    assert ids.count(tokenizer.token_to_id("<think>")) == 1
    assert codec.decode(ids).endswith("hm <|im_end|>")


def test_a_sentencepiece_message_goes_on_with_its_spaces(tmp_path: Path) -> None:
    """What stands after a word begins with the space that the vocabulary writes before it."""
    tokenizer = byte_fallback(merges=(("▁", "a"), ("a", "b")))
    template = BRACKETS.replace("bos_token", "''").replace("eos_token", "''")
    codec = TextCodec.from_folder(save(tmp_path / "m", tokenizer, template=template))
    prompt = codec.chat_ids(ChatPrompt(turns=(QUESTION,)))
    said = codec.chat_ids(open_prompt("a"))[len(prompt) :]
    assert [tokenizer.id_to_token(i) for i in said] == ["▁a"]
    word = tokenizer.token_to_id("▁a")
    assert codec.stream(after=said).push([word]) == " a"
    assert codec.stream().push([word]) == "a"


class Favouring(PacedModel):
    """Says one word whenever it is asked."""

    word = 0

    def logits(self, hidden: Tensor, vocab: int | None = None) -> Tensor:
        scores = super().logits(hidden, vocab)
        scores[:, self.word] += 1e4
        return scores


def test_an_answer_that_goes_on_begins_with_its_space(tmp_path: Path) -> None:
    tokenizer = byte_fallback(merges=(("▁", "a"), ("a", "b")))
    template = BRACKETS.replace("bos_token", "''").replace("eos_token", "''")
    model = Favouring()
    model.word = tokenizer.token_to_id("▁a")
    loaded = replace(
        with_model(model),
        text=TextCodec.from_folder(save(tmp_path / "m", tokenizer, template=template)),
    )
    short = SamplingParams(max_tokens=3)
    begun = GenerateRequest(id="1", prompt=ChatPrompt(turns=(QUESTION,)), sampling=short)
    gone_on = GenerateRequest(id="2", prompt=open_prompt("a b"), sampling=short)
    assert text_of(answered(tiny_session(loaded), begun)) == "a a a"
    assert text_of(answered(tiny_session(loaded), gone_on)) == " a a a"


# The model's own words


QUESTIONS = [f"What does line {number} do?" for number in range(12)]


def continued(question: str, said: str, tokens: int = 40) -> GenerateRequest:
    turns = (Turn(role="user", content=question), Turn(role="assistant", content=said))
    return GenerateRequest(
        id="rest", prompt=ChatPrompt(turns=turns), sampling=SamplingParams(max_tokens=tokens)
    )


def borders(tokens: Sequence[int]) -> list[tuple[int, str]]:
    """Counts of tokens that end with a whole character, before the first marker, and their text."""
    words = list(takewhile(lambda token: token not in codec().never_ids, tokens))
    texts = [(count, codec().decode(words[:count])) for count in range(1, len(words))]
    return [(count, text) for count, text in texts if not text.endswith("\ufffd")]


def test_from_any_border_the_rest_is_what_it_was_going_to_say() -> None:
    """Whatever the tokens: the row still knows how the message was said."""
    compared = 0
    for question in QUESTIONS[:3]:
        session = tiny_session()
        answer = session.start(ask(question))
        whole = text_of(finish(answer))
        for _, said in borders(answer.row.output):
            answered(session, ask(question))  # leaves the whole answer in the row
            events = answered(session, continued(question, said))
            last = check_stream(events)
            assert isinstance(last, Finished)
            assert (said + last.text).startswith(whole)
            started = events[0]
            assert isinstance(started, Started)
            assert started.cached_tokens == started.prompt_tokens - 1
            compared += 1
    assert compared > 20


def test_in_another_process_the_rest_follows_from_the_text_alone() -> None:
    """Where the text is encoded as the model said it, which is what a tokenizer nearly always
    does with what a trained model says."""
    compared = 0
    for question in QUESTIONS:
        whole = tiny_session().start(ask(question))
        text = text_of(finish(whole))
        for count, said in borders(whole.row.output):
            if codec().encode_plain(said) == whole.row.output[:count]:
                rest = answered(tiny_session(), continued(question, said, 40 - count))
                assert said + text_of(rest) == text
                compared += 1
    assert compared > 5


def test_characters_of_several_tokens_are_not_torn() -> None:
    """A message may break off between the bytes of a character; what was told is gone on from."""
    session = tiny_session()
    opened = session.loaded.text.open_chat(open_prompt("ж"))
    torn = codec().encode_plain("ж")
    assert len(torn) > 1, "one id for each byte, or the test shows nothing"
    ids = session.loaded.text.said_ids(opened, [[*torn, torn[0]], [torn[0]]])
    assert ids == torn


vocabulary_ids = st.lists(st.integers(0, 255), min_size=1, max_size=30)


@given(heard=vocabulary_ids, cut=st.integers(0, 40), more=st.text("ab \n", max_size=4))
@settings(max_examples=150, deadline=None)
def test_ids_that_were_heard_read_as_what_was_said(heard: list[int], cut: int, more: str) -> None:
    said = codec().decode(heard)[:cut] + more
    opened = codec().open_chat(open_prompt(said))
    ids = codec().said_ids(opened, [heard, heard[::-1]])
    assert codec().decode(ids) == said
    assert codec().decode(codec().said_ids(opened)) == said


def test_markers_among_what_was_heard_end_it() -> None:
    """Behind the end of a message lies another one, whose words are none of this one's."""
    end = [*codec().encode_plain("x"), next(iter(codec().chat_stop_ids))]
    opened = codec().open_chat(open_prompt("xx"))
    ids = codec().said_ids(opened, [[*end, *codec().encode_plain("x")]])
    assert codec().never_ids.isdisjoint(ids)
    assert codec().decode(ids) == "xx"
