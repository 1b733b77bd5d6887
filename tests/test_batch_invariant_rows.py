"""Batch-invariant mode of reductions and softmax: a row's bits depend on its data, its length, dtype and GPU alone."""

from functools import partial

import pytest
import torch
from common import FLOATING
from reductions import CUDA, check_batch_invariance, rows_in_other_places, same_bits

import torch_ext

pytestmark = pytest.mark.cuda
ops = torch.ops.xgemm
OPS = {
    "sum": lambda x, dim: ops.sum(x, [dim]),
    "mean": lambda x, dim: ops.mean(x, [dim]),
    "sum_float": lambda x, dim: ops.sum(x, [dim], dtype=torch.float32),
    "sum_double": lambda x, dim: ops.sum(x, [dim], dtype=torch.float64),
    "amax": lambda x, dim: ops.amax(x, [dim]),
    "argmax": ops.argmax,
    "logsumexp": lambda x, dim: ops.logsumexp(x, [dim]),
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "softmax_float": partial(ops.softmax, dtype=torch.float32),
    "scaled_masked_softmax": lambda x, dim: ops.scaled_masked_softmax(x, None, 0.37, dim),
    "topk_softmax": lambda x, dim: ops.topk_softmax(x, min(8, x.shape[dim]), dim, renormalize=False)[0],
}


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", OPS)
def test_rows_in_other_places(name: str, dtype: torch.dtype) -> None:
    check_batch_invariance(OPS[name], dtype)


@pytest.mark.parametrize("dtype", FLOATING)
def test_several_reduced_dims(dtype: torch.dtype) -> None:
    """In logical order, whatever their order in memory."""
    x = torch.randn(6, 5, 40, 33, device=CUDA).to(dtype)
    for op in (ops.sum, ops.logsumexp):
        with torch_ext.batch_invariant():
            expected = op(x.transpose(1, 2).reshape(6 * 40, 5 * 33), [1]).view(6, 40)
            for place in (x, x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), x.expand(6, 5, 40, 33)[:, :, ::1]):
                assert same_bits(op(place, [1, 3]), expected)
            for first in (0, 5):
                assert same_bits(op(x[first : first + 1], [1, 3]), expected[first : first + 1])
            assert same_bits(op(x[:, :, 7:8], [1, 3]), expected[:, 7:8].contiguous())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", FLOATING)
def test_cross_entropy(dtype: torch.dtype, smoothing: float) -> None:
    for n in (3, 100, 1000, 5000, 50257):
        x = torch.randn(max(12, 20000 // n // 12 * 12), n, device=CUDA).to(dtype)
        target = torch.randint(n, (len(x),), device=CUDA)
        loss = partial(ops.cross_entropy, reduction="none", label_smoothing=smoothing)
        with torch_ext.batch_invariant():
            expected = loss(x, target)
            for place, moved, dim, which in rows_in_other_places(x):
                if dim == 0:
                    moved, dim = moved.unsqueeze(0), 1
                moved = moved.movedim(dim, 1)  # the classes
                y = loss(moved, target[which].view(moved.shape[:1] + moved.shape[2:]))
                assert same_bits(y.reshape(-1), expected[which].contiguous()), (place, n)


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("dtype", FLOATING)
def test_masks(dtype: torch.dtype, mask_dtype: torch.dtype) -> None:
    for n in (7, 64, 1000, 20001):
        x = torch.randn(6, n, device=CUDA).to(dtype)
        mask = torch.rand(6, n, device=CUDA) > 0.3 if mask_dtype == torch.bool else torch.randn(6, n, device=CUDA)
        with torch_ext.batch_invariant():
            expected = ops.scaled_masked_softmax(x, mask, 0.5, 1)
            assert same_bits(ops.scaled_masked_softmax(x[2:3], mask[2:3], 0.5, 1), expected[2:3])
            assert same_bits(ops.scaled_masked_softmax(x, mask.t().contiguous().t(), 0.5, 1), expected)
            columns = ops.scaled_masked_softmax(x.t().contiguous(), mask.t(), 0.5, 0)
            assert same_bits(columns.t().contiguous(), expected)
            shared = ops.scaled_masked_softmax(x, mask[0], 0.5, 1)
            assert same_bits(ops.scaled_masked_softmax(x[2:3], mask[0], 0.5, 1), shared[2:3])


def test_the_mode_is_off_by_default() -> None:
    """Few rows are divided in more splits than many, which shows in a sum's last bits."""
    x = torch.randn(4000, 4096, device=CUDA)
    assert not same_bits(ops.sum(x, [1])[:100], torch.cat([ops.sum(row, [1]) for row in x[:100].split(1)]))
