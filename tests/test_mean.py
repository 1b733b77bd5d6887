"""torch.ops.xgemm.mean against float64 and torch.mean."""

import pytest
import torch
from common import FLOATING, poison, randn
from reductions import LAYOUTS, check_errors, check_op_db, check_promises, dim_cases, row_lengths

op = torch.ops.xgemm


def assert_mean(x: torch.Tensor, dim, keepdim: bool = False, dtype: torch.dtype | None = None) -> None:
    poison(x.device, 1)
    dims = tuple(range(x.dim())) if dim is None else dim
    found = op.mean(x, dim, keepdim, dtype=dtype)
    wanted = torch.mean(x, dims, keepdim, dtype=dtype)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    exact, scale = x.double().mean(dims, keepdim), x.double().abs().mean(dims, keepdim)
    accumulate = torch.finfo(torch.float64 if found.dtype is torch.float64 else torch.float32).eps
    bound = 16 * accumulate * scale + torch.finfo(found.dtype).eps * exact.abs() + torch.finfo(found.dtype).tiny
    assert ((found.double() - exact).abs() <= bound).all(), (x.shape, dim)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dims_and_layouts(device, dtype, layout):
    for shape, dim in dim_cases(device):
        assert_mean(LAYOUTS[layout](randn(*shape, dtype=dtype, device=device)), dim, keepdim=len(shape) % 2 == 1)


@pytest.mark.parametrize("dtype", FLOATING)
def test_row_lengths(device, dtype):
    for n in row_lengths(device):
        assert_mean(randn(2, n, dtype=dtype, device=device), 1)


def test_dtype_argument(device):
    x = 3 * randn(40, 70, device=device)
    for source in (x, x.half(), x.bfloat16(), x.double(), x.int(), x.to(torch.int8), x > 0):
        for dtype in FLOATING:
            found, wanted = op.mean(source, 1, dtype=dtype), torch.mean(source, 1, dtype=dtype)
            torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2 if dtype in FLOATING[1:3] else 1e-5)


def test_special_values(device):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1, inf, 2], [inf, -inf, 0], [nan, 1, 2], [-inf, 1, 1]], device=device)
    torch.testing.assert_close(op.mean(x, 1), torch.mean(x, 1), equal_nan=True)
    assert op.mean(torch.zeros(0, 3, device=device), 0).isnan().all()
    assert op.mean(torch.zeros(0, device=device)).isnan()
    assert op.mean(torch.zeros(3, 0, device=device), 0).shape == (0,)


def test_bad_arguments(device):
    x = randn(3, 4, device=device)
    check_errors(
        [
            (lambda: op.mean(x.int()), "xgemm::mean: expected input of a floating dtype, got int32; pass dtype="),
            (lambda: op.mean(x, dtype=torch.int64), "xgemm::mean: expected dtype of a floating dtype, got int64"),
            (lambda: op.mean(x, -3), "xgemm::mean: expected dim in [-2, 1], got -3"),
        ]
    )


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_promises(dtype):
    check_promises(lambda x, dim: op.mean(x, dim), dtype)


def test_torchs_own_samples(device):
    check_op_db("mean", op.mean, device, [torch.float32, torch.float64])
