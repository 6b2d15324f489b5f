"""The kernel's attention: right, and blind to company, to threads and to what it must not see.

Row invariance is tested as decoding needs it: bits of a query in a call of many against its bits in
a call of its own, where blocks (64 slots), chunks (512) and windows end. Unseen slots hold NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.native.bindings import Attention, Native

SHAPES = {
    "qwen-1.5b": (12, 2, 128),
    "qwen-0.5b": (14, 2, 64),
    "qwen-7b": (28, 4, 128),
    "one kv head, wide": (3, 1, 256),
    "no groups, odd width": (3, 3, 96),
}
BORDERS = (64, 448, 512, 576, 1024)
SLOTS = 1280


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Noise in the shape of one cache row and of a pass's queries."""

    queries: Tensor  # (SLOTS, H, E) bf16, one for every position
    keys: Tensor  # (G, SLOTS, E) bf16
    values: Tensor

    @property
    def scale(self) -> float:
        return self.keys.shape[2] ** -0.5


Attend = Callable[..., Tensor]


@pytest.fixture(scope="module")
def attend(native: Native) -> Attend:
    """The kernel as a function of (case, start, rows); its scratch is kept from call to call."""
    scratch: dict[tuple[int, ...], Tensor] = {}

    def call(case: Case, start: int, rows: int, window: int = 0, threads: int = 2) -> Tensor:
        queries = case.queries[start : start + rows].contiguous()
        _, heads, head_dim = queries.shape
        kv_heads, slots, _ = case.keys.shape
        shape = heads, kv_heads, head_dim, slots, threads
        room = scratch.setdefault(shape, torch.zeros(native.attend_scratch(*shape)))
        out = torch.full_like(queries, torch.nan)
        given = Attention(
            q=queries.data_ptr(), k=case.keys.data_ptr(), v=case.values.data_ptr(),
            out=out.data_ptr(), scratch=room.data_ptr(), head_stride=slots * head_dim,
            rows=rows, start=start, window=window, heads=heads, kv_heads=kv_heads,
            head_dim=head_dim, scale=case.scale,
        )  # fmt: skip
        native.run_attention(ctypes.byref(given), threads)
        return out

    return call


def noise(shape: tuple[int, int, int], *, sharp: float = 1.0) -> Case:
    heads, kv_heads, head_dim = shape
    random = torch.Generator().manual_seed(heads)
    drawn = [
        torch.randn(size, generator=random)
        for size in ((SLOTS, heads, head_dim), *[(kv_heads, SLOTS, head_dim)] * 2)
    ]
    queries, keys, values = (one.to(torch.bfloat16) for one in drawn)
    return Case(queries=queries * sharp, keys=keys, values=values)


def hidden_from(case: Case, end: int) -> Case:
    """The same case with NaN in every slot from `end` on."""
    keys, values = case.keys.clone(), case.values.clone()
    keys[:, end:], values[:, end:] = torch.nan, torch.nan
    return Case(queries=case.queries, keys=keys, values=values)


def reference(case: Case, start: int, rows: int, window: int) -> Tensor:
    """The definition in float64: (rows, H, E)."""
    group = case.queries.shape[1] // case.keys.shape[0]
    keys, values = (
        x[:, : start + rows].double().repeat_interleave(group, 0) for x in (case.keys, case.values)
    )
    queries = case.queries[start : start + rows].double()
    scores = torch.einsum("the,hse->hts", queries, keys) * case.scale
    position = torch.arange(start, start + rows)[:, None]
    slot = torch.arange(start + rows)
    seen = (slot <= position) & (slot > position - (window or SLOTS))
    law = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hts,hse->the", law, values)


@pytest.mark.parametrize("sharp", [1.0, 8.0])
@pytest.mark.parametrize("window", [0, 100, 700])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_is_the_definition_of_attention(
    attend: Attend, shape: tuple[int, int, int], window: int, sharp: float
) -> None:
    case = noise(shape, sharp=sharp)
    for start, rows in ((0, 1), (0, 64), (63, 2), (200, 1), (511, 4), (1000, 20)):
        got = attend(hidden_from(case, start + rows), start, rows, window)
        exact = reference(case, start, rows, window)
        # Weights and result are rounded to 8 bits each.
        bound = exact.abs() * 2**-8 + case.values.abs().max() * 2**-9
        assert (got.double() - exact).abs().le(bound).all(), f"{rows} rows from {start}"


@pytest.mark.parametrize("window", [0, 100, 513])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_query_gets_the_same_bits_in_any_company_and_on_any_threads(
    attend: Attend, shape: tuple[int, int, int], window: int
) -> None:
    case = noise(shape)
    for start in (border - ahead for border in BORDERS for ahead in (1, 2, 9)):
        singles = torch.cat([attend(case, start + i, 1, window, threads=1) for i in range(64)])
        for rows in (2, 3, 8, 16, 17, 33, 64):
            threads = 1 + (start + rows) % 4
            together = attend(hidden_from(case, start + rows), start, rows, window, threads)
            assert torch.equal(together.view(torch.int16), singles[:rows].view(torch.int16)), (
                f"{rows} rows from {start} on {threads} threads"
            )


def test_what_later_rows_of_the_same_pass_wrote_can_not_spoil_earlier_ones(
    attend: Attend,
) -> None:
    case = noise(SHAPES["qwen-0.5b"])
    clean = attend(case, 500, 20)
    for spoilt in (501, 511, 512, 519):
        found = attend(hidden_from(case, spoilt), 500, 20)
        assert torch.equal(found[: spoilt - 500], clean[: spoilt - 500])
        assert found[spoilt - 500 :].isnan().all()


def test_repeated_calls_find_the_scratch_as_the_first_one_did(attend: Attend) -> None:
    case = noise(SHAPES["qwen-1.5b"])
    first = attend(case, 1100, 4, threads=2)
    for rows in (1, 64, 9, 4):
        attend(case, 700, rows, threads=2)
        assert torch.equal(attend(case, 1100, 4, threads=2), first)
