"""torch.ops.xgemm.addmm: beta * input + alpha * (mat1 @ mat2), where beta = 0 does not read input."""

import math

import pytest
import torch
from common import FLOATING, LAYOUTS, assert_product, check_replays, poison, randn, sanitized, transposed

addmm = torch.ops.xgemm.addmm


def check(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float = 1.0, alpha: float = 1.0) -> torch.Tensor:
    poison(a.device, megabytes=1)
    out = addmm(c, a, b, beta=beta, alpha=alpha)
    exact = alpha * (a.double() @ b.double()) + (beta * c.double() if beta != 0 else 0)
    scale = abs(alpha) * (a.double().abs() @ b.double().abs()) + (abs(beta) * c.double().abs() if beta != 0 else 0)
    assert (out.shape, out.dtype) == (exact.shape, a.dtype) and out.is_contiguous()
    assert_product(out, lambda: torch.addmm(c, a, b, beta=beta, alpha=alpha), exact, scale, a.shape[1])
    return out


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(
    ("beta", "alpha"),
    sanitized([(1, 1), (0.5, 2), (-1.25, 0.3), (0, 1), (0, -2), (1, 0), (0, 0), (1e-3, 1e3)], (0.5, 2)),
)
def test_scalars(device: torch.device, dtype: torch.dtype, beta: float, alpha: float) -> None:
    for m, n, k in [(5, 7, 9), (1, 33, 40), (64, 1, 12), (34, 36, 300), (19, 37, 300), (3, 40, 300)]:
        a, b = randn(m, k, dtype=dtype, device=device), randn(k, n, dtype=dtype, device=device)
        for shape in ((m, n), (n,)):
            check(randn(*shape, dtype=dtype, device=device), a, b, beta, alpha)


@pytest.mark.parametrize("shape", [(), (1,), (36,), (1, 36), (33, 1), (33, 36), (1, 1)], ids=str)
def test_input_broadcasts(device: torch.device, shape: tuple[int, ...]) -> None:
    a, b = randn(33, 20, device=device), randn(20, 36, device=device)
    check(randn(*shape, device=device), a, b, beta=0.75)
    check(randn(*shape, device=device), a, b)


@pytest.mark.parametrize("dtype", FLOATING)
def test_a_row_for_all_has_the_bits_of_a_whole_input(device: torch.device, dtype: torch.dtype) -> None:
    for m, n, k in [(1, 36, 20), (33, 37, 20), (300, 264, 136), (513, 1024, 512)]:
        a, b = randn(m, k, dtype=dtype, device=device), randn(k, n, dtype=dtype, device=device)
        row = randn(n, dtype=dtype, device=device)
        assert torch.equal(check(row, a, b, alpha=1.5), addmm(row.expand(m, n).contiguous(), a, b, alpha=1.5))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_input_of_any_strides(device: torch.device, layout: str) -> None:
    a, b = randn(33, 20, device=device), randn(20, 36, device=device)
    check(LAYOUTS[layout](randn(33, 36, device=device)), transposed(a), b)
    check(randn(36, device=device).flip(0), a, transposed(b))
    check(randn(1, 36, device=device).expand(33, 36), a, b)
    check(a[:, :1].expand(33, 36), a, b)  # overlaps with mat1


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("k", [0, 20, 600])
def test_beta_zero_does_not_read_input(device: torch.device, dtype: torch.dtype, k: int) -> None:
    for m, n in [(33, 36), (1, 36), (33, 2)]:
        a, b = randn(m, k, dtype=dtype, device=device), randn(k, n, dtype=dtype, device=device)
        for value in (math.nan, math.inf):
            out = check(torch.full((n,), value, dtype=dtype, device=device), a, b, beta=0)
            assert out.isfinite().all()


@pytest.mark.parametrize("shapes", [((3, 0), (0, 4)), ((0, 3), (3, 4)), ((3, 4), (4, 0)), ((0, 0), (0, 0))], ids=str)
def test_empty(device: torch.device, shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    a, b = (randn(*shape, device=device) for shape in shapes)
    c = randn(shapes[0][0], shapes[1][1], device=device)
    out = addmm(c, a, b, beta=0.5, alpha=3)
    torch.testing.assert_close(out, 0.5 * c, rtol=0, atol=0)


@pytest.mark.cuda
def test_cuda_graph() -> None:
    c, a, b = randn(96, device="cuda"), randn(64, 4096, device="cuda"), randn(4096, 96, device="cuda")
    check_replays(lambda: addmm(c, a, b, beta=0.5, alpha=2), c)
