"""Every route, every k: the tokens of plain decoding, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
import torch

from engine.cache import KVCache
from engine.config import Quant
from engine.decode import longest_draft, offers, prefill_step, run_round
from engine.draft.contract import Drafter, tap_of
from engine.draft.copy import CopyDrafter
from engine.draft.exit_head import ExitHeadDrafter
from engine.draft.layer_skip import LayerSkipDrafter
from engine.draft_length import Choice
from engine.model import Model
from engine.protocol import Route, SamplingParams
from engine.row import Row

from .tiny import new_row, tiny_model
from .tiny_heads import random_head

PROMPT = [random.Random(5).randrange(96) for _ in range(40)] * 2


def drafter_of(model: Model, route: str, exit_layer: int) -> Drafter | None:
    if route == "copy":
        return CopyDrafter(model.device)
    if route == "exit_head":
        return ExitHeadDrafter(model, random_head(model, first=1, jump=exit_layer, vocab=64))
    return LayerSkipDrafter(model, exit_layer) if route == "layer_skip" else None


def generate(
    model: Model, row: Row, route: str, k: int, exit_layer: int = 2, cache: KVCache | None = None
) -> tuple[list[int], KVCache]:
    drafter = drafter_of(model, route, exit_layer)
    drafters = {drafter.route: drafter} if drafter else {}
    return run_all(model, row, drafters, k, cache)


def run_all(
    model: Model,
    row: Row,
    drafters: Mapping[Route, Drafter],
    k: int,
    cache: KVCache | None = None,
) -> tuple[list[int], KVCache]:
    cache = cache or model.new_cache(2)
    while not prefill_step(model, cache, row, tap=tap_of(drafters.values())):
        pass
    while row.finished is None and cache.can_extend(row.cache_row, 1):
        longest = min(k, longest_draft(cache, row))
        found = offers(list(drafters.values()), row) if longest else {}
        chosen = next(iter(found), "plain")
        run_round(
            model, cache, row, drafters,
            Choice(route=chosen, k=longest if found else 0, reason="test"),
        )  # fmt: skip
    return row.output, cache


@pytest.mark.parametrize("quant", ["nf4", "int8", "none"])
@pytest.mark.parametrize("route", ["copy", "layer_skip", "exit_head"])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_greedy_is_bit_identical_to_plain(quant: Quant, route: str, k: int) -> None:
    model = tiny_model(quant)
    plain, plain_cache = generate(model, new_row(PROMPT, max_tokens=70), "plain", 0)
    text, cache = generate(model, new_row(PROMPT, max_tokens=70), route, k, exit_layer=3)
    assert text == plain
    length = cache.lengths[0]
    assert length == plain_cache.lengths[0] == len(PROMPT) + 70 - 1
    for ours, theirs in zip(cache.keys, plain_cache.keys, strict=True):
        assert torch.equal(ours[0, :, :length], theirs[0, :, :length])


@pytest.mark.parametrize("window", [17, 64, 100])
def test_sliding_window_keeps_it(window: int) -> None:
    model = tiny_model(window=window)
    plain, _ = generate(model, new_row(PROMPT, max_tokens=70), "plain", 0)
    for route in ("layer_skip", "exit_head"):
        assert generate(model, new_row(PROMPT, max_tokens=70), route, 4)[0] == plain


@pytest.mark.parametrize("exit_layer", [1, 2, 3])
def test_every_exit_layer(exit_layer: int) -> None:
    model = tiny_model()
    plain, _ = generate(model, new_row(PROMPT), "plain", 0)
    assert generate(model, new_row(PROMPT), "layer_skip", 3, exit_layer)[0] == plain


def test_penalty_is_applied_at_every_position() -> None:
    model = tiny_model()
    params = SamplingParams(repetition_penalty=1.7)
    plain, _ = generate(model, new_row(PROMPT, params), "plain", 0)
    bare, _ = generate(model, new_row(PROMPT), "plain", 0)
    assert plain != bare
    for route in ("copy", "layer_skip", "exit_head"):
        assert generate(model, new_row(PROMPT, params), route, 4)[0] == plain


def test_stop_token_inside_a_draft_is_cut_after_acceptance() -> None:
    model = tiny_model()
    plain, _ = generate(model, new_row(PROMPT), "plain", 0)
    for position in range(len(plain)):
        stop = frozenset({plain[position]})
        row = new_row(PROMPT, stop_ids=stop)
        text, cache = generate(model, row, "layer_skip", 5, exit_layer=3)
        first = plain.index(plain[position])
        assert text == plain[: first + 1]
        assert row.finished == "stop"
        cache.check(0, len(row.tokens) - 1)


class KnowingDrafter(CopyDrafter):
    """Drafts what it was told that the model will say."""

    def __init__(self, coming: list[int]) -> None:
        super().__init__(torch.device("cpu"))
        self._coming = coming

    def evidence(self, row: Row) -> int | None:
        return 0

    def guess(self, row: Row, k: int) -> list[int]:
        return self._coming[:k]


@pytest.mark.parametrize("at", range(4))
def test_drafts_behind_a_stop_token_are_not_counted(at: int) -> None:
    model, params = tiny_model(), SamplingParams(repetition_penalty=1.7)
    plain, _ = generate(model, new_row(PROMPT, params), "plain", 0)
    assert plain[at] not in plain[:at]
    row, cache = new_row(PROMPT, params, stop_ids=frozenset({plain[at]})), model.new_cache(2)
    while not prefill_step(model, cache, row):
        pass
    drafters: dict[Route, Drafter] = {"copy": KnowingDrafter(plain)}
    done = run_round(model, cache, row, drafters, Choice(route="copy", k=3, reason="test"))
    assert row.output == plain[: at + 1]
    assert done.emitted == len(row.output)
    assert (done.drafted, done.tested, done.accepted) == (3, at, at)
    assert done.ended_by_draft == (at < 3), "a bonus token is no draft"


def test_answer_ends_at_the_last_slot() -> None:
    model = tiny_model(context=128)
    for route in ("plain", "copy", "layer_skip", "exit_head"):
        row = new_row(PROMPT, max_tokens=500)
        text, cache = generate(model, row, route, 6)
        assert len(text) == 128 - len(PROMPT) + 1
        assert cache.lengths[0] == 128


def test_stale_slots_do_not_matter() -> None:
    """What a rejected draft left beyond the pointer can't reach a later token."""
    model = tiny_model()
    clean, _ = generate(model, new_row(PROMPT), "plain", 0)
    for route in ("layer_skip", "exit_head"):
        dirty = model.new_cache(2)
        for block in (*dirty.keys, *dirty.values):
            block.fill_(1e4)
        assert generate(model, new_row(PROMPT), route, 4, cache=dirty)[0] == clean
