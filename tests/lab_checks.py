"""What the tests of the lab share."""

from collections.abc import Callable

import pytest
import torch
from common import componentwise_error, randn, runs_hopper_kernels
from torch import Tensor

from torch_ext.lab import ladders

CUDA = pytest.mark.cuda


def message(call: Callable[[], object]) -> str:
    """The first line of the error that a call raises."""
    with pytest.raises(RuntimeError) as error:
        call()
    return str(error.value).splitlines()[0]


def heads(count: int, length: int, size: int, batch: int = 1, device: str = "cpu") -> list[Tensor]:
    """Query, key and value of attention."""
    return [randn(batch, count, length, size, dtype=torch.bfloat16, device=device) for _ in range(3)]


def assert_sgemm(c: Tensor, a: Tensor, b: Tensor, alpha: float = 1, beta: float = 0, old: Tensor | None = None) -> None:
    a64, b64 = a.double(), b.double()
    reference, scale = alpha * (a64 @ b64), abs(alpha) * (a64.abs() @ b64.abs())
    if beta:
        reference, scale = reference + beta * old.double(), scale + abs(beta) * old.double().abs()
    assert c.shape == reference.shape
    assert componentwise_error(c, reference, scale) <= ladders.sgemm_bound(a.shape[1])


def needs_hopper() -> None:
    if not runs_hopper_kernels():
        pytest.skip("needs a GPU of compute capability 9.0")
