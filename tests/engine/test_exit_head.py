"""The exit head's route: what is tapped, what it drafts, when it stops."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.cache import KVCache, Span
from engine.decode import prefill_step, run_round
from engine.draft.contract import Draft
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.layer_skip import LayerSkipDrafter
from engine.draft_length import Choice
from engine.protocol import Finished, RequestError, RoundDone, RouteChoice, SamplingParams
from engine.row import Row

from .test_decode import PROMPT, run_all
from .tiny import new_row, same_slots, tiny_model
from .tiny_heads import fitted_head, random_head, states_before
from .tiny_session import answered, ask, text_of, tiny_loaded, tiny_session

JUMP = 2
WARM = SamplingParams(temperature=0.9, seed=7)


class Seeing(ExitHeadDrafter):
    """Keeps what it was shown."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.shown: list[tuple[int, Tensor | None]] = []
        self.drafts: list[Draft] = []
        self.rounds: list[tuple[int, int]] = []

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        self.shown.append((len(row.tokens), row.tapped))
        self.drafts.append(super().propose(row, k, cache))
        return self.drafts[-1]

    def observe(self, row: Row, state: Tensor | None, accepted: int, drafted: int) -> None:
        assert state is row.tapped
        self.shown.append((len(row.tokens), state))
        self.rounds.append((accepted, drafted))


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("length", [2, 63, 64, 65])
def test_greedy_is_bit_identical_across_borders_of_slots(k: int, length: int) -> None:
    model = tiny_model()
    prompt = [random.Random(5).randrange(96) for _ in range(length)]
    plain, plain_cache = run_all(model, new_row(prompt, max_tokens=70), {}, 0)
    drafter = ExitHeadDrafter(model, random_head(model, vocab=64))
    text, cache = run_all(model, new_row(prompt, max_tokens=70), {"exit_head": drafter}, k)
    assert text == plain
    assert same_slots(cache, plain_cache)


@pytest.mark.parametrize(("first", "jump"), [(1, 1), (1, 2), (1, 3), (2, 3), (3, 3)])
def test_every_path(first: int, jump: int) -> None:
    model = tiny_model()
    plain, _ = run_all(model, new_row(PROMPT), {}, 0)
    drafter = ExitHeadDrafter(model, random_head(model, first=first, jump=jump))
    assert (drafter.reusable_layers, drafter.tap_layer) == (first, jump)
    assert run_all(model, new_row(PROMPT), {"exit_head": drafter}, 3)[0] == plain


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_tapped_state_is_the_last_kept_tokens(k: int) -> None:
    """Bit for bit what one-row passes give, after prefill and after every round."""
    model = tiny_model()
    head = fitted_head(model, PROMPT + run_all(model, new_row(PROMPT), {}, 0)[0], jump=JUMP)
    drafter, row = Seeing(model, head), new_row(PROMPT)
    run_all(model, row, {"exit_head": drafter}, k)
    expected = states_before(model, row.tokens, JUMP)
    assert len(drafter.shown) > 8
    for length, state in drafter.shown[1:]:
        assert state is not None
        assert torch.equal(state, expected[length - 2 : length - 1])
    # A wide prefill pass may round differently from one-row passes.
    length, state = drafter.shown[0]
    assert state is not None
    assert torch.allclose(state.float(), expected[length - 2 : length - 1].float(), atol=0.1)
    if k > 1:
        assert {accepted for accepted, _ in drafter.rounds} != {0}


def test_a_head_that_knows_the_text_is_believed() -> None:
    """The jump really is fed with the previous token's state: this one looks at nothing else."""
    model = tiny_model()
    plain, _ = run_all(model, new_row(PROMPT, max_tokens=60), {}, 0)
    drafter = Seeing(model, fitted_head(model, PROMPT + plain, jump=JUMP))
    text, _ = run_all(model, new_row(PROMPT, max_tokens=60), {"exit_head": drafter}, 1)
    assert text == plain
    assert sum(accepted for accepted, _ in drafter.rounds) >= 0.8 * len(drafter.rounds)


