"""Parts of matrices: rows keep their codes, columns are rounded anew, and every kind of matrix
multiplies by the part that was taken."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.linear import Linear
from engine.nf4_tiles import (
    BLOCK,
    LEVELS,
    TILE_ROWS,
    Tiles,
    columns_of,
    in_tiles,
    quantized,
    rows_of,
)
from engine.quant import cpu_library, pack, unpack

KINDS = ("none", "int8", "blocks", *(("tiles",) if cpu_library() is not None else ()))


def random_weight(height: int, wide: int, seed: int = 0) -> Tensor:
    """Rows of unlike sizes, as real ones are."""
    random = torch.Generator().manual_seed(1000 * seed + height + wide)
    sizes = torch.rand(height, 1, generator=random) + 0.1
    return (torch.randn(height, wide, generator=random) * sizes).to(torch.bfloat16)


def packed(weight: Tensor) -> Tiles:
    """With bitsandbytes' rounding."""
    from bitsandbytes import functional as bnb

    filled = F.pad(weight, (0, 0, 0, -len(weight) % TILE_ROWS))
    pairs, state = bnb.quantize_4bit(
        filled, blocksize=BLOCK, quant_type="nf4", compress_statistics=False
    )
    codes = torch.stack((pairs.reshape(-1) >> 4, pairs.reshape(-1) & 15), dim=1)
    scales = state.absmax.reshape(len(filled), -1)
    return in_tiles(codes.reshape(filled.shape), scales)


