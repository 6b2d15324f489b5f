"""Sessions and answers on a whole tiny model: events, limits, stops, cancelling, prefix reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.answer import Answer
from engine.config import DraftSettings
from engine.loading import Loaded
from engine.model import Model
from engine.profile import Profile, save_profile
from engine.protocol import (
    Event,
    FillPrompt,
    Finished,
    GenerateRequest,
    Priority,
    RequestError,
    RoundDone,
    RouteChoice,
    SamplingParams,
    Started,
    TextDelta,
)
from engine.session import Session, measured_costs

from .paced import PacedModel
from .stream_rules import check_stream
from .tiny import tiny_architecture, tiny_tensors
from .tiny_heads import random_head
from .tiny_session import (
    answered,
    ask,
    codec,
    fill,
    finish,
    flat_costs,
    text_of,
    tiny_loaded,
    tiny_session,
    vocabulary,
)

MODERATE = settings(max_examples=30, deadline=None, derandomize=True)
ROUTES: list[tuple[RouteChoice, int | None]] = [
    ("plain", None),
    ("auto", None),
    ("copy", 4),
    ("layer_skip", 1),
    ("layer_skip", 5),
]
REPEATING = SamplingParams(max_tokens=40, repetition_penalty=0.5)
"""Tokens seen before are preferred, so that even a random model can be copied from."""


def sampled(seed: int | None = 3, tokens: int = 40) -> SamplingParams:
    return SamplingParams(
        temperature=0.9, top_p=0.95, repetition_penalty=1.1, max_tokens=tokens, seed=seed
    )


def finished(events: Sequence[Event]) -> Finished:
    last = check_stream(events)
    assert isinstance(last, Finished)
    return last


def start_ids(
    session: Session,
    ids: Sequence[int],
    *,
    tokens: int = 20,
    route: RouteChoice = "plain",
    k: int | None = None,
    stop_ids: frozenset[int] = frozenset(),
) -> Answer:
    request = ask(route=route, k=k, sampling=SamplingParams(max_tokens=tokens))
    return session.start_ids(request, list(ids), stop_ids)


def output_of(answer: Answer) -> list[int]:
    finish(answer)
    return answer.row.output


def some_ids(count: int, seed: int = 1) -> list[int]:
    """Ordinary ids: no markers among them."""
    return [(seed * 37 + i * 11) % 250 for i in range(count)]


# Events


@pytest.mark.parametrize(("route", "k"), ROUTES)
@pytest.mark.parametrize("params", [SamplingParams(max_tokens=40), REPEATING, sampled()], ids=str)
def test_every_stream_keeps_the_rules(
    route: RouteChoice, k: int | None, params: SamplingParams
) -> None:
    last = finished(answered(tiny_session(), ask(route=route, k=k, sampling=params)))
    assert last.usage.output_tokens <= 40
    assert last.usage.plain_tokens_per_s is not None
    assert last.usage.decode_ms > 0


@pytest.mark.parametrize(("route", "k"), ROUTES)
@pytest.mark.parametrize("params", [SamplingParams(max_tokens=40), REPEATING], ids=str)
def test_greedy_text_is_that_of_plain_decoding(
    route: RouteChoice, k: int | None, params: SamplingParams
) -> None:
    plain = text_of(answered(tiny_session(), ask(route="plain", sampling=params)))
    assert text_of(answered(tiny_session(), ask(route=route, k=k, sampling=params))) == plain


def test_the_routes_really_speculate_here() -> None:
    routes: tuple[RouteChoice, RouteChoice] = ("layer_skip", "copy")
    for route in routes:
        request = ask(route=route, k=3, sampling=msgspec.structs.replace(REPEATING, max_tokens=60))
        answer = tiny_session().start_ids(request, some_ids(12), frozenset())
        usage = finished(finish(answer)).usage
        assert usage.accepted > 3
        assert usage.accepted < usage.tested
        assert usage.rounds < usage.output_tokens


def test_kinds_and_rounds_tell_the_same_story() -> None:
    """Ended by length, so that no token goes untold: each round's kinds are those of its counts."""
    session = tiny_session()
    request = ask(route="layer_skip", k=3, sampling=SamplingParams(max_tokens=40))
    answer = session.start_ids(request, session.encode(request), frozenset())
    events = finish(answer)
    told = [kind for event in events if isinstance(event, TextDelta) for kind in event.kinds]
    wanted: list[str] = []
    for event in events:
        if isinstance(event, RoundDone):
            wanted += ["accepted"] * event.accepted
            if event.drafted:
                wanted.append("bonus" if event.accepted == event.drafted else "recovered")
            else:
                wanted.append("plain")
    assert wanted[: len(answer.row.kinds)] == answer.row.kinds
    assert told == answer.row.kinds[: len(told)]
    assert finished(events).usage.output_tokens == len(answer.row.kinds) == 40