def test_nothing_is_offered_before_a_pass_has_gone_by_the_landing() -> None:
    model = tiny_model()
    row, cache = new_row(PROMPT), model.new_cache(1)
    exit_head = ExitHeadDrafter(model, random_head(model, jump=JUMP))
    deep = LayerSkipDrafter(model, JUMP + 1)
    while not prefill_step(model, cache, row):
        pass
    assert row.tapped is None
    assert exit_head.evidence(row) is None
    run_round(model, cache, row, {"exit_head": exit_head}, Choice(route="plain", k=0, reason=""))
    assert exit_head.evidence(row) == 0
    # A draft that leaves its own work beyond the landing hides the state there.
    run_round(
        model, cache, row, {"exit_head": exit_head, "layer_skip": deep},
        Choice(route="layer_skip", k=2, reason=""),
    )  # fmt: skip
    assert exit_head.evidence(row) is None


def test_no_tap_without_a_drafter_that_wants_one() -> None:
    model = tiny_model()
    row, cache = new_row(PROMPT), model.new_cache(1)
    while not prefill_step(model, cache, row):
        pass
    drafters = {"layer_skip": LayerSkipDrafter(model, 2)}
    run_round(model, cache, row, drafters, Choice(route="layer_skip", k=2, reason=""))
    assert row.tapped is None


@pytest.mark.parametrize("vocab", [32, 64, 96])
def test_drafts_stay_inside_the_reduced_vocabulary(vocab: int) -> None:
    model = tiny_model()
    drafter = Seeing(model, random_head(model, jump=JUMP, vocab=vocab))
    run_all(model, new_row(PROMPT, WARM), {"exit_head": drafter}, 3)
    for draft in drafter.drafts:
        assert int(draft.tokens.max()) < vocab
        assert draft.probs is not None
        assert draft.probs.shape == (len(draft.tokens), 96)
        assert not draft.probs[:, vocab:].any()
        assert torch.allclose(draft.probs.sum(dim=1), torch.ones(len(draft.tokens)))


def test_a_draft_that_doubts_itself_ends_early() -> None:
    model = tiny_model()
    plain, _ = run_all(model, new_row(PROMPT), {}, 0)
    lengths = {}
    for stop_below in (None, 0.2, 1.0):
        drafter = Seeing(model, random_head(model, jump=JUMP, stop_below=stop_below))
        text, _ = run_all(model, new_row(PROMPT), {"exit_head": drafter}, 4)
        assert text == plain
        lengths[stop_below] = [len(draft.tokens) for draft in drafter.drafts]
    assert {*lengths[None][:-4]} == {4}
    assert {*lengths[1.0]} == {1}
    assert {1, 2} <= {*lengths[0.2]}


def test_a_draft_has_a_token_however_high_the_bar() -> None:
    model = tiny_model()
    plain, _ = run_all(model, new_row(PROMPT), {}, 0)
    drafter = Seeing(model, random_head(model, jump=JUMP, stop_below=1.5))
    text, _ = run_all(model, new_row(PROMPT), {"exit_head": drafter}, 4)
    assert text == plain
    assert {len(draft.tokens) for draft in drafter.drafts} == {1}


def test_a_penalty_on_ids_that_the_draft_does_not_score() -> None:
    model = tiny_model()
    assert max(PROMPT) >= 32
    params = SamplingParams(repetition_penalty=1.7)
    plain, _ = run_all(model, new_row(PROMPT, params), {}, 0)
    drafter = ExitHeadDrafter(model, random_head(model, jump=JUMP, vocab=32))
    assert run_all(model, new_row(PROMPT, params), {"exit_head": drafter}, 4)[0] == plain


