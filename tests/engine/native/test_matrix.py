"""The NF4 kernel: what it computes, and that a row's bits do not depend on its company."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.linear import Linear
from engine.native.bindings import Native
from engine.nf4_tiles import BLOCK, TILE_ROWS
from engine.quant import pack, unpack

CODES = (
    -1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
)  # fmt: skip
HEIGHTS = {"one tile": 32, "odd": 77, "even but not whole": 160 - 2, "many": 1024}
WIDTHS = (64, 192, 896)


def made(height: int, wide: int, *, biased: bool = True) -> tuple[dict[str, Tensor], Tensor | None]:
    random = torch.Generator().manual_seed(height * wide)
    weight = torch.randn(height, wide, generator=random) * torch.rand(height, 1, generator=random)
    bias = torch.randn(height, generator=random).to(torch.bfloat16) if biased else None
    return pack(weight.to(torch.bfloat16), "nf4", "cpu"), bias


def rows_of(count: int, wide: int) -> Tensor:
    x = torch.randn(count, wide, generator=torch.Generator().manual_seed(count))
    x[:, wide // 2] *= 30  # as real activations have
    x[0, :BLOCK] = 0
    return x.to(torch.bfloat16)


def exact(parts: dict[str, Tensor], bias: Tensor | None, x: Tensor) -> Tensor:
    """The product in float64, read from the layout's description in `nf4_tiles.py`."""
    tiles = parts["tiles"].reshape(-1, TILE_ROWS)
    tall, wide = len(parts["tiles"]), x.shape[1]
    codes = torch.cat((tiles & 15, tiles >> 4), dim=1).reshape(-1, wide // 2, TILE_ROWS, 2)
    values = torch.tensor(CODES, dtype=torch.float64)[
        codes.transpose(1, 2).reshape(tall, wide).long()
    ]
    weight = values * parts["absmax"].double().t().repeat_interleave(BLOCK, 1)
    out = x.double() @ weight[: int(parts["height"])].t()
    return out if bias is None else out + bias.double()


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("wide", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS.values(), ids=HEIGHTS)
def test_the_product_is_right(native: Native, height: int, wide: int, biased: bool) -> None:
    parts, bias = made(height, wide, biased=biased)
    x = rows_of(9, wide)
    expected = exact(parts, bias, x)
    error = unpack(parts, bias, native)(x).double() - expected
    # Eight bits a block of 64, one of them large: NF4 itself is off by nine percent.
    assert error.std() < 0.03 * expected.std()


@pytest.mark.parametrize("wide", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS.values(), ids=HEIGHTS)
def test_every_number_of_rows_gives_each_row_the_same_bits(
    native: Native, height: int, wide: int
) -> None:
    linear = unpack(*made(height, wide), native)
    x = rows_of(200, wide)
    single = torch.cat([linear(row[None]) for row in x])
    for rows in (*range(2, 20), 31, 63, 64, 65, 127, 200):
        assert torch.equal(linear(x[:rows]), single[:rows]), f"{rows} rows"
        assert torch.equal(linear(x[-rows:]), single[-rows:]), f"the last {rows} rows"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_bits(native: Native, threads: int) -> None:
    linear: Linear = unpack(*made(1024, 192), native)
    x, before = rows_of(5, 192), torch.get_num_threads()
    expected = linear(x)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(linear(x), expected)
    finally:
        torch.set_num_threads(before)


def test_the_first_outputs_are_those_of_the_whole(native: Native) -> None:
    linear = unpack(*made(300, 192), native)
    x = rows_of(3, 192)
    assert torch.equal(linear.first(64)(x), linear(x)[:, :64])


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("count", [64, 45])
def test_some_outputs_have_the_bits_of_the_whole(native: Native, count: int, biased: bool) -> None:
    linear = unpack(*made(300, 192, biased=biased), native)
    ids = torch.randperm(300, generator=torch.Generator().manual_seed(count))[:count]
    part, x = linear.rows(ids), rows_of(9, 192)
    assert part.out_features == count
    assert torch.equal(part(x), linear(x)[:, ids])


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_some_inputs_are_those_of_the_whole(native: Native, biased: bool) -> None:
    parts, bias = made(77, 320, biased=biased)
    linear, x = unpack(parts, bias, native), rows_of(9, 320)
    every = linear.columns(torch.arange(320))
    assert torch.equal(every(x), linear(x))
    ids = torch.randperm(320, generator=torch.Generator().manual_seed(1))[:128]
    part, only = linear.columns(ids), torch.zeros_like(x)
    only[:, ids] = x[:, ids]
    expected = exact(parts, bias, only)
    error = part(x[:, ids].contiguous()).double() - expected
    assert part.out_features == 77
    assert error.std() < 0.1 * expected.std()
