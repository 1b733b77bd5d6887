"""torch.ops.xgemm.argmax and argmin: the first position of the extremum, in logical order; NaN beats everything."""

import pytest
import torch
from common import FLOATING, poison, randn
from reductions import (
    CUDA,
    INTEGERS,
    LAYOUTS,
    check_errors,
    check_op_db,
    check_promises,
    dim_cases,
    row_lengths,
    small_cases,
    values,
)

op = torch.ops.xgemm
NAMES = ["argmax", "argmin"]


def first_index(name: str, x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
    """The first extremum, by torch on the CPU (torch's CUDA op does not promise the first one)."""
    return getattr(torch, name)(x.cpu(), dim, keepdim)


def assert_index(name: str, x: torch.Tensor, dim: int | None, keepdim: bool = False) -> None:
    poison(x.device, 1)
    found, wanted = getattr(op, name)(x, dim, keepdim), first_index(name, x, dim, keepdim)
    assert found.dtype is torch.int64 and found.shape == wanted.shape, (x.shape, dim)
    assert torch.equal(found.cpu(), wanted), (x.shape, x.stride(), dim)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dims_and_layouts(device, name, dtype, layout):
    for shape, dim in dim_cases(device):
        if isinstance(dim, tuple):
            continue
        x = values(shape, dtype, device)
        assert_index(name, LAYOUTS[layout](x), dim, keepdim=len(shape) % 2 == 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS])
def test_small_cases(device, dtype):
    for x, dim in small_cases(dtype, device):
        for name in NAMES:
            assert_index(name, x, dim)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int32])
def test_row_lengths_and_ties(device, name, dtype):
    for n in row_lengths(device):
        many_ties = torch.randint(-3, 3, (2, n), device=device).to(dtype)
        assert_index(name, many_ties, 1)
        assert_index(name, torch.full((2, n), -7, device=device).to(dtype), 1)
        assert_index(name, many_ties.mT.contiguous(), 0)


@pytest.mark.parametrize("name", NAMES)
def test_special_values(device, name):
    inf, nan = float("inf"), float("nan")
    for dtype in FLOATING:
        rows = [
            [1, inf, 2, inf],
            [inf, -inf, 0, -inf],
            [nan, 1, 2, nan],
            [1, inf, nan, nan],
            [-inf] * 4,
            [inf] * 4,
            [0.0, -0.0, 0.0, -0.0],
        ]
        x = torch.tensor(rows, dtype=dtype, device=device)
        for wide in (x, x.repeat(1, 500), x.repeat(1, 40000)):
            assert_index(name, wide, 1)
            assert_index(name, wide.mT.contiguous(), 0)
    late = torch.full((70001,), 1.0, device=device)
    late[69999] = nan
    assert getattr(op, name)(late).item() == 69999
    assert getattr(op, name)(torch.zeros(0, 3, device=device), 1).shape == (0,)


def test_all_dims_count_in_logical_order(device):
    x = randn(30, 40, 50, device=device)
    for view in (x.permute(2, 0, 1), x.mT, x[:, ::3], x.permute(1, 2, 0)[5:, :, ::2]):
        assert_index("argmax", view, None)
        assert_index("argmin", view, None, keepdim=True)


def test_bad_arguments(device):
    x = randn(3, 4, device=device)
    check_errors(
        [
            (lambda: op.argmax(x > 0), "xgemm::argmax: expected input of dtype float32"),
            (lambda: op.argmax(x[:0]), "xgemm::argmax: expected the reduced dims to be non-empty"),
            (lambda: op.argmin(x, 2), "xgemm::argmin: expected dim in [-2, 1], got 2"),
        ]
    )


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_promises(name):
    check_promises(lambda x, dim: getattr(op, name)(x, dim), torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_samples(device, name):
    check_op_db(name, getattr(op, name), device, [torch.float32, torch.float64, torch.int32])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_blocks_of_more_than_2_16_positions(dtype):
    x = torch.zeros((1 << 25) + 5, 3, dtype=dtype, device=CUDA)
    x[70000, 0], x[-3, 1], x[66000, 2] = 1, 1, -1
    assert op.argmax(x, 0).tolist() == [70000, (1 << 25) + 2, 0]
    assert op.argmin(x, 0).tolist() == [0, 0, 66000]


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.zeros(2**31 + 3, dtype=torch.float16, device=CUDA)
    x[-2:] = 7
    assert op.argmax(x).item() == 2**31 + 1
    x[2**31 - 1] = -3
    assert op.argmin(x).item() == 2**31 - 1
