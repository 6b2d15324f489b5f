"""NF4 in tiles of 32 outputs, as the CPU kernels read them: how codes lie there, and parts of them.

A tile holds 32 rows of a matrix. Two adjacent weights of each row are a pair; the pairs of all rows
at the same place lie side by side, 64 codes, the first half of them in the low nibbles of 32 bytes
and the second half in the high ones. The scale of 64 weights of a row stands beside those of the
other rows. Pure bytes: it multiplies nothing and knows no library.

Invariant: rows taken out of a matrix have its codes and scales; columns are rounded anew, because
64 other weights share a scale then.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 64
"""Weights that share one scale (QLoRA, Dettmers et al. 2023, §3; blocksize 64)."""
TILE_ROWS = 32
"""The CPU kernels compute 32 outputs at a time; other heights are filled up with zero rows."""
_HALF = TILE_ROWS // 2
LEVELS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""What the codes 0 to 15 stand for, in units of the block's scale (QLoRA, appendix E)."""
_ZERO = LEVELS.index(0.0)

Tiles = tuple[Tensor, Tensor]
"""Codes (out padded to 32, in / 2) uint8, scales (in / 64, out padded to 32) bf16."""


def in_tiles(
    codes: Tensor,  # (out, in) uint8, out a multiple of 32
    absmax: Tensor,  # (out, in / 64)
) -> Tiles:
    """A whole matrix."""
    tall, wide = codes.shape
    pairs = codes.reshape(tall // TILE_ROWS, TILE_ROWS, wide // 2, 2)
    columns = pairs.transpose(1, 2).reshape(-1, 2, TILE_ROWS)
    tiles = (columns[:, 1] << 4) | columns[:, 0]
    scales = absmax.t().to(torch.bfloat16).contiguous()
    return tiles.reshape(tall, wide // 2).contiguous(), scales


def rows_of(
    matrix: Tiles,
    rows: Tensor,  # (n,) int64
) -> Tiles:
    """Only these outputs, with the very same weights."""
    tiles, absmax = matrix
    within = rows % TILE_ROWS
    # (n, in / 2, 2): both weights of each pair of these rows, in either nibble
    packed = _pairs(tiles)[rows // TILE_ROWS, :, within % _HALF]
    codes = ((packed >> (within // _HALF * 4).to(torch.uint8)[:, None, None]) & 15).flatten(1)
    fill = -len(rows) % TILE_ROWS
    scales = absmax[:, rows].t()
    return in_tiles(F.pad(codes, (0, 0, 0, fill), value=_ZERO), F.pad(scales, (0, 0, 0, fill)))


def columns_of(
    matrix: Tiles,
    columns: Tensor,  # (n,) int64, n a multiple of 64
) -> Tiles:
    """Only these inputs."""
    tiles, absmax = matrix
    packed = _pairs(tiles)[:, columns // 2, :, columns % 2]  # (n, out / 32, 16)
    codes = torch.stack((packed & 15, packed >> 4), dim=2).flatten(1)  # (n, out)
    levels = torch.tensor(LEVELS, device=tiles.device)
    weight = levels[codes.int()] * absmax[columns // BLOCK].float()
    return quantized(weight.t().contiguous())


def quantized(weight: Tensor) -> Tiles:
    """A float matrix (out a multiple of 32, in a multiple of 64) in the nearest codes."""
    tall, wide = weight.shape
    blocks = weight.float().reshape(tall, wide // BLOCK, BLOCK)
    absmax = blocks.abs().amax(dim=2)
    levels = torch.tensor(LEVELS, device=weight.device)
    between = (levels[1:] + levels[:-1]) / 2
    codes = torch.bucketize(blocks / absmax.clamp_min(1e-30)[..., None], between)
    return in_tiles(codes.to(torch.uint8).reshape(tall, wide), absmax)


def _pairs(tiles: Tensor) -> Tensor:  # (out / 32, in / 2, 16, 2)
    """The bytes by tile, pair, row of the half tile, and weight of the pair."""
    return tiles.reshape(len(tiles) // TILE_ROWS, tiles.shape[1], _HALF, 2)
