"""Rows of odd length or at odd addresses: right, and the same bits wherever they lie and however many they are."""

from collections.abc import Iterator

import pytest
import torch
from common import SANITIZED, foreign, randn

op = torch.ops.xgemm
CUDA = torch.device("cuda")
LENGTHS = [7, 1, 100, 256, 257, 33, 261, 513, 1001]  # of lanes 1 to 32, rows in registers and in shared memory


def places(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """The rows of x elsewhere: each in an allocation of its own, whose end is theirs."""
    rows, n = x.shape

    def full(*shape: int) -> torch.Tensor:
        return torch.full(shape, foreign(x.dtype), dtype=x.dtype, device=x.device)

    for offset in (1, 6):
        yield full(rows * n + offset)[offset:].view(rows, n).copy_(x)
    for pitch in (n + 3, n + -n % 8 + 8):
        yield full(rows, pitch)[:, pitch - n :].copy_(x)
    yield x[:5].clone()


OPS = {
    "sum": (lambda x: op.sum(x, 1), lambda x: x.sum(1)),
    "amin": (lambda x: op.amin(x, 1), lambda x: x.amin(1)),
    "argmax": (lambda x: op.argmax(x, 1), lambda x: x.argmax(1)),
    "logsumexp": (lambda x: op.logsumexp(x, 1), lambda x: x.logsumexp(1)),
    "softmax": (lambda x: op.softmax(x, 1), lambda x: x.softmax(1)),
    "log_softmax": (lambda x: op.log_softmax(x, 1), lambda x: x.log_softmax(1)),
    "cross_entropy": (
        lambda x: op.cross_entropy(x, targets(x), reduction="none", label_smoothing=0.1),
        lambda x: torch.nn.functional.cross_entropy(x, targets(x), reduction="none", label_smoothing=0.1),
    ),
}


def targets(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[0], device=x.device) * 31 % x.shape[1]


@pytest.mark.cuda
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