def test_the_context_of_a_round_is_what_stands_after_it() -> None:
    events = answered(tiny_session(), ask(route="plain"))
    contexts = [event.context_tokens for event in events if isinstance(event, RoundDone)]
    started = events[0]
    assert isinstance(started, Started)
    assert contexts == [started.prompt_tokens + 1 + i for i in range(len(contexts))]


def test_a_fill_is_answered_too() -> None:
    assert finished(answered(tiny_session(), fill())).usage.output_tokens <= 12


# Ends


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 40])
@pytest.mark.parametrize(("route", "k"), ROUTES)
def test_an_answer_has_at_most_as_many_tokens_as_asked(
    tokens: int, route: RouteChoice, k: int | None
) -> None:
    request = ask(route=route, k=k, sampling=SamplingParams(max_tokens=tokens))
    session = tiny_session()
    answer = session.start_ids(request, session.encode(request), frozenset())
    last = finished(finish(answer))
    assert last.reason == "length"
    assert last.usage.output_tokens == tokens == len(answer.row.output)


def test_an_answer_cut_by_length_shows_every_token_it_has() -> None:
    """Also what was held back: half a character, the beginning of a stop string."""
    whole = output_of(start_ids(tiny_session(), some_ids(9)))
    for tokens in range(1, 21):
        text = codec().decode(whole[:tokens])
        params = SamplingParams(max_tokens=tokens, stop=(text[-2:] + "never said",))
        answer = tiny_session().start_ids(ask(sampling=params), some_ids(9), frozenset())
        last = finished(finish(answer))
        assert (last.reason, last.text) == ("length", text)


def test_no_more_is_drafted_than_is_still_wanted() -> None:
    tokens = 20
    answer = start_ids(tiny_session(), some_ids(9), tokens=tokens, route="layer_skip", k=6)
    for event in finish(answer):
        if isinstance(event, RoundDone):
            before = event.context_tokens - 9 - (event.accepted + 1)
            assert before + event.drafted + 1 <= tokens


@pytest.mark.parametrize(("route", "k"), ROUTES)
def test_a_stop_token_ends_the_answer_and_is_not_shown(route: RouteChoice, k: int | None) -> None:
    whole = output_of(start_ids(tiny_session(), some_ids(9)))
    for position in (0, 3, 11):
        stop = frozenset({whole[position]})
        first = whole.index(whole[position])
        answer = start_ids(tiny_session(), some_ids(9), route=route, k=k, stop_ids=stop)
        last = finished(finish(answer))
        assert last.reason == "stop"
        assert answer.row.output == whole[: first + 1]
        assert last.text == codec().decode(whole[:first])


