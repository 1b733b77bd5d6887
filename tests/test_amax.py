"""torch.ops.xgemm.amax and amin: exactly torch's."""

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
    dims_of,
    row_lengths,
    small_cases,
    values,
)

op = torch.ops.xgemm
NAMES = ["amax", "amin"]


def assert_extremum(name: str, x: torch.Tensor, dim, keepdim: bool = False) -> None:
    poison(x.device, 1)
    found = getattr(op, name)(x, dim, keepdim)
    wanted = getattr(torch, name)(x, dims_of(x, dim), keepdim)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dims_and_layouts(device, name, dtype, layout):
    for shape, dim in dim_cases(device):
        x = values(shape, dtype, device)
        assert_extremum(name, LAYOUTS[layout](x), dim, keepdim=len(shape) % 2 == 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", [*FLOATING, *INTEGERS, torch.bool])
def test_small_cases(device, dtype):
    for x, dim in small_cases(dtype, device):
        for name in NAMES:
            assert_extremum(name, x, dim)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_row_lengths(device, name, dtype):
    for n in row_lengths(device):
        assert_extremum(name, values((2, n), dtype, device), 1)


@pytest.mark.parametrize("name", NAMES)
def test_special_values(device, name):
    inf, nan = float("inf"), float("nan")
    for dtype in FLOATING:
        rows = [
            [1, inf, 2],
            [inf, -inf, 0],
            [nan, 1, 2],
            [1, inf, nan],
            [-inf, -inf, -inf],
            [inf, inf, inf],
            [-1e-7, 0, 1e-7],
        ]
        x = torch.tensor(rows, dtype=dtype, device=device)
        for wide in (x, x.repeat(1, 700), x.mT.contiguous().mT.repeat(1, 30)):
            assert_extremum(name, wide, 1)
            assert_extremum(name, wide.mT, 0)
            assert_extremum(name, wide, 0)
    for dtype in INTEGERS:
        info = torch.iinfo(dtype)
        for value in (info.min, info.max):
            assert getattr(op, name)(torch.full((3, 37), value, dtype=dtype, device=device)).item() == value
    empty = torch.zeros(0, 3, device=device)
    assert getattr(op, name)(empty, 1).shape == (0,)


def test_bad_arguments(device):
    x = randn(3, 4, device=device)
    check_errors(
        [
            (
                lambda: op.amax(x[:0], 0),
                "xgemm::amax: expected the reduced dims to be non-empty, got dim 0 of size 0 in shape [0, 4]",
            ),
            (
                lambda: op.amin(x[:0]),
                "xgemm::amin: expected dim to be given for an input of no elements, got shape [0, 4]",
            ),
            (lambda: op.amax(x, 7), "xgemm::amax: expected dim in [-2, 1], got 7"),
            (lambda: op.amin(x, [1, 1]), "xgemm::amin: expected every dim at most once, got 1 twice"),
        ]
    )


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_promises(name):
    check_promises(lambda x, dim: getattr(op, name)(x, dim), torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_samples(device, name):
    check_op_db(name, getattr(op, name), device, [torch.float32, torch.float64, torch.int32, torch.bool])


@pytest.mark.cuda
def test_more_than_2_31_elements():
    x = torch.zeros(2**31 + 3, dtype=torch.float16, device=CUDA)
    x[-1], x[5] = 7, -3
    assert op.amax(x).item() == 7 and op.amin(x).item() == -3
