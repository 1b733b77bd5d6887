"""Checks that the families of tiles share; the caller forces the tile."""

import itertools
import math
from collections.abc import Iterable

import pytest
import torch
from common import misaligned, poison, sliced, tile_names, transposed
from test_matmul import forced, matmul

from torch_ext._architecture import architecture

MMA_TILES = [name for name in tile_names("mma") if "tf32" not in name]
LARGE_TILES, TWO_PARTS = ([n for n in tile_names("large") if ("_x2_" in n) == two] for two in (False, True))
FP64_TILES = tile_names("fp64")
SLICED = ["sliced_32x32", "sliced_32x64"]
SLICED_KERNELS = [*SLICED, *(f"{name}_apart" for name in SLICED)]  # one tile per warp; beyond K = 512 only forced


WITH_FP64_UNITS = torch.cuda.is_available() and architecture(torch.device("cuda")) in ((8, 0), (9, 0), (10, 0))
FP64_UNITS = pytest.mark.skipif(not WITH_FP64_UNITS, reason="needs fp64 tensor cores")


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    """The same values in memory in five ways; the last has NaN after each row, and rows at odd addresses."""
    padded = torch.full((x.shape[0], x.shape[1] + 3), math.nan, dtype=x.dtype, device=x.device)[:, : x.shape[1]]
    return [x, misaligned(x), sliced(x), transposed(x), padded.copy_(x)]


def check_same_bits(out: torch.Tensor, tiles: Iterable[str], pairs: Iterable[tuple]) -> None:
    """Each tile gives the bits of `out` for each pair: the same operands in other layouts."""
    for tile, (x, y) in itertools.product(tiles, pairs):
        poison("cuda", megabytes=2)
        with forced(tile):
            assert torch.equal(matmul(x, y), out), (tile, x.stride(), y.stride())


def check_rows_alone(a: torch.Tensor, b: torch.Tensor, full: torch.Tensor, counts: Iterable[int]) -> None:
    """The first rows of A, or others, have the bits of the whole product, also in a batch."""
    n, k = full.shape[1], a.shape[1]
    for m in counts:
        assert torch.equal(matmul(a[:m], b), full[:m]), (n, k, m)
        assert torch.equal(matmul(a[1 : m + 1], transposed(b)), full[1 : m + 1]), (n, k, m)
        assert torch.equal(matmul(a[m : m + 1], b)[0], full[m]), (n, k, m)
    assert torch.equal(matmul(a[:300].view(20, 15, k), b.expand(20, k, n)).view(300, n), full[:300])