class _KeepsTheDraft(KVCache):
    """A verify pass that leaves the draft's slots in the last layers as they are."""

    jump = JUMP

    def write(self, layer: int, span: Span, keys: Tensor, values: Tensor) -> None:
        if layer >= self.jump and 1 < span.count <= 9:
            last = Span(row=span.row, start=span.end - 1, count=1)
            super().write(layer, last, keys[-1:], values[-1:])
        else:
            super().write(layer, span, keys, values)


def test_slots_of_the_tail_that_are_not_overwritten_change_the_text() -> None:
    model = tiny_model()
    plain, _ = run_all(model, new_row(PROMPT, max_tokens=60), {}, 0)
    for kind, same in ((KVCache, True), (_KeepsTheDraft, False)):
        cache = kind(
            model.architecture, rows=2, slots=512, dtype=model.dtype, device=model.device, block=64
        )
        drafter = ExitHeadDrafter(model, random_head(model, jump=JUMP))
        text, _ = run_all(model, new_row(PROMPT, max_tokens=60), {"exit_head": drafter}, 3, cache)
        assert (text == plain) is same


class _OneTokenOff(Seeing):
    """Starts from the state of the token before the right one."""

    _late: Tensor | None = None

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        right, row.tapped = row.tapped, self._late if self._late is not None else row.tapped
        draft = super().propose(row, k, cache)
        self._late = row.tapped = right
        return draft


def test_a_tap_one_token_off_leaves_the_text_and_shows_in_the_agreement() -> None:
    model = tiny_model()
    plain, _ = run_all(model, new_row(PROMPT, max_tokens=60), {}, 0)
    head = fitted_head(model, PROMPT + plain, jump=JUMP)
    shares = []
    for kind in (Seeing, _OneTokenOff):
        drafter = kind(model, head)
        text, _ = run_all(model, new_row(PROMPT, max_tokens=60), {"exit_head": drafter}, 1)
        assert text == plain
        shares.append(sum(accepted for accepted, _ in drafter.rounds) / len(drafter.rounds))
    right, off = shares
    assert off < 0.6 * right


def test_a_session_with_a_head_answers_by_it() -> None:
    loaded = tiny_loaded()
    session = tiny_session(replace(loaded, head=random_head(loaded.model, jump=JUMP)))
    plain = answered(session, ask(route="plain"))
    drafted = answered(session, ask(route="exit_head", k=3))
    assert text_of(drafted) == text_of(plain)
    assert {e.route for e in drafted if isinstance(e, RoundDone)} == {"exit_head", "plain"}
    again = answered(session, ask(route="exit_head", k=3, sampling=SamplingParams(temperature=1.0)))
    assert isinstance(again[-1], Finished)


@pytest.mark.parametrize("first", ["exit_head", "plain"])
def test_an_answer_to_the_same_prompt_drafts_from_its_first_round(first: RouteChoice) -> None:
    """Nothing is left to prefill, which would show the state that a draft starts from."""
    loaded = tiny_loaded()
    session = tiny_session(replace(loaded, head=random_head(loaded.model, jump=JUMP)))
    seen, cached = [], []
    for route in (first, "exit_head", "exit_head"):
        answer = session.start(ask(route=route, k=3))
        if cached:
            answer.close()  # one that is given up at once loses nothing of it
            answer = session.start(ask(route=route, k=3))
        cached.append(answer.cached_tokens == answer.row.prompt_tokens - 1)
        rounds: list[RoundDone] = []
        while not answer.done:
            rounds += [event for event in answer.step() if isinstance(event, RoundDone)]
        seen.append(rounds)
    assert cached == [False, True, True]
    assert [rounds[0].drafted for rounds in seen[1:]] == [3, 3]
    drafts = [[(e.drafted, e.accepted) for e in rounds] for rounds in seen]
    assert drafts[1] == drafts[2] == (drafts[0] if first == "exit_head" else drafts[1])


def test_a_session_without_a_head_says_what_to_do() -> None:
    with pytest.raises(RequestError, match="train-head"):
        tiny_session().start(ask(route="exit_head"))
