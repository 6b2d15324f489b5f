"""The plan's arithmetic against sums made here by hand, and its two promises: what it calls the
longest context fits, and a refusal carries the numbers and a way out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.memory_plan import (
    CONTEXT_STEP,
    DEFAULT_ROWS,
    GIB,
    LEAST_CONTEXT_TOKENS,
    PRESETS,
    Kernels,
    MemoryPlan,
    ModelSizes,
    available_host_bytes,
    gib,
    plan,
    plan_within,
    preset_of,
    weight_bytes,
)
from engine.protocol import MemoryLimitError

SEVEN = PRESETS["qwen2.5-coder-7b"]
TINY = ModelSizes(
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    feed_forward=128,
    vocab=640,
    context_tokens=4096,
    parameters=2 * 640 * 64 + 64_000,
    tied_head=False,
)


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("qwen2")])
def test_presets_count_every_tensor_of_qwen2(name: str) -> None:
    sizes = PRESETS[name]
    query = sizes.heads * sizes.head_dim
    keys = sizes.kv_heads * sizes.head_dim
    attention = sizes.hidden * (2 * query + 2 * keys) + query + 2 * keys  # q, k, v have biases
    layer = attention + 3 * sizes.hidden * sizes.feed_forward + 2 * sizes.hidden
    table = sizes.vocab * sizes.hidden
    assert sizes.parameters == sizes.layers * layer + 2 * table + sizes.hidden


def test_weights_by_hand() -> None:
    table, body = 640 * 64, 64_000
    blocks = (table + body) // 64
    assert weight_bytes(TINY, "none") == 2 * (body + 2 * table)
    assert weight_bytes(TINY, "nf4", "cpu_packed") == (body + table) // 2 + 2 * blocks + 2 * table
    assert weight_bytes(TINY, "nf4", "cuda") == (body + table) // 2 + 4 * blocks + 2 * table
    # q 64, k and v 32 each, o 64, gate and up 128 each, down 64: one bf16 scale per output row
    rows = 2 * (64 + 2 * 32 + 64 + 2 * 128 + 64) + 640
    assert weight_bytes(TINY, "int8") == body + table + 2 * rows + 2 * table


def test_a_tied_head_is_held_beside_its_table() -> None:
    tied = ModelSizes(
        **{name: getattr(TINY, name) for name in TINY.__struct_fields__[:-2]},
        parameters=TINY.parameters - 640 * 64,
        tied_head=True,
    )
    for quant in ("nf4", "int8", "none"):
        assert weight_bytes(tied, quant) == weight_bytes(TINY, quant)


def test_seven_billion_at_32k_fits_24_gib() -> None:
    made = plan(
        SEVEN,
        quant="nf4",
        context_tokens=32_768,
        rows=1,
        available_bytes=24 * GIB,
        kernels="cuda",
    )
    assert made.kv == 57_344 * 32_768
    assert 4.6 * GIB < made.weights < 4.9 * GIB
    assert made.fits
    assert made.longest_context == 32_768
    made.require_fits()


def test_kv_grows_with_rows_and_is_allocated_in_steps() -> None:
    def kv(context: int, rows: int) -> int:
        return plan(TINY, quant="nf4", context_tokens=context, rows=rows, available_bytes=GIB).kv

    assert kv(128, 3) == 3 * kv(128, 1) == 3 * 128 * TINY.kv_bytes_per_token
    assert kv(65, 1) == kv(128, 1)


@given(
    available=st.integers(0, 40 * GIB),
    rows=st.integers(1, 4),
    kernels=st.sampled_from(["cpu_packed", "cpu_dequant", "cuda"]),
    quant=st.sampled_from(["nf4", "int8", "none"]),
    name=st.sampled_from(sorted(PRESETS)),
)
def test_the_longest_context_fits_and_the_next_step_does_not(
    available: int, rows: int, kernels: Kernels, quant: str, name: str
) -> None:
    sizes = PRESETS[name]

    def fits(context: int) -> bool:
        return plan(
            sizes,
            quant=quant,  # type: ignore[arg-type]
            context_tokens=context,
            rows=rows,
            available_bytes=available,
            kernels=kernels,
        ).fits

    longest = plan(
        sizes,
        quant=quant,  # type: ignore[arg-type]
        context_tokens=64,
        rows=rows,
        available_bytes=available,
        kernels=kernels,
    ).longest_context
    assert longest == 0 or fits(longest)
    assert longest == sizes.context_tokens or not fits(longest + CONTEXT_STEP)


def test_a_refusal_names_the_numbers_and_a_context_that_fits() -> None:
    made = plan(SEVEN, quant="nf4", context_tokens=32_768, rows=1, available_bytes=6 * GIB)
    with pytest.raises(MemoryLimitError) as caught:
        made.require_fits("qwen2.5-coder-7b")
    assert caught.value.exit_code == 4
    for part in ("qwen2.5-coder-7b", gib(made.total), gib(made.weights), gib(made.kv), "6.00 GiB"):
        assert part in caught.value.message
    assert f"--context {made.longest_context}" in caught.value.hint
    assert 0 < made.longest_context < 32_768
    plan(
        SEVEN,
        quant="nf4",
        context_tokens=made.longest_context,
        rows=1,
        available_bytes=6 * GIB,
    ).require_fits()


def test_a_refusal_proposes_four_bits_or_a_smaller_model() -> None:
    def hint(quant: str, available: int) -> str:
        made = plan(
            SEVEN,
            quant=quant,  # type: ignore[arg-type]
            context_tokens=1024,
            rows=1,
            available_bytes=available,
        )
        with pytest.raises(MemoryLimitError) as caught:
            made.require_fits()
        return caught.value.hint

    assert "--quant nf4" in hint("none", 8 * GIB)
    assert "smaller model" in hint("nf4", 2 * GIB)


def test_presets_answer_to_hub_ids() -> None:
    assert preset_of("Qwen/Qwen2.5-Coder-7B-Instruct") is SEVEN
    assert preset_of("qwen2.5-coder-7b") is SEVEN
    assert preset_of("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF") is PRESETS["qwen2.5-coder-0.5b"]
    assert preset_of("someone/else-7b") is None


def test_the_machine_has_some_memory() -> None:
    assert 64 << 20 < available_host_bytes() < 1 << 50
    assert gib(3 * GIB // 2) == "1.50 GiB"
    assert gib(5 << 20) == "5 MiB"


def within(context: int | None, available: int, *, least_rows: int = 2) -> MemoryPlan:
    return plan_within(
        SEVEN,
        quant="nf4",
        context_tokens=context,
        least_rows=least_rows,
        available_bytes=available,
        kernels="cpu_packed",
    )


def needed(context: int, rows: int) -> int:
    return plan(SEVEN, quant="nf4", context_tokens=context, rows=rows, available_bytes=0).total


@pytest.mark.parametrize("context", [None, 8192])
@pytest.mark.parametrize("rows", [2, 3, 4])
def test_as_many_conversations_are_kept_as_fit(context: int | None, rows: int) -> None:
    just = needed(context or 16_384, rows)
    made = within(context, just)
    assert (made.rows, made.context_tokens, made.fits) == (rows, context or 16_384, True)
    if rows > 2:
        assert within(context, just - 1).rows == rows - 1


def test_more_rows_than_usual_are_kept_when_asked_for() -> None:
    assert within(1024, 64 * GIB, least_rows=9).rows == 9
    assert within(1024, 64 * GIB).rows == DEFAULT_ROWS


def test_a_context_that_was_not_asked_for_is_shortened_to_what_fits() -> None:
    made = within(None, needed(5000, 2))
    assert (made.rows, made.fits) == (2, True)
    assert made.context_tokens == 5056  # whole steps
    assert not within(made.context_tokens + CONTEXT_STEP, needed(5000, 2)).fits


def test_one_that_was_asked_for_is_not() -> None:
    made = within(8192, needed(5000, 2))
    assert (made.context_tokens, made.fits) == (8192, False)
    with pytest.raises(MemoryLimitError, match="2 × 8,192"):
        made.require_fits()


def test_nor_is_any_shortened_to_next_to_nothing() -> None:
    short = within(None, needed(LEAST_CONTEXT_TOKENS - CONTEXT_STEP, 2))
    assert not short.fits
    assert within(None, needed(LEAST_CONTEXT_TOKENS, 2)).context_tokens == LEAST_CONTEXT_TOKENS


def test_a_limit_of_the_address_space_counts() -> None:
    program = (
        "import resource, psutil; from engine.memory_plan import available_host_bytes as free\n"
        "size = psutil.Process().memory_info().vms\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20),) * 2)\n"
        "assert 128 << 20 < free() <= 256 << 20, free()"
    )
    root = str(Path(__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": root}, check=True
    )
