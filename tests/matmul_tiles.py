"""Checks that the families of tiles share; the caller forces the tile."""

import math
from collections.abc import Iterator

import torch
from common import misaligned, randn, sliced, transposed
from test_matmul import assert_special_as, check, matmul


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    """The same values in memory in five ways; the last has NaN after each row, and rows at odd addresses."""
    padded = torch.full((x.shape[0], x.shape[1] + 3), math.nan, dtype=x.dtype, device=x.device)[:, : x.shape[1]]
    return [x, misaligned(x), sliced(x), transposed(x), padded.copy_(x)]


def small_cases(dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Checks the four layouts and a batch at two sizes, and yields the operands for further checks."""
    for m, n, k in [(40, 72, 136), (133, 33, 601)]:
        a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
        for x in (a, transposed(a)):
            for y in (b, transposed(b)):
                check(x, y)
        check(a.expand(3, m, k), transposed(randn(3, k, n, dtype=dtype, device="cuda")))
        yield a, b


def check_batches(dtype: torch.dtype, *more: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    for shape_a, shape_b in [
        *(((5, 40, 70), (5, 70, 90)), ((2, 3, 40, 72), (3, 72, 88)), ((9, 1, 33, 65), (1, 4, 65, 31))),
        *more,
    ]:
        check(randn(*shape_a, dtype=dtype, device="cuda"), randn(*shape_b, dtype=dtype, device="cuda"))


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
