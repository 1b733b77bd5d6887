"""What every family of kernels and tiles of products is checked for; the sanitizers run the small cases."""

import itertools
import math
from collections.abc import Callable, Iterable

import pytest
import torch
from common import ACTIVATIONS, FLOATING, misaligned, randn, runs_hopper_kernels, sliced, transposed
from matmul_tiles import FP64_TILES, FP64_UNITS, LARGE_TILES, MMA_TILES, SLICED_KERNELS, TWO_PARTS, layouts
from test_matmul import (
    DIRECT_TILES,
    HALVES,
    KERNELS,
    TENSOR_TILES,
    assert_special_as,
    check,
    forced,
    matmul,
    replay_two,
)

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
HOPPER = [pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")]

pytestmark = pytest.mark.cuda


def each(kernels: Iterable[str], dtypes: Iterable[torch.dtype], *rest: object, marks: Iterable = ()) -> list:
    cases = itertools.product(kernels, dtypes)
    return [pytest.param(k, dtype, *rest, marks=marks, id=f"{k}-{str(dtype)[6:]}") for k, dtype in cases]


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


BATCHES = [((5, 40, 70), (5, 70, 90)), ((2, 3, 40, 72), (3, 72, 88)), ((9, 1, 33, 65), (1, 4, 65, 31))]
BATCHES += [((5, 40, 70), (70, 90)), ((2, 3, 2, 3, 2, 3, 4), (2, 1, 2, 1, 2, 4, 5))]  # more dims than a kernel takes
SHARED_K = [  # of graphs, of special values; 0: not tested
    *each(MMA_TILES, [BF16], 1000, 500, marks=HOPPER),
    *each(MMA_TILES, [F16], 0, 500, marks=HOPPER),
    *each(LARGE_TILES, [BF16], 1000, 1000),
    *each(TWO_PARTS, [F32], 1000, 1000),
    *each(FP64_TILES, [F64], 1000, 900, marks=FP64_UNITS),
    *each(SLICED_KERNELS, [F32], 3000, 700, marks=HOPPER),
    *each(DIRECT_TILES, [F32], 3000, 0, marks=HOPPER),
]


def check_nan_and_inf(dtype: torch.dtype, k: int) -> None:
    """In the first and the last k-block, and with rows of an odd length."""
    a, b = randn(150, k, dtype=dtype, device="cuda"), randn(k, 60, dtype=dtype, device="cuda")
    a[3, 5], a[7, 1], a[100, k - 50] = math.inf, math.nan, -math.inf
    b[5, 2], b[0, 59], b[300, 17] = 0.0, -math.inf, math.inf
    for x, y in ((a, b), (a[:, :-1], b[:-1])):
        assert_special_as(matmul(x, y), x.double() @ y.double())


@pytest.mark.parametrize(("kernel", "dtype", "of_graphs", "of_special_values"), SHARED_K)
def test_batches_graphs_and_special_values(kernel, dtype: torch.dtype, of_graphs: int, of_special_values: int) -> None:
    with forced(kernel):
        for shapes in BATCHES:
            check(*(randn(*shape, dtype=dtype, device="cuda") for shape in shapes))
        if of_graphs:
            replay_two(*(randn(*s, dtype=dtype, device="cuda") for s in ((200, of_graphs), (of_graphs, 48))))
        if of_special_values:
            check_nan_and_inf(dtype, of_special_values)


FUSED = [
    *each(LARGE_TILES, [F16], [(70, 64, 136), (70, 67, 136)], 3e-2, 3e-2),
    *each(TWO_PARTS, [F32], [(70, 64, 136), (70, 67, 136)], 1e-4, 1e-4),
    *each(FP64_TILES, [F64], [(70, 1, 600), (70, 64, 600), (70, 67, 600)], 1e-12, 1e-11, marks=FP64_UNITS),
    *each(SLICED_KERNELS, [F32], [(133, 37, 129)], 1e-5, 1.29e-4, marks=HOPPER),
    *each(SLICED_KERNELS, [F32], [(70, 64, 4096)], 1e-5, 4.096e-3, marks=HOPPER),
]


@pytest.mark.parametrize(("kernel", "dtype", "sizes", "rtol", "atol"), FUSED)
def test_what_is_fused(kernel: str, dtype: torch.dtype, sizes: list[tuple], rtol: float, atol: float) -> None:
    """Bias, activation, residual and C against the parts in float64; a gated product, by two launches in some tiles."""
    ops = torch.ops.xgemm
    for m, n, k in sizes:
        x, w, up = (randn(*shape, dtype=dtype, device="cuda") for shape in ((3, m, k), (n, k), (n, k)))
        bias, residual = randn(n, dtype=dtype, device="cuda"), randn(3, m, n, dtype=dtype, device="cuda")
        c, product = randn(n, 3 * m, dtype=dtype, device="cuda").mT, x.double() @ w.double().mT
        with forced(kernel):
            outs = [ops.linear(x, w, bias, activation=name, residual=residual) for name in ACTIVATIONS]
            added = ops.addmm(c, x.flatten(0, 1), w.mT, beta=0.5, alpha=-2)
            gated = ops.gated_linear(x, w, up, activation="silu")
        for out, activation in zip(outs, ACTIVATIONS.values(), strict=True):
            wanted = activation(product + bias.double()) + residual.double()
            torch.testing.assert_close(out.double(), wanted, rtol=rtol, atol=atol)
        wanted = 0.5 * c.double() - 2 * product.flatten(0, 1)
        torch.testing.assert_close(added.double(), wanted, rtol=rtol, atol=atol)
        wanted = torch.nn.functional.silu(product) * (x.double() @ up.double().mT)
        torch.testing.assert_close(gated.double(), wanted, rtol=rtol, atol=30 * atol)