@pytest.mark.parametrize(("route", "k"), ROUTES)
def test_a_stop_string_across_token_borders_ends_the_answer(
    route: RouteChoice, k: int | None
) -> None:
    whole = text_of(answered(tiny_session(), ask(route="plain")))
    ids = tiny_session().start(ask(route="plain"))
    tokens = output_of(ids)
    borders = [len(codec().decode(tokens[:count])) for count in range(len(tokens))]
    crossing = [at for at in borders if 3 < at < len(whole) - 3]
    for at in (crossing[0], crossing[len(crossing) // 2], crossing[-1]):
        stop = whole[at - 2 : at + 2]
        params = SamplingParams(max_tokens=40, stop=("never said", stop))
        events = answered(tiny_session(), ask(route=route, k=k, sampling=params))
        last = finished(events)
        assert last.reason == "stop_string"
        assert last.text == whole[: whole.index(stop)]


@pytest.mark.parametrize("context", [64, 100, 128])
@pytest.mark.parametrize(("route", "k"), ROUTES)
def test_an_answer_ends_where_the_context_does(
    context: int, route: RouteChoice, k: int | None
) -> None:
    session = tiny_session(tiny_loaded(context=context))
    answer = start_ids(session, some_ids(40), tokens=500, route=route, k=k)
    last = finished(finish(answer))
    assert last.reason == "context"
    # The last token needs no slot: nothing comes after it.
    assert len(answer.row.tokens) == context + 1
    assert session.slots.cache.lengths[answer.row.cache_row] == context


def test_a_prompt_as_long_as_the_context_still_gets_a_token() -> None:
    session = tiny_session(tiny_loaded(context=100))
    last = finished(finish(start_ids(session, some_ids(100))))
    assert (last.reason, last.usage.output_tokens) == ("context", 1)


# Requests that can't be served


def assert_unharmed(session: Session) -> None:
    """Every row is free and the next answers are those of a fresh session."""
    slots = session.slots
    kinds: tuple[Priority, Priority] = ("chat", "fill")
    claims = [slots.take([1, 2, 3], None, kind) for kind in kinds if not slots.one_for_all]
    while len(claims) < slots.cache.rows:
        claims.append(slots.take([1, 2, 3]))
    for claim in claims:
        slots.give_back(claim.row, [])
    assert text_of(answered(session, ask())) == text_of(answered(tiny_session(), ask()))


def test_a_prompt_that_is_too_long_names_both_numbers() -> None:
    session = tiny_session(tiny_loaded(context=64))
    with pytest.raises(RequestError, match="65 tokens") as caught:
        start_ids(session, some_ids(65))
    assert "64" in caught.value.message
    assert caught.value.code == "context_full"
    assert "--context" in caught.value.hint
    with pytest.raises(RequestError, match="the context holds 64"):
        session.start(ask("words " * 200))


@pytest.mark.parametrize(
    "refused",
    [
        ask(sampling=SamplingParams(temperature=-1.0)),
        ask(sampling=SamplingParams(max_tokens=0)),
        ask(sampling=SamplingParams(stop=("", "x"))),
        ask(k=0),
        ask(k=-3),
        ask(k=1000),
        ask("words " * 3000),
        ask(sampling=SamplingParams(seed=1 << 64)),
        ask(sampling=SamplingParams(seed=-(1 << 63) - 1)),
    ],
    ids=[
        "temperature",
        "max tokens",
        "empty stop",
        "k 0",
        "k -3",
        "k 1000",
        "too long",
        "high seed",
        "low seed",
    ],
)
def test_a_refused_request_leaves_no_row_claimed(refused: GenerateRequest) -> None:
    session = tiny_session()
    for _ in range(2 * session.slots.cache.rows):
        with pytest.raises(RequestError) as caught:
            session.start(refused)
        assert caught.value.code in {"bad_setting", "context_full"}
        assert caught.value.hint
    assert_unharmed(session)


def test_an_exit_layer_outside_the_model_is_refused_with_its_depth() -> None:
    session = tiny_session(settings=DraftSettings(exit_layer=4))
    with pytest.raises(RequestError, match="4 layers"):
        session.start(ask())
    session.slots.take([1])  # which fails where no row is free


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="no tokens"):
        start_ids(tiny_session(), [])


# Cancelling


@pytest.mark.parametrize(("route", "k"), ROUTES)
def test_leaving_after_any_step_changes_no_later_answer(route: RouteChoice, k: int | None) -> None:
    """The next request shares what the cancelled one left, bit for bit that of a fresh start."""
    prompt = some_ids(20)
    follow_up = [*prompt, 7, 8, 9]
    fresh = tiny_session()
    wanted = start_ids(fresh, follow_up)
    output = output_of(wanted)
    for steps in (0, 1, 2, 3, 5, 9):
        session = tiny_session()
        left = start_ids(session, prompt, route=route, k=k)
        for _ in range(steps):
            list(left.step())
        left.close()
        left.close()
        answer = start_ids(session, follow_up)
        assert answer.cached_tokens == min(steps, 1) * len(prompt) - (steps == 1)
        assert output_of(answer) == output
        assert_same_slots(session, answer, fresh, wanted)


def assert_same_slots(session: Session, answer: Answer, other: Session, same: Answer) -> None:
    ours, theirs = session.slots.cache, other.slots.cache
    row, twin = answer.row.cache_row, same.row.cache_row
    length = ours.lengths[row]
    assert length == theirs.lengths[twin]
    for one, two in zip((*ours.keys, *ours.values), (*theirs.keys, *theirs.values), strict=True):
        assert torch.equal(one[row, :, :length], two[twin, :, :length])


def test_leaving_between_the_events_of_a_step_is_leaving_after_it() -> None:
    session = tiny_session()
    answer = start_ids(session, some_ids(20), route="layer_skip", k=3)
    list(answer.step())
    events = answer.step()
    next(events)
    events.close()
    answer.close()
    session.slots.cache.check(answer.row.cache_row, len(answer.row.tokens) - 1)
    assert_unharmed(session)


def test_leaving_in_the_middle_of_prefill_keeps_what_was_written() -> None:
    loaded = tiny_loaded(context=1024)
    prompt = some_ids(700)
    wanted = output_of(start_ids(tiny_session(loaded), prompt))
    session = tiny_session(loaded)
    left = start_ids(session, prompt)
    list(left.step())
    left.close()
    answer = start_ids(session, prompt)
    assert answer.cached_tokens == 512
    assert output_of(answer) == wanted


class BreakingModel(Model):
    """A model that runs out of memory in the layer it is told to."""

    breaks_in: int | None = None

    def _run_layer(self, index: int, hidden: Tensor, *rest: object) -> Tensor:
        if index == self.breaks_in:
            raise MemoryError("no room")
        return super()._run_layer(index, hidden, *rest)  # type: ignore[arg-type]


def breaking() -> tuple[Loaded, BreakingModel]:
    whole = tiny_loaded()
    arch = tiny_architecture(vocab=vocabulary())
    model = BreakingModel(arch, tiny_tensors(arch, "nf4"), context_tokens=512)
    fields = {name: getattr(whole, name) for name in Loaded.__dataclass_fields__}
    return Loaded(**(fields | {"model": model})), model


@pytest.mark.parametrize("layer", [0, 2, 3])
@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize(("route", "k"), [("plain", None), ("copy", 3), ("layer_skip", 3)])
def test_a_failure_in_the_middle_of_a_pass_leaves_only_whole_tokens(
    layer: int, steps: int, route: RouteChoice, k: int | None
) -> None:
    loaded, model = breaking()
    session = tiny_session(loaded)
    prompt = some_ids(8) * 3
    answer = start_ids(session, prompt, route=route, k=k)
    for _ in range(steps):
        list(answer.step())
    model.breaks_in = layer
    with pytest.raises(MemoryError):
        list(answer.step())
    model.breaks_in = None
    answer.close()
    # The pending token's slot is written in some layers only: it must not be shared.
    follow_up = [*answer.row.tokens, 7, 8]
    again = start_ids(session, follow_up)
    assert again.cached_tokens == (0 if steps == 0 else len(answer.row.tokens) - 1)
    assert output_of(again) == output_of(start_ids(tiny_session(), follow_up))


# Prefix reuse, seeds, learning


def test_the_same_question_again_prefills_nothing() -> None:
    session = tiny_session()
    first = answered(session, ask())
    again = answered(session, ask())
    assert finished(first).usage.cached_tokens == 0
    usage = finished(again).usage
    assert usage.cached_tokens == usage.prompt_tokens - 1
    assert text_of(again) == text_of(first)


def test_the_next_turn_prefills_only_what_is_new() -> None:
    session = tiny_session()
    first = answered(session, ask("hi"))
    follow_up = ask("and then?", earlier=("hi", "item return"))
    prompt = session.encode(follow_up)
    before = session.encode(ask("hi"))
    assert prompt[: len(before)] == before
    usage = finished(answered(session, follow_up)).usage
    assert usage.cached_tokens >= len(before) - 1
    assert text_of(answered(tiny_session(), follow_up)) == text_of(answered(session, follow_up))
    assert finished(first).usage.cached_tokens == 0


def test_typing_on_in_a_file_does_not_push_the_conversation_out() -> None:
    session = tiny_session()
    answered(session, ask())
    typed = "def load(path):\n    with open(path) as file:\n        return json.load(file)\n" * 2
    for letters in range(4):
        answered(session, fill(prefix=typed + "xyzw"[:letters], suffix=""))
    usage = finished(answered(session, ask())).usage
    assert usage.cached_tokens == usage.prompt_tokens - 1


@pytest.mark.parametrize(("route", "k"), [("plain", None), ("copy", 3), ("layer_skip", 3)])
def test_a_seed_fixes_the_draw_for_a_pinned_k(route: RouteChoice, k: int | None) -> None:
    texts = {
        seed: [
            text_of(answered(tiny_session(), ask(route=route, k=k, sampling=sampled(seed))))
            for _ in range(2)
        ]
        for seed in (3, 4)
    }
    assert texts[3][0] == texts[3][1]
    assert texts[4][0] == texts[4][1]
    assert texts[3][0] != texts[4][0]


def test_without_a_seed_answers_differ() -> None:
    texts = {text_of(answered(tiny_session(), ask(sampling=sampled(None)))) for _ in range(4)}
    assert len(texts) > 1


def test_what_one_answer_learned_the_next_one_starts_from() -> None:
    session = tiny_session()
    before = msgspec.json.encode(session.costs)
    answered(session, ask())
    assert msgspec.json.encode(session.costs) != before


def test_rounds_follow_the_asked_route() -> None:
    events = answered(tiny_session(), ask(route="plain"))
    assert {event.route for event in events if isinstance(event, RoundDone)} == {"plain"}
    events = answered(tiny_session(), ask(route="layer_skip", k=2))
    rounds = [event for event in events if isinstance(event, RoundDone)]
    assert all(event.route == "layer_skip" and event.k <= 2 for event in rounds[:-1])


@MODERATE
@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(1, 30),
            st.sampled_from(["plain", "copy", "layer_skip", "auto"]),
            st.integers(1, 6),
            st.integers(0, 6),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_sequence_of_whole_and_cancelled_answers_gives_fresh_texts(
    requests: list[tuple[int, int, RouteChoice, int, int]],
) -> None:
    session = tiny_session()
    for seed, size, route, k, steps in requests:
        prompt = some_ids(size, seed)
        pinned = None if route == "auto" else k
        answer = start_ids(session, prompt, tokens=8, route=route, k=pinned)
        for _ in range(steps):
            if not answer.done:
                list(answer.step())
        answer.close()
    prompt = some_ids(30, requests[-1][0])
    fresh = output_of(start_ids(tiny_session(), prompt, tokens=8))
    assert output_of(start_ids(session, prompt, tokens=8)) == fresh


@pytest.mark.parametrize("context", [64, 128, 300])
def test_a_session_of_any_context_has_costs(context: int, tmp_path: Path) -> None:
    """Also of one too short for the usual lengths, measured and brought up to date from disk."""
    loaded = tiny_loaded(context=context)
    for _ in range(2):
        costs = measured_costs(loaded, DraftSettings(), tmp_path)
        session = Session(loaded, DraftSettings(), costs, name="tiny")
        assert session.costs.plain_tokens_per_s(0) > 0
        assert finished(answered(session, ask(sampling=SamplingParams(max_tokens=6))))


def test_the_head_is_timed_as_it_drafts(tmp_path: Path) -> None:
    """With the vocabulary that calibration found for it, not with the one in its file."""
    model = ScoringModel(context=64)
    loaded = replace(
        tiny_loaded(), model=model, head=random_head(model, jump=2, vocab=64), folder=tmp_path
    )
    assert loaded.head is not None
    profile = Profile(
        weights_digest=loaded.weights_digest,
        requests=1,
        tokens=1,
        head=loaded.head.about.identity,
        head_vocab=32,
    )
    save_profile(profile, tmp_path)
    measured_costs(loaded, DraftSettings(), None)
    assert model.scored == {None, 32}


def test_what_was_found_for_another_head_is_not_used(tmp_path: Path) -> None:
    model = ScoringModel(context=64)
    loaded = replace(
        tiny_loaded(), model=model, head=random_head(model, jump=2, vocab=64), folder=tmp_path
    )
    other = random_head(model, jump=1, vocab=64).about.identity
    profile = Profile(
        weights_digest=loaded.weights_digest,
        requests=1,
        tokens=1,
        agreement={"exit_head": (0.9, 0.9, 0.9), "layer_skip": (0.4, 0.4, 0.4)},
        head=other,
        head_vocab=32,
    )
    save_profile(profile, tmp_path)
    measured_costs(loaded, DraftSettings(), None)
    assert model.scored == {None, 64}
    assert {*profile.with_head("").agreement} == {"layer_skip"}
    assert profile.with_head(other) is profile


class ScoringModel(PacedModel):
    """Knows how many token ids were scored in its passes."""

    def __init__(self, context: int) -> None:
        super().__init__(context)
        self.scored: set[int | None] = set()

    def logits(self, hidden: Tensor, vocab: int | None = None) -> Tensor:
        self.scored.add(vocab)
        return super().logits(hidden, vocab)


def test_flat_costs_let_auto_speculate() -> None:
    """The other tests of `auto` would prove nothing if the controller never drafted."""
    events = answered(tiny_session(), ask("a b a b a b a b", sampling=REPEATING))
    assert any(event.drafted for event in events if isinstance(event, RoundDone))
    assert flat_costs().round_ratio(0, k=3, route="copy") < 1.2


def test_a_fill_without_layout_is_refused_before_a_row_is_taken() -> None:
    session = tiny_session()
    request = GenerateRequest(id="x", prompt=FillPrompt(prefix="", suffix=""))
    assert session.encode(request), "a hole in an empty file still has its markers"
