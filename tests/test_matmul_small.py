"""Kernels for small, narrow and few-row products: sliced, sweep (fp32), outputs."""

import itertools
import math

import pytest
import torch
from common import misaligned, poison, randn, runs_hopper_kernels, sliced, transposed
from matmul_tiles import SLICED, SLICED_KERNELS, check_same_bits, layouts
from test_matmul import DIRECT_TILES, assert_special_as, check, forced, matmul, worse_than_sgemm

EDGES = [(1, 1, 1), (31, 33, 15), (32, 32, 16), (33, 31, 17), (65, 64, 129), (65, 64, 132), (129, 63, 65)]
EDGES += [(129, 63, 68), (300, 36, 2052), (127, 127, 127)]

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")]


@pytest.mark.sanitize
def test_small_case_of_sweep() -> None:
    with forced("sweep"):
        for m, n, k in [(1, 132, 300), (2, 37, 17), (3, 260, 1100), (4, 128, 1), (4, 128, 250)]:
            a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
            check(a, b)
            check(transposed(a), misaligned(b))
            check(transposed(b).mT, a.mT)
            check(a.expand(3, m, k), randn(3, k, n, device="cuda"))


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_few_outputs(dtype: torch.dtype) -> None:
    """One CTA an output, and clusters; any layout, batch and epilogue."""
    with forced("outputs"):
        for m, n, k in [(1, 1, 1), (1, 5, 255), (3, 1, 257), (2, 7, 1024), (1, 1, 9001), (20, 9, 5000)]:
            a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
            check(a, b)
            check(transposed(a), misaligned(b))
            check(sliced(a), transposed(b))
            check(a.expand(3, m, k), randn(3, k, n, dtype=dtype, device="cuda"))
            bias, residual = randn(n, dtype=dtype, device="cuda"), randn(m, n, dtype=dtype, device="cuda")
            ours = torch.ops.xgemm.linear(a, b.mT, bias, activation="gelu", residual=residual)
            wanted = torch.nn.functional.gelu(a.double() @ b.double() + bias.double()) + residual.double()
            tolerance = {8: 1e-10, 4: 1e-5, 2: 0.02}[dtype.itemsize]
            torch.testing.assert_close(ours, wanted.to(dtype), atol=10 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("kernel", SLICED_KERNELS)
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_every_layout(kernel: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
    with forced(kernel):
        out = check(a, b)
    check_same_bits(out, [kernel] * 2, itertools.product(layouts(a), layouts(b)))


def test_both_tiles_have_the_same_bits_where_they_share_k_alike() -> None:
    for m, n, k in [(100, 90, 100), (509, 300, 255)]:
        a, b = randn(m, k, device="cuda"), randn(k, n, device="cuda")
        out = []
        for kernel in SLICED:
            with forced(kernel):
                out.append(matmul(a, b))
        assert torch.equal(*out)


@pytest.mark.parametrize("kernel", [*SLICED_KERNELS, *DIRECT_TILES, "simt_64x64", "wgmma"])
@pytest.mark.parametrize("k", [64, 128, 300, 1100])
def test_sums_that_overflow_are_infinite(kernel: str, k: int) -> None:
    """Either sign, overflow at the first addition or the last; the neighbours stay finite."""
    a, b = randn(150, k, device="cuda").abs() * 1e20, randn(k, 132, device="cuda").abs()
    twice = 2 * torch.finfo(torch.float32).max / (k * 1e20 * 2 / math.pi)  # scales a sum to twice the largest number
    scales = torch.tensor([1e10, 1e20, twice, -1e10, -1e20, -twice], device="cuda").repeat(22)
    b *= scales
    with forced(kernel):
        ours = matmul(a, b)
    assert_special_as(ours, (a.double() @ b.double()).float())


@pytest.mark.parametrize("kernel", SLICED_KERNELS)
@pytest.mark.parametrize("k", [1, 16, 64, 128, 512, 4096])
def test_as_good_as_sgemm_on_any_data(kernel: str, k: int) -> None:
    assert not worse_than_sgemm(kernel, 500, 300, k)


@pytest.mark.parametrize("k", [1, 16, 64, 128, 256, 512, 4096])
def test_sweep_is_as_good_as_sgemm_on_any_data(k: int) -> None:
    # K above 256: each warp's sum rounds its own first product.
    allowed = {"sparse": 1.5, "wide 12": 1.2, "hilbert": 1.5} if k > 256 else {"sparse": 1.02}
    assert not worse_than_sgemm("sweep", 4, 3000, k, allowed=allowed)


@pytest.mark.parametrize("kernel", DIRECT_TILES)
@pytest.mark.parametrize("k", [64, 128, 144, 512, 1024, 4096, 65536])
def test_direct_error_is_no_larger_than_sgemms_on_any_data(kernel: str, k: int) -> None:
    m, n = (512, 500) if k > 8192 else (1024, 1000)
    # Six products of parts drop a tenth of an ulp, which shows where a single product is the sum.
    # The largest of a million errors of sparse data is now and then that of a sum of two products.
    assert not worse_than_sgemm(kernel, m, n, k, allowed={"outlier": 1.1}, allowed_largest={"sparse": 2.0})


@pytest.mark.parametrize("k", [1, 15, 16, 24, 40, 63, 64, 65, 96, 200])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_the_plans_choice_for_short_k_is_as_good_as_sgemm(k: int, layout: str) -> None:
    assert not worse_than_sgemm("", 1024, 1000, k, layout, allowed={"outlier": 1.1} if k >= 64 else {})


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_few_rows_need_no_tf32(precision: str) -> None:
    """They are memory-bound: sweep takes them at any precision."""
    for m in (1, 4):
        a, b = randn(m, 4096, device="cuda"), randn(4096, 2048, device="cuda")
        assert torch.equal(matmul(a, b, precision=precision), check(a, b))


@pytest.mark.parametrize(
    ("n", "k"), [(32, 1), (128, 128), (131, 5000), (1000, 333), (4096, 4096), (4872, 8200), (50257, 65)]
)
def test_sweep_adds_in_one_order(n: int, k: int) -> None:
    """1 to 4 rows or columns, in any layout."""
    a, b = randn(4, k, device="cuda"), randn(k, n, device="cuda")
    apart = torch.full((k, n + 3), math.nan, device="cuda")[:, 3:].copy_(b)
    with forced("sweep"):
        out = check(a, b)
        for x in (a, misaligned(a), sliced(a), transposed(a)):
            for y in (b, misaligned(b), apart):
                for m in (1, 2, 3, 4):
                    poison("cuda", megabytes=8)
                    assert torch.equal(matmul(x[:m], y), out[:m]), m
                    assert torch.equal(matmul(y.mT, x[:m].mT), out[:m].mT), m
        batched = matmul(a.expand(3, 4, k), torch.stack([b, 2 * b, b]))
        assert torch.equal(batched, torch.stack([out, 2 * out, out]))
