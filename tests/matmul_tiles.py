"""Checks that the families of tiles share; the caller forces the tile."""

import itertools
import math
from collections.abc import Iterable

import pytest
import torch
from common import ACTIVATIONS, misaligned, poison, randn, sliced, tile_names, transposed
from test_matmul import assert_special_as, check, forced, matmul

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


def check_batches(dtype: torch.dtype, *more: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    for shape_a, shape_b in [
        *(((5, 40, 70), (5, 70, 90)), ((2, 3, 40, 72), (3, 72, 88)), ((9, 1, 33, 65), (1, 4, 65, 31))),
        *more,
    ]:
        check(randn(*shape_a, dtype=dtype, device="cuda"), randn(*shape_b, dtype=dtype, device="cuda"))


def check_same_bits(
    out: torch.Tensor, tiles: Iterable[str], pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]
) -> None:
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


def check_fused(
    dtype: torch.dtype, m: int, n: int, k: int, rtol: float, atol: float, activations: Iterable[str]
) -> None:
    """Bias, activation, residual and C against the parts in float64; a gated product, by two launches in some tiles."""
    x, w, up = (randn(*shape, dtype=dtype, device="cuda") for shape in ((3, m, k), (n, k), (n, k)))
    bias, residual = randn(n, dtype=dtype, device="cuda"), randn(3, m, n, dtype=dtype, device="cuda")
    c, ops = randn(n, 3 * m, dtype=dtype, device="cuda").mT, torch.ops.xgemm
    product = x.double() @ w.double().mT
    for activation in activations:
        out = ops.linear(x, w, bias, activation=activation, residual=residual)
        wanted = ACTIVATIONS[activation](product + bias.double()) + residual.double()
        torch.testing.assert_close(out.double(), wanted, rtol=rtol, atol=atol)
    out = ops.addmm(c, x.flatten(0, 1), w.mT, beta=0.5, alpha=-2)
    torch.testing.assert_close(out.double(), 0.5 * c.double() - 2 * product.flatten(0, 1), rtol=rtol, atol=atol)
    out = ops.gated_linear(x, w, up, activation="silu")
    wanted = torch.nn.functional.silu(product) * (x.double() @ up.double().mT)
    torch.testing.assert_close(out.double(), wanted, rtol=rtol, atol=30 * atol)


def check_graph(dtype: torch.dtype, k: int = 1000) -> None:
    """Two products in a CUDA graph: the second reads the first's result and may be launched before it ends."""
    a, b = randn(200, k, dtype=dtype, device="cuda"), randn(k, 48, dtype=dtype, device="cuda")
    out = matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = matmul(a, b)
        second = matmul(first.mT, first)
    wanted = matmul(out.mT, out)
    for _ in range(5):
        first.fill_(math.nan), second.fill_(math.nan)
        graph.replay()
        assert torch.equal(first, out)
        assert torch.equal(second, wanted)


def check_nan_and_inf(dtype: torch.dtype, k: int) -> None:
    """In the first and the last k-block, and with rows of an odd length."""
    a, b = randn(150, k, dtype=dtype, device="cuda"), randn(k, 60, dtype=dtype, device="cuda")
    a[3, 5], a[7, 1], a[100, k - 50] = math.inf, math.nan, -math.inf
    b[5, 2], b[0, 59], b[300, 17] = 0.0, -math.inf, math.inf
    assert_special_as(matmul(a, b), a.double() @ b.double())
    a, b = a[:, :-1], b[:-1]
    assert_special_as(matmul(a, b), a.double() @ b.double())
