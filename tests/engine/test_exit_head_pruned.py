"""The exit head's route where drafts end in a part of the model's neurons: the text stays, and the
drafts are those of that part."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.cache import KVCache
from engine.draft.contract import Draft
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.head_file import Head, joined
from engine.model import Model
from engine.protocol import RoundDone, SamplingParams
from engine.row import Row

from .test_decode import PROMPT, run_all
from .test_exit_head import JUMP, Seeing
from .tiny import new_row, same_slots, tiny_model
from .tiny_heads import listing, pruned_head, random_head
from .tiny_session import answered, ask, text_of, tiny_loaded, tiny_session

WARM = SamplingParams(temperature=0.9, seed=7)


def head_of(
    model: Model, *, jump: int = JUMP, kept: int = 64, vocab: int = 64, front: int = 0
) -> Head:
    return pruned_head(random_head(model, jump=jump, vocab=vocab), model, kept, front)


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize(
    ("jump", "kept", "front"), [(1, 64, 0), (3, 64, 0), (1, 0, 64), (2, 128, 64)]
)
def test_greedy_is_bit_identical(k: int, jump: int, kept: int, front: int) -> None:
    """The cache too: nothing of a draft stays in it, and none of its work is taken over where it
    ran other layers than the model's."""
    model = tiny_model()
    plain, plain_cache = run_all(model, new_row(PROMPT, max_tokens=40), {}, 0)
    drafter = Seeing(model, head_of(model, jump=jump, kept=kept, front=front))
    assert drafter.reusable_layers == (0 if front else 1)
    text, cache = run_all(model, new_row(PROMPT, max_tokens=40), {"exit_head": drafter}, k)
    assert drafter.rounds
    assert text == plain
    assert same_slots(cache, plain_cache)


class _ByHand(Seeing):
    """Makes the first token's law of each draft again, over the same cache."""

    def __init__(self, model: Model, head: Head) -> None:
        super().__init__(model, head)
        self.model, self.head = model, head
        self.laws: list[Tensor] = []

    def propose(self, row: Row, k: int, cache: KVCache) -> Draft:
        model, about, tail = self.model, self.head.about, self.head.tail or self.model
        front = self.head.front or model
        assert row.tapped is not None
        span = cache.extend(row.cache_row, 1)
        state = model.embed(torch.tensor(row.tokens[-1:]))
        state = front.run_layers(state, [span], cache, first=0, stop=about.first)
        state = self.head(state, row.tapped)
        state = tail.run_layers(
            state, [span], cache, first=about.jump, stop=model.architecture.layers
        )
        scores = model.logits(state, about.vocab).float()
        self.laws.append((scores / WARM.temperature).softmax(dim=-1)[0])
        cache.rollback(row.cache_row, span.start)
        return super().propose(row, k, cache)


@pytest.mark.parametrize(("kept", "front"), [(64, 0), (0, 64), (128, 64)])
def test_drafts_are_those_of_the_neurons_that_are_kept(kept: int, front: int) -> None:
    model = tiny_model()
    drafter = _ByHand(model, head_of(model, kept=kept, front=front))
    assert (drafter.head.tail is None, drafter.head.front is None) == (not kept, not front)
    run_all(model, new_row(PROMPT, WARM), {"exit_head": drafter}, 2)
    assert len(drafter.drafts) > 5
    for draft, law in zip(drafter.drafts, drafter.laws, strict=True):
        assert draft.probs is not None
        torch.testing.assert_close(draft.probs[0, :64].float(), law, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("layers", [(0,), (JUMP, 3)])
@pytest.mark.parametrize(("kept", "same"), [(128, True), (64, False)])
def test_only_all_neurons_draft_what_the_whole_does(
    kept: int, same: bool, layers: tuple[int, ...]
) -> None:
    model = tiny_model()
    whole = random_head(model, jump=JUMP)
    drafts = []
    for head in (whole, replace(whole, neurons=dict.fromkeys(layers, torch.arange(kept)))):
        head = joined(head, model)
        drafter = Seeing(model, head)
        run_all(model, new_row(PROMPT, WARM, max_tokens=1), {"exit_head": drafter}, 3)
        run_all(model, new_row(PROMPT, WARM), {"exit_head": drafter}, 3)
        probs = drafter.drafts[0].probs
        assert probs is not None
        drafts.append(probs[0])
    assert torch.equal(*drafts) is same


@pytest.mark.parametrize("params", [WARM, SamplingParams(repetition_penalty=1.7)])
@pytest.mark.parametrize("kept", [64, 128])
def test_drafts_are_of_the_listed_ids(params: SamplingParams, kept: int) -> None:
    model, ids = tiny_model(), torch.randperm(96, generator=torch.Generator().manual_seed(4))
    head = listing(head_of(model, kept=kept, vocab=32), model, ids.tolist())
    drafter = Seeing(model, head)
    text, _ = run_all(model, new_row(PROMPT, params), {"exit_head": drafter}, 4)
    assert {token for draft in drafter.drafts for token in draft.tokens.tolist()} <= {
        *ids[:32].tolist()
    }
    for draft in drafter.drafts:
        if draft.probs is not None and len(draft.tokens):
            assert not draft.probs[:, ids[32:]].any()
    if params is not WARM:
        assert text == run_all(model, new_row(PROMPT, params), {}, 0)[0]


def test_the_same_ids_in_another_order_have_the_same_law() -> None:
    model, head = tiny_model(), head_of(tiny_model(), vocab=96)
    laws = []
    for ids in (list(range(96)), list(reversed(range(96)))):
        drafter = Seeing(model, listing(head, model, ids))
        # A token is drawn by its place, so only the first law has the same text before it.
        run_all(model, new_row(PROMPT, WARM, max_tokens=4), {"exit_head": drafter}, 1)
        probs = drafter.drafts[0].probs
        assert probs is not None
        laws.append(probs[0])
    torch.testing.assert_close(*laws)
    assert not torch.equal(laws[0], laws[0].flip(0))


def test_the_route_says_what_its_time_depends_on() -> None:
    model = tiny_model()
    heads = [head_of(model, kept=kept, front=front) for kept in (64, 0) for front in (64, 0)]
    assert len({ExitHeadDrafter(model, head).cost_key for head in heads}) == 4


def test_a_session_with_a_pruned_head_answers_by_it() -> None:
    loaded = tiny_loaded()
    session = tiny_session(replace(loaded, head=head_of(loaded.model, vocab=96, front=64)))
    plain = answered(session, ask(route="plain"))
    for k in (1, 4, 8):
        drafted = answered(session, ask(route="exit_head", k=k))
        assert text_of(drafted) == text_of(plain)
        assert "exit_head" in {e.route for e in drafted if isinstance(e, RoundDone)}
