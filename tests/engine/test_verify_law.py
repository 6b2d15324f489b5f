"""Speculation emits the target's law: one token and two, computed exactly, to 1e-9."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.protocol import SamplingParams
from engine.verify import accept_greedy, accept_sampled, residual

from .exact_law import (
    PLAIN,
    Emitted,
    Game,
    Rule,
    branches,
    distance,
    full_offer,
    plain_joint,
    truncated_offer,
)

TOLERANCE = 1e-9
MODERATE = settings(max_examples=25, deadline=None, derandomize=True)
CHAINS = {
    "temperature": SamplingParams(temperature=0.6),
    "hot": SamplingParams(temperature=1.7),
    "top-k": SamplingParams(temperature=1.0, top_k=2),
    "top-p": SamplingParams(temperature=1.0, top_p=0.71),
    "min-p": SamplingParams(temperature=1.0, min_p=0.31),
    "penalty": SamplingParams(temperature=1.0, repetition_penalty=1.6),
    "reward": SamplingParams(temperature=1.0, repetition_penalty=0.7),
    "all": SamplingParams(
        temperature=0.8, top_k=3, top_p=0.9137, min_p=0.07, repetition_penalty=1.3
    ),
}


def logits_table(vocab: int, seed: int, spread: float = 1.5) -> Tensor:  # (V + 1, V) float64
    random = torch.Generator().manual_seed(seed)
    return torch.randn(vocab + 1, vocab, dtype=torch.float64, generator=random) * spread


def game_of(seed: int, params: SamplingParams = PLAIN, *, vocab: int = 4) -> Game:
    return Game(
        target=logits_table(vocab, seed),
        draft=logits_table(vocab, seed + 1000),
        params=params,
        history=(1, 1, 0),
    )


def copy_game(seed: int, params: SamplingParams = PLAIN) -> Game:
    return Game(
        target=logits_table(4, seed), draft=None, params=params, copied=(2, 2, 1), history=(0, 3)
    )


def check_law(rule: Rule, game: Game, *, k: int, wanted: int = 2) -> None:
    """Rounds of k drafted tokens emit the same law as plain decoding."""
    found = Emitted(rule=rule, game=game, k=k).law(wanted)
    assert math.isclose(sum(found.values()), 1.0, abs_tol=TOLERANCE)
    assert distance(found, plain_joint(game, wanted)) < TOLERANCE


@st.composite
def weight_tables(draw: st.DrawFn, vocab: int) -> Tensor:
    """Logits of small whole weights: zeros and ties are common, and no row is without mass."""
    row = st.lists(st.integers(0, 3), min_size=vocab, max_size=vocab).filter(any)
    rows = draw(st.lists(row, min_size=vocab + 1, max_size=vocab + 1))
    return torch.tensor(rows, dtype=torch.float64).log()


@st.composite
def weighted_games(draw: st.DrawFn) -> Game:
    vocab = draw(st.integers(3, 4))
    target = draw(weight_tables(vocab))
    kind = draw(st.sampled_from(["other", "same", "copied"]))
    copied = tuple(draw(st.lists(st.integers(0, vocab - 1), min_size=2, max_size=2)))
    drafts = {"other": draw(weight_tables(vocab)), "same": target.clone(), "copied": None}
    return Game(target=target, draft=drafts[kind], copied=copied)


@MODERATE
@given(game=weighted_games(), k=st.integers(0, 2))
def test_two_tokens_of_any_law_and_any_draft(game: Game, k: int) -> None:
    check_law(Rule(), game, k=k)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("vocab", [3, 4])
def test_two_tokens_from_a_draft_with_probabilities(vocab: int, k: int) -> None:
    check_law(Rule(), game_of(vocab, vocab=vocab), k=k)


@pytest.mark.parametrize("vocab", [5, 6])
def test_one_token_of_a_larger_vocabulary(vocab: int) -> None:
    check_law(Rule(), game_of(vocab, vocab=vocab), k=2, wanted=1)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_two_tokens_from_a_copied_draft(k: int) -> None:
    check_law(Rule(), copy_game(3), k=k)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("truncated", [False, True], ids=["full-q", "truncated-q"])
@pytest.mark.parametrize("chain", CHAINS)
def test_two_tokens_after_every_sampling_parameter(chain: str, truncated: bool, k: int) -> None:
    rule = Rule(offer=truncated_offer if truncated else full_offer)
    check_law(rule, game_of(11, CHAINS[chain]), k=k)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_copied_draft_after_every_sampling_parameter(chain: str) -> None:
    check_law(Rule(), copy_game(5, CHAINS[chain]), k=2)


@pytest.mark.parametrize("truncated", [False, True], ids=["full-q", "truncated-q"])
def test_three_tokens_with_everything_on(truncated: bool) -> None:
    rule = Rule(offer=truncated_offer if truncated else full_offer)
    check_law(rule, game_of(21, CHAINS["all"], vocab=3), k=2, wanted=3)


@pytest.mark.parametrize("k", [1, 2])
def test_a_draft_equal_to_the_target_is_always_kept(k: int) -> None:
    table = logits_table(4, 7)
    game = Game(target=table, draft=table.clone())
    check_law(Rule(), game, k=k)
    target = table.softmax(dim=1)[:-1]
    tokens = torch.arange(4)[:, None]
    kept = branches(accept_sampled, tokens, target[:, None], torch.stack((target, target), dim=1))
    assert kept[0].weight.max() < 1e-11


def check_residual_without_mass(
    rule: Callable[[Tensor, Tensor | None, Tensor], Tensor] = residual,
) -> None:
    """Where p − q leaves nothing, p itself; never a division by zero, never a token p forbids."""
    p = torch.tensor([[0.2, 0.0, 0.8], [0.0, 1.0, 0.0]], dtype=torch.float64)
    token = torch.tensor([2, 1])
    assert torch.equal(rule(p, p.clone(), token), p)
    certain = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    assert torch.equal(rule(certain, None, torch.tensor([1])), certain)


def test_a_residual_without_mass_falls_back_to_the_target() -> None:
    check_residual_without_mass()


def test_a_residual_is_what_the_target_has_more_of() -> None:
    p = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
    q = torch.tensor([[0.75, 0.25, 0.0]], dtype=torch.float64)
    assert residual(p, q, torch.tensor([0])).tolist() == [[0.0, 0.0, 1.0]]
    left = residual(p, None, torch.tensor([0]))
    assert left.tolist() == [[0.0, 0.5, 0.5]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_laws_in_either_width_emit_only_tokens_with_mass(dtype: torch.dtype) -> None:
    """p = q up to a rounding error: the residual is noise or nothing, the answer is sound."""
    p = torch.tensor([0.1, 0.0, 0.3, 0.6], dtype=dtype)
    q = (p * 3 / 3 * 1.0000001).to(dtype)
    uniforms = torch.cartesian_prod(
        torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64),
        torch.tensor([0.0, 0.3, 0.999, 1 - 2**-53], dtype=torch.float64),
    )
    n = len(uniforms)
    for token in (0, 2, 3):
        verdict = accept_sampled(
            torch.full((n, 1), token),
            torch.ones(n, dtype=torch.int64),
            q.expand(n, 1, 4),
            p.expand(n, 2, 4),
            uniforms,
        )
        assert not bool((verdict.next == 1).any())


@st.composite
def ragged_rounds(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    seed = draw(st.integers(0, 2**31 - 1))
    lengths = torch.tensor(draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)))
    k, rows, vocab = 4, len(lengths), 5
    random = torch.Generator().manual_seed(seed)

    def table(width: int) -> Tensor:
        scores = torch.randn(rows, width, vocab, dtype=torch.float64, generator=random)
        return scores.softmax(dim=-1)

    tokens = torch.randint(0, vocab, (rows, k), generator=random)
    uniforms = torch.rand(rows, k + 1, dtype=torch.float64, generator=random)
    uniforms[:, :-1] **= 2  # long accepted prefixes are as frequent as short ones
    return tokens, lengths, table(k), table(k + 1), uniforms


@MODERATE
@given(batch=ragged_rounds(), copied=st.booleans())
def test_ragged_rows_equal_each_row_alone(
    batch: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], copied: bool
) -> None:
    tokens, lengths, proposal, target, uniforms = batch
    for row, length in enumerate(lengths.tolist()):
        # Whatever stands past a row's own draft must not be looked at.
        proposal[row, length:] = torch.nan
        target[row, length + 1 :] = torch.nan
    q = None if copied else proposal
    together = accept_sampled(tokens, lengths, q, target, uniforms)
    greedy = accept_greedy(tokens, lengths, target.nan_to_num(-1).argmax(dim=-1))
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone = accept_sampled(
            tokens[one, :length],
            lengths[one],
            None if q is None else q[one, :length],
            target[one, : length + 1],
            torch.cat((uniforms[one, :length], uniforms[one, -1:]), dim=1),
        )
        assert together.accepted[row] == alone.accepted[0] <= length
        assert together.next[row] == alone.next[0]
        best = target[one, : length + 1].argmax(dim=-1)
        alone = accept_greedy(tokens[one, :length], lengths[one], best)
        assert greedy.accepted[row] == alone.accepted[0]
        assert greedy.next[row] == alone.next[0]


@MODERATE
@given(
    draft=st.lists(st.integers(0, 2), max_size=5),
    chosen=st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
def test_greedy_keeps_what_the_target_would_have_said(draft: list[int], chosen: list[int]) -> None:
    best = chosen[: len(draft) + 1]
    verdict = accept_greedy(
        torch.tensor([draft], dtype=torch.int64),
        torch.tensor([len(draft)]),
        torch.tensor([best]),
    )
    kept = 0
    while kept < len(draft) and draft[kept] == best[kept]:
        kept += 1
    assert (int(verdict.accepted), int(verdict.next)) == (kept, best[kept])
