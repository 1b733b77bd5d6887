"""Rows of odd length or at odd addresses: correct, with the same bits at any address and for any number of rows."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from common import SANITIZED, foreign, randn
from reductions import same_bits

op = torch.ops.xgemm
CUDA = torch.device("cuda")
pytestmark = pytest.mark.cuda
LENGTHS = [7, 1, 100, 256, 257, 33, 261, 513, 1001]  # 1 to 32 lanes, rows in registers and in shared memory


def places(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Copies of x's rows at other addresses and strides; each ends its own allocation."""
    rows, n = x.shape

    def full(*shape: int) -> torch.Tensor:
        return torch.full(shape, foreign(x.dtype), dtype=x.dtype, device=x.device)

    for offset in (1, 6):
        yield full(rows * n + offset)[offset:].view(rows, n).copy_(x)
    for pitch in (n + 3, n + -n % 8 + 8):
        yield full(rows, pitch)[:, pitch - n :].copy_(x)
    yield x[:5].clone()


def along_rows(name: str) -> tuple[Callable, Callable]:
    return lambda x: getattr(op, name)(x, 1), lambda x: getattr(torch, name)(x, 1)


def losses(**options) -> tuple[Callable, Callable]:
    functions = op.cross_entropy, torch.nn.functional.cross_entropy
    ours, theirs = (partial(f, reduction="none", **options) for f in functions)
    return lambda x: ours(x, targets(x)), lambda x: theirs(x, targets(x))


OPS = {name: along_rows(name) for name in ("sum", "amin", "argmax", "logsumexp", "softmax", "log_softmax")}
OPS |= {"cross_entropy": losses(label_smoothing=0.1), "cross_entropy without smoothing": losses()}


def targets(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[0], device=x.device) * 31 % x.shape[1]


@pytest.mark.sanitize
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_at_any_address(name, dtype):
    ours, torchs = OPS[name]
    for n in LENGTHS[::4] if SANITIZED else LENGTHS:
        x = randn(37, n, dtype=dtype, device=CUDA)
        found, wanted = ours(x), torchs(x.cpu().double())
        tolerance = {"atol": 2e-5, "rtol": 2e-5} if dtype == torch.float32 else {}
        torch.testing.assert_close(found.cpu(), wanted.to(found.dtype), **tolerance)
        for place in places(x):
            moved = ours(place)
            assert torch.equal(moved.cpu(), found[: len(place)].cpu()), (n, place.stride(), place.storage_offset())


@pytest.mark.sanitize
@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_few_rows_have_the_bits_of_many(name, dtype):
    """In up to two rows per multiprocessor each step of a strip has lanes of its own."""
    many = 2 * torch.cuda.get_device_properties(CUDA).multi_processor_count + 1
    elements = 16 // dtype.itemsize
    lengths = [127, 128, 513, 700, 1029, 1605, 2799, 4096, 5840, 14605, 16384, 29999]
    for n in [127, 1605, 4097] if SANITIZED else lengths:
        x = randn(many, n, dtype=dtype, device=CUDA)
        x[1, n - 1], x[2, n // 2], x[3, 0], x[4] = float("nan"), float("inf"), -float("inf"), -0.0
        reduce, wanted = getattr(op, name), getattr(torch, name)(x.cpu().double(), 1)
        found = reduce(x, [1])
        tolerance = {"atol": 1e-3, "rtol": 2e-5} if dtype == torch.float32 else {"atol": 0.1, "rtol": 1e-2}
        torch.testing.assert_close(found.cpu().double(), wanted, equal_nan=True, **tolerance)
        poisoned = torch.full((9 * n + 2 * elements,), foreign(dtype), dtype=dtype, device=CUDA)
        for offset in (0, 1, elements - 1):
            for rows in (1, 2, 9):
                moved = poisoned[offset : offset + rows * n].view(rows, n).copy_(x[:rows])
                assert same_bits(reduce(moved, [1]), found[:rows]), (n, offset, rows)


@pytest.mark.sanitize
@pytest.mark.parametrize("name", ["logsumexp", "cross_entropy without smoothing"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rows_through_shared_memory(name, dtype):
    """Many rows have the bits of few; infinities and NaN stay in their rows."""
    ours, torchs = OPS[name]
    multiprocessors = torch.cuda.get_device_properties(CUDA).multi_processor_count
    for n in [1000] if SANITIZED else [520, 1000, 1024, 2048]:
        rows = 4096 * multiprocessors * 8 // n + 37
        x = 3 * randn(rows, n, dtype=dtype, device=CUDA)
        x[5, :], x[6, 3], x[7, n - 1] = -float("inf"), float("inf"), float("nan")
        found = ours(x)
        wanted = torchs(x.double())
        regular = wanted.isfinite()
        assert regular.sum() >= rows - 3
        torch.testing.assert_close(found[regular], wanted[regular].to(dtype))
        torch.testing.assert_close(found[~regular], wanted[~regular].to(dtype), equal_nan=True)
        wide = torch.full((rows, n + 8), foreign(dtype), dtype=dtype, device=CUDA)
        few = torch.cat([ours(x[i : i + 1]) if name == "logsumexp" else ours(x[: i + 1])[i:] for i in (0, 3, 4, 7, 50)])
        for many in (found, ours(wide[:, :n].copy_(x)), ours(wide[:, 8:].copy_(x))):
            assert torch.equal(many.nan_to_num(7), found.nan_to_num(7)), n
            assert torch.equal(many[[0, 3, 4, 7, 50]].nan_to_num(7), few.nan_to_num(7)), n


@pytest.mark.usefixtures("batch_invariant")
@pytest.mark.parametrize("name", OPS)
def test_rows_that_a_cluster_reduces(name):
    ours, torchs = OPS[name]
    for n in (40000, 65536, 65539):
        x = randn(1, n, device=CUDA)
        found = ours(x)
        torch.testing.assert_close(found, torchs(x.double()).to(found.dtype), atol=2e-5, rtol=2e-5)
        many = ours(x.expand(700, n).contiguous())
        if "cross" not in name:  # each row has another target
            assert torch.equal(many, found.expand_as(many)), n
        assert torch.equal(many[:1], found), n
