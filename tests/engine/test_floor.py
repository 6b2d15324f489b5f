"""The floor's arithmetic: what a token moves, and what follows from the measured speeds."""

from __future__ import annotations

import pytest

from engine.floor import floor_of, matrix_bytes
from engine.memory_plan import MIB
from tests.engine.tiny_session import tiny_loaded, tiny_session

STREAM = 8 * MIB


@pytest.fixture(scope="module")
def loaded_bytes() -> int:
    return matrix_bytes(tiny_loaded().model)


def test_a_token_moves_every_matrix_once_and_the_cache_before_it(loaded_bytes: int) -> None:
    session = tiny_session()
    short, long = (
        floor_of(session, context_tokens=context, turns=2, stream_bytes=STREAM)
        for context in (16, 48)
    )
    per_token = session.slots.cache.bytes_per_token
    assert short.bytes_per_token == loaded_bytes + 16 * per_token
    assert long.bytes_per_token == loaded_bytes + 48 * per_token


def test_matrices_are_counted_as_they_lie_in_memory() -> None:
    plain, packed = (matrix_bytes(tiny_loaded(quant=quant).model) for quant in ("none", "nf4"))
    model = tiny_loaded(quant="none").model
    first = model.layers[0]
    widths = sum(m.out_features for m in (first.qkv, first.o, first.up)) * 2
    inner = first.up.out_features // (2 if model.architecture.gated else 1)
    expected = len(model.layers) * model.architecture.hidden * (widths + inner * 2)
    assert plain == expected + model.architecture.vocab * model.architecture.hidden * 2
    assert 0.25 < packed / plain < 0.5, "four bits and scales instead of sixteen"


def test_the_figures_follow_from_each_other() -> None:
    found = floor_of(tiny_session(), context_tokens=32, turns=2, stream_bytes=STREAM)
    assert found.floor_ms == pytest.approx(found.bytes_per_token / found.read_gb_s / 1e6)
    assert found.reached == pytest.approx(found.floor_ms / found.plain_ms)
    assert found.copy_gb_s > 0
    assert 0 < found.reached < 1, "a tiny model is all overhead"


def test_a_context_beyond_the_model_is_cut_and_conversations_stay() -> None:
    session = tiny_session()
    session.slots.cache.lengths[0] = 7
    found = floor_of(session, context_tokens=10**6, turns=1, stream_bytes=STREAM)
    assert found.context_tokens == session.context_tokens - 1
    assert session.slots.cache.lengths[0] == 7
