"""The proofs can fail: each error planted here is caught by the check that is meant for it.

The planted rules are small re-implementations with one thing wrong; the same re-implementation with
nothing wrong passes, so it is the error that is caught and not the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from engine.cache import KVCache
from engine.model import Model
from engine.protocol import SamplingParams
from engine.row import Chain
from engine.sampling import draw, law
from engine.verify import Verdict, acceptance, residual

from .exact_law import CPU, Accept, Game, Rule
from .test_cache import check_fork, check_same_as_fresh
from .test_decode import PROMPT, generate
from .test_verify_law import (
    CHAINS,
    check_law,
    check_residual_without_mass,
    copy_game,
    game_of,
    logits_table,
)
from .tiny import new_row, tiny_model

Residual = Callable[[Tensor, Tensor | None, Tensor], Tensor]
Acceptance = Callable[[Tensor, Tensor | None, Tensor], Tensor]


def accept_with(
    *,
    kept: Acceptance = acceptance,
    rest: Residual = residual,
    bonus_from: Callable[[Tensor], Tensor] = lambda accepted: accepted,
) -> Accept:
    """The acceptance rule once more, its parts exchangeable."""

    def accept(
        tokens: Tensor, lengths: Tensor, proposal: Tensor | None, target: Tensor, uniforms: Tensor
    ) -> Verdict:
        rows, k = torch.arange(len(tokens)), tokens.shape[1]
        inside = torch.arange(k) < lengths[:, None]
        passed = (uniforms[:, :-1] < kept(tokens, proposal, target[:, :-1])) & inside
        accepted = passed.cumprod(dim=1).sum(dim=1)
        following = target[rows, bonus_from(accepted)]
        if k:
            at = accepted.clamp(max=k - 1)
            left = rest(
                target[rows, accepted],
                None if proposal is None else proposal[rows, at],
                tokens[rows, at],
            )
            following = torch.where((accepted < lengths)[:, None], left, following)
        return Verdict(accepted=accepted, next=draw(following, uniforms[:, -1]))

    return accept


def without_clamp(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
    left = p.scatter(1, token[:, None], 0.0) if q is None else p - q
    mass = left.sum(dim=1, keepdim=True)
    return torch.where(mass.abs() > 1e-12, left / mass, left)


def absolute(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
    left = p.scatter(1, token[:, None], 0.0) if q is None else (p - q).abs()
    return left / left.sum(dim=1, keepdim=True)


def target_again(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
    """The token after a rejection drawn from p itself."""
    return p


def without_fallback(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
    left = p.scatter(1, token[:, None], 0.0) if q is None else (p - q).clamp_min(0)
    return left / left.sum(dim=1, keepdim=True)


def rejected_kept(p: Tensor, q: Tensor | None, token: Tensor) -> Tensor:
    """A deterministic draft's residual that forgets to leave the rejected token out."""
    return p if q is None else residual(p, q, token)


def target_alone(tokens: Tensor, q: Tensor | None, p: Tensor) -> Tensor:
    """Keep with p(x) instead of p(x) / q(x)."""
    return acceptance(tokens, None, p)


def always(tokens: Tensor, q: Tensor | None, p: Tensor) -> Tensor:
    return torch.ones(tokens.shape, dtype=p.dtype)


