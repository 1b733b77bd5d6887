"""fp32 data that scaled fp16 parts cannot represent: bf16x3 and CUDA cores recompute."""

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from common import componentwise_error, on_streams, poison, randn, runs_hopper_kernels, sliced, transposed
from test_matmul import assert_special_as, forced, reference, wide

matmul = torch.ops.xgemm.matmul
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not runs_hopper_kernels(), reason="needs a Hopper GPU")]

SHAPES = [(300, 520, 700), (1030, 700, 1100), (130, 1000, 260), (64, 64, 128), (65, 132, 129), (1, 129, 300)]


def random(*shape: int) -> torch.Tensor:
    return randn(*shape, device="cuda")


def spread(rows: int, columns: int) -> torch.Tensor:
    return wide(rows, columns, decades=12)


def extreme(rows: int, columns: int) -> torch.Tensor:
    """Full range, with some numbers that three bf16 parts cannot represent, either."""
    return torch.where(torch.rand(rows, columns, device="cuda") < 0.02, 1.2345e-37, spread(rows, columns))


def mixed(m: int, n: int, k: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Finite data for which all, some or few elements of the product need more than the fp16 parts."""
    yield "all", spread(m, k), spread(k, n)
    a, b = random(m, k), random(k, n)
    a[m // 2], b[:, n // 3] = spread(1, k)[0], spread(k, 1)[:, 0]
    yield "a row and a column", a, b
    a = random(m, k)
    a[::2] = spread((m + 1) // 2, k)
    yield "every other row", a, random(k, n)
    yield "beyond three bf16 parts", extreme(m, k), spread(k, n)
    yield "low lines, lifted", spread(m, k) * 1e-20, spread(k, n) * 1e-12
    yield "denormal lines", (wide(m, k, decades=2).double() * 1e-41).float(), spread(k, n)
    yield "sums that overflow where lines are lifted", spread(m, k) * 1e-30, wide(k, n, decades=9) * 1e29
    yield "products near the largest number", wide(m, k, decades=30), wide(k, n, decades=6)
    scales = wide(1, k, decades=8).abs()
    yield "scales that cancel", random(m, k) * scales, random(k, n) / scales.mT


def check(name: str, a: torch.Tensor, b: torch.Tensor, precision: str = "highest") -> None:
    exact, scale = reference(a, b)
    bound = (2 * math.sqrt(a.shape[1]) + 8) * 2**-24 if precision == "highest" else 2**-10
    poison("cuda", megabytes=32)
    out = matmul(a, b, precision=precision)
    fits = scale < 1e38
    worst = componentwise_error(out[fits], exact[fits], scale[fits] + 2**-126)
    assert worst <= bound, (name, worst, bound)
    for _ in range(2):
        poison("cuda", megabytes=32)
        assert torch.equal(matmul(a, b, precision=precision).nan_to_num(), out.nan_to_num()), name


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_finite_data_of_any_range(shape: tuple[int, int, int]) -> None:
    with forced("wgmma"):
        for name, a, b in mixed(*shape):
            for left, right in [(a, b), (transposed(a), b), (a, transposed(b)), (sliced(a), sliced(b))]:
                check(name, left, right)
            check(name, a, b, "high")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("data", [random, spread, extreme], ids=["normal", "full range", "extreme"])
def test_nan_and_inf_where_the_product_has_them(data: Callable[..., torch.Tensor], shape: tuple) -> None:
    m, n, k = shape
    a, b = data(m, k), data(k, n)
    a[m // 2, 3], a[m // 3, 5], a[0, 7], b[7, n // 3], b[9, 0] = math.nan, math.inf, -math.inf, math.inf, -math.inf
    b[5, n // 2], b[5, ::7] = 0, -0.5
    exact, (_, scale) = a.double() @ b.double(), reference(a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0))
    finite = exact.isfinite()
    with forced("wgmma"):
        for left, right in [(a, b), (transposed(a), transposed(b))]:
            poison("cuda", megabytes=32)
            out = matmul(left, right)
            assert_special_as(out, exact)
            worst = componentwise_error(out[finite], exact[finite], scale[finite])
            assert worst <= (2 * math.sqrt(k) + 8) * 2**-24


def test_the_largest_number_beside_infinity() -> None:
    """Rounded to bf16, hi would be infinite, too, and the sum NaN."""
    a, b = random(70, 300), 0.1 * random(300, 140)
    a[:, 1], a[:, 2], b[1], b[2] = 3.4e38, math.inf, -0.5, 1.0
    with forced("wgmma"):
        assert torch.equal(matmul(a, b), torch.full((70, 140), math.inf, device="cuda"))


def test_epilogues() -> None:
    x, weight, up = wide(200, 320, decades=6), wide(260, 320, decades=6), wide(260, 320, decades=6)
    bias, residual = random(260), random(200, 260)
    (product, scale), (other, other_scale) = reference(x, weight.mT), reference(x, up.mT)
    with forced("wgmma"):
        out = torch.ops.xgemm.linear(x, weight, bias, activation="gelu", residual=residual)
        exact = torch.nn.functional.gelu(product + bias.double()) + residual.double()
        assert componentwise_error(out, exact, scale + 4) <= 2**-20
        out = torch.ops.xgemm.addmm(residual, x, weight.mT, beta=0.5, alpha=-2)
        assert componentwise_error(out, 0.5 * residual.double() - 2 * product, 2 * scale + 4) <= 2**-20
        out = torch.ops.xgemm.gated_linear(x, weight, up, activation="none")
        assert componentwise_error(out, product * other, scale * other_scale) <= 2**-19
    for rows in (1, 16, 200):
        prepared = torch.ops.xgemm.prepare(weight)
        out = torch.ops.xgemm.linear_prepared(x[:rows], weight, prepared)
        assert componentwise_error(out, product[:rows], scale[:rows]) <= 2**-19


def test_batches_and_graphs() -> None:
    a, b = random(3, 200, 320), random(3, 320, 260)
    a[1], b[2, :, 7] = spread(200, 320), spread(320, 1)[:, 0]
    with forced("wgmma"):
        out = matmul(a, b)
        assert componentwise_error(out, *reference(a, b)) <= 2**-19
        assert componentwise_error(matmul(a, b[2]), *reference(a, b[2])) <= 2**-19
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = matmul(a, b)
        for _ in range(3):
            captured.fill_(math.nan)
            graph.replay()
            assert torch.equal(captured, out)
        a.copy_(random(3, 200, 320))  # ordinary data: the replay must not recompute
        graph.replay()
        assert torch.equal(captured, matmul(a, b))


def test_what_failed_is_forgotten() -> None:
    """An ordinary product follows one that failed, on the same memory, and the counts are of one product."""
    failing, ordinary = (spread(260, 320), spread(320, 260)), (random(260, 320), random(320, 260))
    with forced("wgmma"):
        alone = matmul(*ordinary)
        for _ in range(3):
            check("failing", *failing)
            assert torch.equal(matmul(*ordinary), alone)
            matmul(failing[0], ordinary[1], precision="high")
            assert torch.equal(matmul(*ordinary), alone)
        turns = itertools.cycle((failing, failing, ordinary, ordinary))  # both streams change after two calls
        results = on_streams([lambda: matmul(*next(turns))] * 2, times=10)
        for i, out in enumerate(results):
            assert torch.equal(out, results[0] if i % 4 < 2 else alone)


def test_a_row_has_the_same_bits_in_any_batch(batch_invariant: None) -> None:
    a, b = random(700, 1024), random(1024, 2048)
    a[100:300:3], b[:, ::9] = spread(67, 1024), spread(1024, 1)
    full = matmul(a, b)
    for first, last in [(0, 1), (100, 164), (1, 700), (130, 131), (99, 290)]:
        assert torch.equal(matmul(a[first:last], b), full[first:last])


@pytest.mark.sanitize
def test_small_case_of_all_that_recomputes() -> None:
    a, b = random(70, 200), random(200, 140)
    a[3], b[:, 77] = spread(1, 200)[0], spread(200, 1)[:, 0]
    a[4], a[4, 5] = spread(1, 200)[0], 1.2345e-37
    with forced("wgmma"):
        pairs = (a, b), (a, transposed(b)), (spread(70, 200), spread(200, 140)), (a * 1e-20, spread(200, 140))
        for left, right in pairs:
            check("small", left, right)