def dense(matrix: Tiles) -> Tensor:  # (out padded, in) float32
    """What the bytes stand for, read weight by weight from the layout's description."""
    tiles, absmax = matrix
    tall, wide = tiles.shape[0], tiles.shape[1] * 2
    row, column = torch.arange(tall)[:, None], torch.arange(wide)[None]
    within = row % TILE_ROWS
    # In a tile: pairs of columns one after another, 32 bytes each; half the rows in each nibble.
    at = (row // TILE_ROWS * (wide // 2) + column // 2) * TILE_ROWS
    codes = tiles.reshape(-1)[at + within % 16 * 2 + column % 2].int()
    codes = torch.where(within < 16, codes & 15, codes >> 4)
    return torch.tensor(LEVELS)[codes] * absmax.float()[column // BLOCK, row]


def same(found: Tiles, wanted: Tiles) -> bool:
    return all(torch.equal(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))


def some(count: int, whole: int) -> Tensor:
    return torch.randperm(whole, generator=torch.Generator().manual_seed(count))[:count]


@pytest.mark.parametrize(
    ("height", "wide", "count"),
    [
        (32, 64, 1), (32, 192, 31), (32, 64, 32), (77, 192, 15), (77, 64, 64), (77, 192, 77),
        (160, 64, 33), (160, 192, 70),
    ],
)  # fmt: skip
def test_rows_keep_their_codes_and_scales(height: int, wide: int, count: int) -> None:
    weight = random_weight(height, wide)
    rows = some(count, height)
    found = rows_of(packed(weight), rows)
    full = len(rows) + -len(rows) % TILE_ROWS
    assert found[0].shape == (full, wide // 2)
    assert found[1].shape == (wide // BLOCK, full)
    assert torch.equal(dense(found)[: len(rows)], dense(packed(weight))[rows])
    assert not dense(found)[len(rows) :].any()
    assert same(found, packed(weight[rows]))


def test_rows_may_come_in_any_order_and_twice() -> None:
    weight = random_weight(96, 64)
    rows = torch.tensor([95, 0, 17, 17, 48, 31, 32])
    found = dense(rows_of(packed(weight), rows))
    assert torch.equal(found[: len(rows)], dense(packed(weight))[rows])


@pytest.mark.parametrize(("height", "wide"), [(32, 64), (77, 256)])
def test_all_columns_are_the_same_bytes(height: int, wide: int) -> None:
    whole = packed(random_weight(height, wide))
    assert same(columns_of(whole, torch.arange(wide)), whole)


@pytest.mark.parametrize(("height", "count"), [(32, 64), (77, 192)])
def test_some_columns_are_rounded_anew(height: int, count: int) -> None:
    whole = packed(random_weight(height, 320))
    for columns in (some(count, 320), some(count, 320).sort().values):
        found = columns_of(whole, columns)
        exact = dense(whole)[:, columns]
        assert same(found, quantized(exact))
        error = (dense(found) - exact).norm() / exact.norm()
        assert 0.0 < float(error) < 0.1  # NF4 of random numbers is off by about as much


def test_whole_blocks_of_columns_lose_nothing() -> None:
    whole = packed(random_weight(64, 320))
    columns = torch.cat((torch.arange(192, 256), torch.arange(64)))
    assert torch.equal(dense(columns_of(whole, columns)), dense(whole)[:, columns])


def test_codes_are_the_nearest_levels() -> None:
    weight = random_weight(64, 192).float()
    tiles, absmax = quantized(weight)
    blocks = weight.reshape(64, 3, BLOCK)
    assert torch.equal(absmax.t(), blocks.abs().amax(dim=2).bfloat16())
    scaled = blocks / blocks.abs().amax(dim=2, keepdim=True)
    nearest = (scaled[..., None] - torch.tensor(LEVELS)).abs().amin(dim=3)
    units = dense((tiles, torch.ones_like(absmax))).reshape(64, 3, BLOCK)
    torch.testing.assert_close((units - scaled).abs(), nearest, rtol=0, atol=1e-6)
    # bitsandbytes' own rounding has the same codes.
    assert same((tiles, absmax), packed(weight))


def test_blocks_of_zeros_stay_zero() -> None:
    weight = random_weight(32, 128).float()
    weight[:, 64:] = 0
    weight[5] = 0
    found = dense(quantized(weight))
    assert not found[:, 64:].any()
    assert not found[5].any()
    assert found[4, :64].any()


def test_every_code_has_its_place() -> None:
    codes = torch.randint(0, 16, (64, 128), generator=torch.Generator().manual_seed(3))
    absmax = torch.ones(64, 2)
    found = dense(in_tiles(codes.to(torch.uint8), absmax))
    assert torch.equal(found, torch.tensor(LEVELS)[codes])


def linear_of(kind: str, weight: Tensor, bias: Tensor | None) -> Linear:
    quant = kind if kind in ("none", "int8") else "nf4"
    device = "cuda" if kind == "blocks" else "cpu"  # the layout of that device, on this one
    parts = pack(weight, quant, device)  # type: ignore[arg-type]
    assert {"tiles": "tiles", "blocks": "nf4", "none": "dense"}.get(kind, kind) in parts
    return unpack(parts, bias)


def multiplied(linear: Linear, wide: int) -> Tensor:  # (out, in) float32
    """The matrix that is multiplied by, without its bias."""
    nothing = linear(torch.zeros(1, wide, dtype=torch.bfloat16)).float()
    return (linear(torch.eye(wide, dtype=torch.bfloat16)).float() - nothing).t()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_kind_have_the_bits_of_the_whole(kind: str) -> None:
    bias = random_weight(90, 1, seed=2)[:, 0]
    whole = linear_of(kind, random_weight(90, 192), bias)
    x = random_weight(5, 192, seed=1)
    for ids in (some(64, 90), some(45, 90)):
        part = whole.rows(ids)
        assert part.out_features == len(ids)
        assert part.nbytes < whole.nbytes
        torch.testing.assert_close(part(x).float(), whole(x)[:, ids].float(), rtol=0.02, atol=0.02)
        if kind != "none":  # torch picks the kernel of a dense one by its height
            assert torch.equal(part(x), whole(x)[:, ids])


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_every_kind_are_those_of_the_whole(kind: str) -> None:
    bias = random_weight(90, 1, seed=2)[:, 0]
    whole = linear_of(kind, random_weight(90, 192), bias)
    rounding = 0.1 if kind in ("tiles", "blocks") else 0.0
    for ids in (some(128, 192), torch.arange(64, 128)):
        part = whole.columns(ids)
        assert part.out_features == 90
        assert part.nbytes < whole.nbytes
        x = torch.zeros(5, 192, dtype=torch.bfloat16)
        x[:, ids] = random_weight(5, len(ids), seed=1)
        found, wanted = part(x[:, ids].contiguous()).float(), whole(x).float()
        off = float((found - wanted).norm() / wanted.norm())
        assert off < rounding + 0.01
        nothing = torch.zeros(2, len(ids), dtype=torch.bfloat16)
        assert torch.equal(part(nothing).float(), bias.float().expand(2, 90))


@pytest.mark.parametrize("kind", KINDS)
def test_all_columns_multiply_by_the_same_matrix(kind: str) -> None:
    """Without a bias there is none afterwards."""
    whole = linear_of(kind, random_weight(64, 128), None)
    every = whole.columns(torch.arange(128))
    torch.testing.assert_close(multiplied(every, 128), multiplied(whole, 128), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_have_memory_of_their_own_and_rows_without_company(kind: str) -> None:
    whole = linear_of(kind, random_weight(96, 128), None)
    before = whole(random_weight(9, 128, seed=4))
    for part, wide in ((whole.rows(some(64, 96)), 128), (whole.columns(some(64, 128)), 64)):
        x = random_weight(9, wide, seed=4)
        alone = torch.cat([part(row[None]) for row in x])
        assert torch.equal(part(x), alone)
    assert torch.equal(whole(random_weight(9, 128, seed=4)), before)