def at_another_temperature(scores: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    drawn = law(scores, SamplingParams(temperature=params.temperature))
    return drawn, law(scores, SamplingParams(temperature=params.temperature * 1.25))


def reported_untruncated(scores: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    drawn = law(scores, params)
    return drawn, law(scores, SamplingParams(temperature=params.temperature))


def penalty_of_the_past_only(
    params: SamplingParams, history: Sequence[int], logits: Tensor, drafted: Tensor
) -> Tensor:
    chain = Chain(params, list(history), CPU)
    return torch.cat([chain.scores(row[None], drafted[:0]) for row in logits])


def penalty_one_position_late(
    params: SamplingParams, history: Sequence[int], logits: Tensor, drafted: Tensor
) -> Tensor:
    chain = Chain(params, list(history), CPU)
    rows = [
        chain.scores(logits[: max(i, 1)], drafted[: max(i - 1, 0)])[-1:] for i in range(len(logits))
    ]
    return torch.cat(rows)


def check_every_k(rule: Rule, game: Game) -> None:
    """One drafted token shows the bonus among the first two, two show a second test."""
    for k in (1, 2):
        check_law(rule, game, k=k)


@pytest.mark.parametrize("game", [game_of(3), copy_game(3)], ids=["probabilities", "copied"])
def test_the_copy_with_nothing_wrong_passes(game: Game) -> None:
    check_every_k(Rule(accept=accept_with()), game)
    check_residual_without_mass(residual)


WRONG: dict[str, tuple[Rule, Game]] = {
    "residual without the clamp": (Rule(accept=accept_with(rest=without_clamp)), game_of(3)),
    "residual of absolute values": (Rule(accept=accept_with(rest=absolute)), game_of(3)),
    "recovered from p": (Rule(accept=accept_with(rest=target_again)), game_of(3)),
    "rejected token not left out": (Rule(accept=accept_with(rest=rejected_kept)), copy_game(3)),
    "kept with p alone": (Rule(accept=accept_with(kept=target_alone)), game_of(3)),
    "everything kept": (Rule(accept=accept_with(kept=always)), game_of(3)),
    "bonus from the first position": (
        Rule(accept=accept_with(bonus_from=torch.zeros_like)),
        game_of(3),
    ),
    "q at another temperature": (Rule(offer=at_another_temperature), game_of(3)),
    "q reported untruncated": (
        Rule(offer=reported_untruncated),
        game_of(3, CHAINS["top-k"]),
    ),
    "penalty not applied to the draft": (
        Rule(scores=penalty_of_the_past_only),
        game_of(3, CHAINS["penalty"]),
    ),
    "penalty one position late": (
        Rule(scores=penalty_one_position_late),
        game_of(3, CHAINS["penalty"]),
    ),
    "penalty not applied to a copied draft": (
        Rule(scores=penalty_of_the_past_only),
        copy_game(3, CHAINS["penalty"]),
    ),
}


@pytest.mark.parametrize("error", WRONG)
def test_a_wrong_rule_changes_the_law(error: str) -> None:
    rule, game = WRONG[error]
    with pytest.raises(AssertionError):
        check_every_k(rule, game)


def test_a_small_error_is_found_too() -> None:
    """One part in a hundred million of the target's mass at the wrong token."""

    def nearly(tokens: Tensor, q: Tensor | None, p: Tensor) -> Tensor:
        return acceptance(tokens, q, p) * (1 - 1e-7)

    with pytest.raises(AssertionError):
        check_law(Rule(accept=accept_with(kept=nearly)), game_of(3), k=1)


def test_no_fallback_at_zero_mass_is_found() -> None:
    with pytest.raises(AssertionError):
        check_residual_without_mass(without_fallback)


def test_no_fallback_shows_in_the_law_where_the_draft_is_certain_and_wrong() -> None:
    """A copied token that the target can't do without: its residual is empty, and a rule that
    rejects it by a hair has nothing left to draw from."""
    table = torch.full((5, 4), -torch.inf, dtype=torch.float64)
    table[:, 2] = 0.0
    game = Game(target=table, draft=None, copied=(2, 2))

    def by_a_hair(tokens: Tensor, q: Tensor | None, p: Tensor) -> Tensor:
        return acceptance(tokens, q, p) * (1 - 1e-7)

    check_law(Rule(accept=accept_with(kept=by_a_hair)), game, k=2)
    with pytest.raises(AssertionError):
        check_law(Rule(accept=accept_with(kept=by_a_hair, rest=without_fallback)), game, k=2)


def test_equal_laws_hide_no_error_of_the_residual() -> None:
    table = logits_table(4, 9)
    check_law(Rule(accept=accept_with()), Game(target=table, draft=table.clone()), k=2)


class _Shifted(KVCache):
    """Rolls back to `shift` tokens beside the place it was told."""

    shift = 0

    def rollback(self, row: int, length: int) -> None:
        super().rollback(row, length)
        self.lengths[row] = max(0, length + self.shift)


class _Trusted(_Shifted):
    """The same, and nobody looks: the round's own assertion is silent."""

    def check(self, row: int, tokens: int) -> None:
        self.lengths[row] = max(self.lengths[row], 0)


def shifted(kind: type[_Shifted], shift: int, model: Model) -> KVCache:
    cache = kind(model.architecture, rows=2, slots=512, dtype=model.dtype, device=model.device)
    cache.shift = shift
    return cache


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize(
    ("route", "k"), [("plain", 0), ("copy", 3), ("layer_skip", 3), ("exit_head", 3)]
)
def test_a_rollback_one_short_is_asserted_by_the_round(shift: int, route: str, k: int) -> None:
    model = tiny_model()
    with pytest.raises(AssertionError, match="write pointer"):
        generate(model, new_row(PROMPT), route, k, cache=shifted(_Shifted, shift, model))


@pytest.mark.parametrize("shift", [-1, 1])
def test_without_that_assertion_the_property_tests_would_find_it(shift: int) -> None:
    model = tiny_model()
    tokens = [(7 * i + 3) % 96 for i in range(40)]
    with pytest.raises(AssertionError):
        check_same_as_fresh(
            model,
            shifted(_Trusted, shift, model),
            [("feed", tokens), ("rollback", 11), ("feed", tokens[:5])],
        )


class _ShortFork(KVCache):
    """Copies one token less than it says."""

    def fork(self, source: int, target: int, length: int) -> None:
        super().fork(source, target, max(0, length - 1))
        self.lengths[target] = length


def test_a_fork_one_short_is_found() -> None:
    model = tiny_model()
    cache = _ShortFork(
        model.architecture, rows=2, slots=512, dtype=model.dtype, device=model.device
    )
    with pytest.raises(AssertionError):
        check_fork(model, cache)


class _SharedRows(KVCache):
    """Writes every row's tokens into the first row."""

    def write(self, layer: int, span: object, keys: Tensor, values: Tensor) -> None:
        from engine.cache import Span

        assert isinstance(span, Span)
        super().write(layer, Span(row=0, start=span.start, count=span.count), keys, values)


def test_rows_that_share_slots_are_found() -> None:
    model = tiny_model()
    cache = _SharedRows(
        model.architecture, rows=2, slots=512, dtype=model.dtype, device=model.device
    )
    with pytest.raises(AssertionError):
        check_fork(model, cache)
