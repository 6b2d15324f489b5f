"""The sampling chain against its definition in plain Python, and the draw against its own law."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import SamplingParams
from engine.row import Chain
from engine.sampling import draw, is_greedy, law, needs_history, penalise

from .exact_law import CPU, plain_law, step_law

MODERATE = settings(max_examples=60, deadline=None, derandomize=True)
ALMOST_ONE = 1 - 2**-53
"""The largest uniform that a generator can give."""

logits_rows = st.lists(
    st.floats(-8, 8, allow_nan=False, width=32), min_size=3, max_size=6, unique=True
)
weights = st.lists(st.integers(0, 4), min_size=2, max_size=6).filter(any)
chains = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 0.8, 1.0, 1.9]),
    top_k=st.sampled_from([0, 1, 2, 5, 100]),
    top_p=st.sampled_from([1.0, 0.9137, 0.4321, 1e-6]),
    min_p=st.sampled_from([0.0, 0.0713, 0.437, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
)


@MODERATE
@given(logits=logits_rows, params=chains, data=st.data())
def test_the_chain_is_its_definition(
    logits: list[float], params: SamplingParams, data: st.DataObject
) -> None:
    seen = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=5))
    chain = Chain(params, seen or [0], CPU)
    rows = torch.tensor([logits], dtype=torch.float64)
    found = chain.laws(chain.scores(rows, torch.empty(0, dtype=torch.int64)))[0].tolist()
    wanted = plain_law(logits, seen or [0], params)
    assert sum(found) == pytest.approx(1.0, abs=1e-12)
    assert found == pytest.approx(wanted, abs=1e-9)


@MODERATE
@given(logits=logits_rows, params=chains)
def test_a_row_has_one_law_whatever_stands_beside_it(
    logits: list[float], params: SamplingParams
) -> None:
    rows = torch.tensor([logits, logits[::-1], [0.0] * len(logits)])
    for row in range(3):
        assert torch.equal(law(rows, params)[row], law(rows[row : row + 1], params)[0])


@pytest.mark.parametrize("drafted", [[], [2], [2, 0], [3, 3, 1]])
def test_the_penalty_counts_what_is_drafted_before_each_position(drafted: list[int]) -> None:
    params = SamplingParams(temperature=1.0, repetition_penalty=1.8)
    history = [1]
    logits = torch.tensor([[2.0, -1.0, 0.5, -0.25]], dtype=torch.float64).expand(
        len(drafted) + 1, -1
    )
    chain = Chain(params, history, CPU)
    laws = chain.laws(chain.scores(logits, torch.tensor(drafted, dtype=torch.int64)))
    for position, row in enumerate(laws.tolist()):
        seen = [*history, *drafted[:position]]
        assert row == pytest.approx(plain_law(logits[0].tolist(), seen, params), abs=1e-12)


def test_the_history_is_the_rows_own_and_grows_with_it() -> None:
    history = [0]
    chain = Chain(SamplingParams(temperature=1.0, repetition_penalty=2.0), history, CPU)
    logits, nothing = torch.tensor([[1.0, 1.0]]), torch.empty(0, dtype=torch.int64)
    assert chain.scores(logits, nothing).tolist() == [[0.5, 1.0]]
    history.append(1)
    assert chain.scores(logits, nothing).tolist() == [[0.5, 0.5]]


def test_a_token_seen_twice_is_penalised_once() -> None:
    logits = torch.tensor([2.0, -2.0, 3.0])
    assert penalise(logits, torch.tensor([0, 0, 1, 1]), 2.0).tolist() == [1.0, -4.0, 3.0]
    assert logits.tolist() == [2.0, -2.0, 3.0]


def test_tokens_tied_at_the_border_of_top_k_all_stay() -> None:
    logits = torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    kept = law(logits, SamplingParams(temperature=1.0, top_k=2))[0]
    assert (kept > 0).tolist() == [True, True, True, False]


def test_the_token_that_crosses_top_p_stays() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64).log()
    for top_p, kept in ((0.4, 1), (0.6, 2), (0.8, 3), (0.99, 4)):
        probs = law(logits, SamplingParams(temperature=1.0, top_p=top_p))[0]
        assert int((probs > 0).sum()) == kept


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1e-39),
        SamplingParams(temperature=1e-300),
        SamplingParams(temperature=10.0),
        SamplingParams(temperature=1.0, top_p=1e-50),
        SamplingParams(temperature=1.0, min_p=1.0, top_k=1, top_p=1e-9),
    ],
    ids=str,
)
def test_a_law_is_a_law_at_the_ends_of_every_range(
    params: SamplingParams, dtype: torch.dtype
) -> None:
    logits = torch.tensor([[30.0, 12.5, -40.0, 30.0], [0.0, -1.0, -2.0, -3.0]], dtype=dtype)
    probs = law(logits, params)
    assert probs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert bool((probs >= 0).all())
    assert probs.sum(dim=1).tolist() == pytest.approx([1.0, 1.0], abs=1e-6)


@MODERATE
@given(weight=weights)
def test_a_draw_follows_the_law_it_is_given(weight: list[int]) -> None:
    probs = torch.tensor(weight, dtype=torch.float64)
    size = len(weight)

    def choose(uniforms: torch.Tensor) -> torch.Tensor:
        return draw(probs.expand(size, -1), uniforms)

    wanted = [w / sum(weight) for w in weight]
    assert step_law(choose, size) == pytest.approx(wanted, abs=1e-11)


@MODERATE
@given(weight=weights, scale=st.floats(1e-6, 1e6), wide=st.booleans())
def test_a_draw_never_takes_a_token_without_mass(
    weight: list[int], scale: float, wide: bool
) -> None:
    probs = torch.tensor(weight, dtype=torch.float64 if wide else torch.float32) * scale
    edges = (probs.double().cumsum(0) / probs.double().sum()).clamp(max=ALMOST_ONE)
    uniforms = torch.cat((edges, torch.tensor([0.0, ALMOST_ONE], dtype=torch.float64)))
    tokens = draw(probs.expand(len(uniforms), -1), uniforms)
    assert all(weight[token] > 0 for token in tokens.tolist())


def test_the_same_seed_gives_the_same_uniforms() -> None:
    params = SamplingParams(temperature=1.0, seed=7)
    first, second = Chain(params, [0], CPU), Chain(params, [0], CPU)
    assert torch.equal(first.uniforms(5), second.uniforms(5))
    assert not torch.equal(first.uniforms(5), Chain(params, [0], CPU).uniforms(5))
    unseeded = SamplingParams(temperature=1.0)
    assert not torch.equal(
        Chain(unseeded, [0], CPU).uniforms(5), Chain(unseeded, [0], CPU).uniforms(5)
    )


def test_greedy_is_asked_for_by_temperature_zero_alone() -> None:
    assert is_greedy(SamplingParams())
    assert not is_greedy(SamplingParams(temperature=math.ulp(0.0)))
    assert not needs_history(SamplingParams(temperature=1.0))
    assert needs_history(SamplingParams(repetition_penalty=1.1))
    with pytest.raises(AssertionError, match="greedy"):
        law(torch.zeros(1, 3), SamplingParams())


def test_a_greedy_draft_is_the_argmax_and_reports_no_law() -> None:
    chain = Chain(SamplingParams(), [0], CPU)
    token, probs = chain.draw(torch.tensor([[0.0, 2.0, 1.0]]), [])
    assert (token.tolist(), probs) == ([1], None)


@pytest.mark.parametrize("drafted", [[], [1], [1, 0]])
def test_a_drafts_reported_law_is_the_one_it_was_drawn_from(drafted: list[int]) -> None:
    params = SamplingParams(temperature=0.7, top_p=0.8, repetition_penalty=1.5)
    logits = torch.tensor([[1.0, 0.5, 0.25, -1.0]], dtype=torch.float64)
    before = [torch.tensor([token]) for token in drafted]
    vocab = logits.shape[1]
    wanted = plain_law(logits[0].tolist(), [2, *drafted], params)

    class Scripted(Chain):
        """Gives the uniform it is told to."""

        given = 0.0

        def uniforms(self, count: int) -> torch.Tensor:
            return torch.full((count,), self.given, dtype=torch.float64)

    chain = Scripted(params, [2], CPU)

    def choose(uniforms: torch.Tensor) -> torch.Tensor:
        tokens = []
        for uniform in uniforms.tolist():
            chain.given = uniform
            token, probs = chain.draw(logits, before)
            assert probs is not None
            assert probs[0].tolist() == pytest.approx(wanted, abs=1e-12)
            tokens.append(token)
        return torch.cat(tokens)

    assert step_law(choose, vocab) == pytest.approx(wanted, abs=1e-11)
