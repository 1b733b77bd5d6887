"""A small case of every kernel and tile of products in every layout that it takes: the sanitizers run it."""

from collections.abc import Callable, Iterable

import pytest
import torch
from common import FLOATING, misaligned, randn, runs_hopper_kernels, sliced, transposed
from matmul_tiles import FP64_TILES, FP64_UNITS, LARGE_TILES, MMA_TILES, SLICED_KERNELS, TWO_PARTS, layouts
from test_matmul import DIRECT_TILES, HALVES, KERNELS, TENSOR_TILES, check, forced

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
HOPPER = [pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")]

pytestmark = pytest.mark.cuda


def each(kernels: Iterable[str], dtypes: Iterable[torch.dtype], *rest: object, marks: Iterable = ()) -> list:
    return [pytest.param(kernel, dtype, *rest, marks=marks) for kernel in kernels for dtype in dtypes]


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def misaligned_columns(x: torch.Tensor) -> torch.Tensor:
    return misaligned(x.mT.contiguous()).mT


def three(x: torch.Tensor) -> torch.Tensor:
    return x.expand(3, *x.shape)


def three_others(x: torch.Tensor) -> torch.Tensor:
    return transposed(randn(3, *x.shape, dtype=x.dtype, device=x.device))


def padded(x: torch.Tensor) -> torch.Tensor:
    return layouts(x)[-1]


PLAIN = [(same, same), (transposed, transposed), (misaligned, sliced)]
BOTH = [(same, same), (same, transposed), (transposed, same), (transposed, transposed)]
BATCH = (three, three_others)
SIZES = [(40, 72, 136), (133, 33, 601)]
DOT = [(1, 37, 300), (3, 20, 1030), (2, 5, 9000), (40, 4, 36), (1, 1, 1), (1, 37, 301), (3, 20, 1031), (2, 5, 9001)]
OF_DOT = [(same, transposed), (misaligned, misaligned_columns), (transposed, transposed), BATCH]
SMALL_CASES = [
    *each(KERNELS, FLOATING, [(19, 37, 300), (20, 36, 40), (3, 40, 300), (40, 1, 36)], PLAIN),
    *each(["dot"], [F32], [*DOT, (40, 4, 33)], OF_DOT),
    # The second size splits K, the third has overlapping tiles; then sums in memory, and in a CTA or cluster.
    *each(TENSOR_TILES, [BF16], [(40, 72, 136), (64, 64, 4160), (136, 264, 72)], BOTH),
    *each(TENSOR_TILES, [BF16], [(20, 25, 16384), (3, 520, 3072)], BOTH[:2]),
    *each(DIRECT_TILES, [F32], [(40, 136, 136), (70, 132, 1100)], PLAIN),  # in the second, several CTAs share a tile
    # No contiguous dim: another kernel.
    *each(MMA_TILES, [BF16], SIZES, [*BOTH, BATCH, (misaligned, padded), (same, sliced)], marks=HOPPER),
    *each(LARGE_TILES, HALVES, SIZES, [*BOTH, BATCH, (misaligned, same)]),
    *each(TWO_PARTS, [F32], SIZES, [*BOTH, BATCH, (same, misaligned)]),
    *each(FP64_TILES, [F64], SIZES, [*BOTH, BATCH, (misaligned, sliced)], marks=FP64_UNITS),
    # The last size splits K between CTAs.
    *each(SLICED_KERNELS, [F32], [(40, 70, 36), (133, 33, 301), (64, 36, 1100)], [*BOTH, PLAIN[2]], marks=HOPPER),
]
Layout = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.sanitize
@pytest.mark.parametrize(("kernel", "dtype", "sizes", "pairs"), SMALL_CASES)
def test_small_case(kernel: str, dtype: torch.dtype, sizes: list[tuple], pairs: list[tuple[Layout, Layout]]) -> None:
    for m, n, k in sizes:
        a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
        for of_a, of_b in pairs:
            with forced(kernel):
                check(of_a(a), of_b(b))
