"""torch.ops.xgemm.logsumexp against float64 and torch.logsumexp."""

import pytest
import torch
from common import FLOATING, poison, randn
from reductions import (
    CUDA,
    LAYOUTS,
    check_errors,
    check_op_db,
    check_promises,
    dim_cases,
    dims_of,
    row_lengths,
    special_rows,
)

op = torch.ops.xgemm


def assert_logsumexp(x: torch.Tensor, dim, keepdim: bool = False) -> None:
    """Allows a few roundings of the result, the accumulator and the sum of exponentials (an absolute error)."""
    poison(x.device, 1)
    found = op.logsumexp(x, dim, keepdim)
    exact = torch.logsumexp(x.double(), dims_of(x, dim), keepdim)
    assert found.shape == exact.shape and found.dtype == x.dtype
    if found.numel() == 0:
        return
    accumulate = torch.finfo(torch.float64 if x.dtype is torch.float64 else torch.float32).eps
    half_roundings = 1 if x.is_cuda else 4  # ATen's CPU path rounds intermediate results to the input's dtype
    bound = 4 * accumulate * (1 + exact.abs()) + half_roundings * torch.finfo(x.dtype).eps * (
        exact.abs() + half_roundings - 1
    )
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), (x.shape, dim, (error / bound).max())


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dims_and_layouts(device, dtype, layout):
    for shape, dim in dim_cases(device):
        assert_logsumexp(LAYOUTS[layout](randn(*shape, dtype=dtype, device=device)), dim, keepdim=len(shape) % 2 == 0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths_and_magnitudes(device, dtype):
    for n in row_lengths(device):
        x = randn(3, n, device=device)
        for scale, shift in ((1, 0), (30, 0), (1, 1000), (0.01, -300), (1, 1e4), (1, -3e4)):
            assert_logsumexp((x * scale + shift).to(dtype), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("magnitude", [6e4, 7e4, 1e6, 1e8, 3e9, 1e10, 1e20, 8.4e37, 8.6e37, 2e38])
def test_large_magnitudes(device, dtype, magnitude):
    """A large maximum times log2(e) rounds by far more than 1, so it must not become part of an exponent."""
    for n in (5, 700, 20000):
        x = randn(3, n, device=device, dtype=torch.float64) * 30
        for sign in (1, -1):
            mixed = torch.where(torch.rand(3, n, device=device) < 0.5, 0.999, 1.0) * magnitude
            assert_logsumexp((x + sign * magnitude).to(dtype), 1)
            assert_logsumexp((x + sign * mixed).to(dtype), 1)
            assert_logsumexp((x + sign * mixed).to(dtype).mT.contiguous(), 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATING)
def test_special_values(device, dtype):
    inf, big = float("inf"), 6e4 if dtype is torch.float16 else 1e38
    rows = [*special_rows(dtype), [big, big, inf, 0], [inf, -inf, big, 200]]
    if dtype is not torch.float16:  # near the largest value, where a product with log2(e) overflows
        rows += [[3.3e38, 3.2e38, 0, -3.3e38], [-3.3e38, -3.3e38, -3e38, -inf], [8.4e37, 8.6e37, 1, -3.3e38]]
    x = torch.tensor(rows, dtype=dtype, device=device)
    repeats = (1, 40, 260, 3000, 30000) if device.type == "cuda" else (1, 40)
    for wide in (*(x.repeat(1, n) for n in repeats), x.repeat_interleave(61, 1)):
        for view, dim in ((wide, 1), (wide.mT.contiguous(), 0)):
            wanted = torch.logsumexp(view.double(), dim).to(dtype)
            torch.testing.assert_close(op.logsumexp(view, dim), wanted, equal_nan=True)
    assert op.logsumexp(torch.zeros(0, 3, device=device), 0).tolist() == [-inf] * 3
    assert op.logsumexp(torch.zeros(3, 0, device=device), 0).shape == (0,)


def test_integers_become_float32(device):
    x = torch.arange(12, device=device).view(3, 4)
    for source in (x, x.to(torch.uint8), x > 5):
        torch.testing.assert_close(op.logsumexp(source, [1]), torch.logsumexp(source, 1))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the same on every device and for fake tensors
    try:
        assert op.logsumexp(x, [1]).dtype == op.logsumexp(x.to("meta"), [1]).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


def test_bad_arguments(device):
    x = randn(3, 4, device=device)
    check_errors(
        [
            (lambda: op.logsumexp(x, 5), "xgemm::logsumexp: expected dim in [-2, 1], got 5"),
            (lambda: op.logsumexp(x.to(torch.complex64), 0), "xgemm::logsumexp: expected input of dtype float32"),
        ]
    )


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", FLOATING)
def test_promises(dtype):
    check_promises(lambda x, dim: op.logsumexp(x, dim), dtype)


def test_torchs_own_samples(device):
    check_op_db("logsumexp", op.logsumexp, device, [torch.float32, torch.float64])


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.zeros(2**31 + 3, dtype=torch.float16, device=CUDA)
    torch.testing.assert_close(op.logsumexp(x).float().item(), 21.4876, rtol=1e-3, atol=0)
