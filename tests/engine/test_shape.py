"""Random weights of a real size: laid out apart, timed, and refused where they don't fit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from app.bench_shape import EXCLUDED, shape_lines
from engine.config import LoadSettings
from engine.memory_plan import PRESETS
from engine.protocol import MemoryLimitError, RequestError
from engine.shape import architecture_for, measure_shape, random_tensors, sizes_of

TINY = replace(
    PRESETS["qwen2.5-coder-0.5b"],
    layers=8,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=128,
    vocab=96,
    context_tokens=200,
    parameters=400_000,
)


def test_a_shape_is_known_with_and_without_its_trade() -> None:
    assert sizes_of("qwen2.5-7b") is PRESETS["qwen2.5-coder-7b"]
    assert sizes_of("Qwen2.5-Coder-7B") is PRESETS["qwen2.5-coder-7b"]
    with pytest.raises(RequestError, match="the sizes of gpt-9 are not known"):
        sizes_of("gpt-9")


def test_every_layer_has_memory_of_its_own() -> None:
    tensors = random_tensors(architecture_for(TINY), "nf4", "cpu", lambda _: None)
    places = [tensor.data_ptr() for tensor in tensors.values() if tensor.numel() > 1]
    assert len(places) == len(set(places))


def test_passes_are_timed_and_acceptance_is_excluded() -> None:
    told: list[str] = []
    report = measure_shape("tiny", TINY, LoadSettings(device="cpu"), None, told.append)
    (costs,) = report.costs
    assert costs.context_tokens == 128
    assert costs.pass_ratio[1] == 1.0
    assert costs.plain_ms > 0
    assert costs.draft_ratio["1+2"] > 0
    assert told
    lines = shape_lines(report)
    assert lines[-1] == EXCLUDED
    assert "acceptance" in EXCLUDED
    assert "r(8)" in lines[1]


def test_what_does_not_fit_is_refused_before_anything_is_laid_out() -> None:
    huge = replace(PRESETS["qwen2.5-coder-7b"], layers=100_000, parameters=10**14)
    told: list[str] = []
    with pytest.raises(MemoryLimitError, match="huge needs"):
        measure_shape("huge", huge, LoadSettings(device="cpu"), None, told.append)
    assert not told
