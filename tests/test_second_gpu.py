"""Every operator and family of kernels on a GPU that is not current: the same bits, and the current one stays."""

from collections.abc import Callable

import pytest
import torch
from calls import CALLS, Call, name
from common import randn, tuple_of
from reductions import same_bits

op = torch.ops.xgemm
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")]


def check(call: Callable[..., object], *args: object) -> None:
    """Compares a call and its capture on cuda:1 with the same call on cuda:0."""
    there = [a.to("cuda:1") if isinstance(a, torch.Tensor) else a for a in args]
    wanted, called = tuple_of(call(*args)), tuple_of(call(*there))
    assert torch.cuda.current_device() == 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(1), torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # graph()'s default: cuda:0
        captured = tuple_of(call(*there))
    graph.replay()
    torch.cuda.synchronize(1)
    for w, c, g in zip(wanted, called, captured, strict=True):
        assert c.device == g.device == torch.device("cuda:1")
        assert same_bits(w, c.to("cuda:0")) and same_bits(w, g.to("cuda:0"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_every_op(call: Call, dtype: torch.dtype) -> None:
    check(lambda *args: call.raw(*args, **call.kwargs), *call.args(torch.device("cuda:0"), dtype))


# Large, ragged, long K, few rows, one row, narrow, unaligned: kernels set their shared memory on each device.
SHAPES = [(1024, 1024, 1024), (1000, 1000, 1000), (64, 64, 65536), (16, 4096, 4096), (1, 4096, 4096), (65536, 32, 64)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (255, 511, 257)], ids=str)
def test_matmul(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, n, k = shape
    a, b = randn(m, k, dtype=dtype, device="cuda"), randn(k, n, dtype=dtype, device="cuda")
    for precision in ("highest", "high", "medium") if dtype is torch.float32 else ("highest",):
        check(lambda a, b, precision=precision: op.matmul(a, b, precision=precision), a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(512, 256), (4096, 4096), (64, 70001), (8, 300000), (1, 1 << 20)], ids=str)
def test_rows_and_columns(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = randn(*shape, dtype=dtype, device="cuda")
    for dim in (0, 1):
        check(lambda x, dim=dim: op.softmax(x, dim), x)
        check(lambda x, dim=dim: op.log_softmax(x, dim), x)
        for reduce in (op.logsumexp, op.sum, op.mean, op.amax):
            check(lambda x, dim=dim, reduce=reduce: reduce(x, [dim]), x)
        check(lambda x, dim=dim: op.argmax(x, dim), x)
    check(op.sum, x)
    check(lambda x: op.topk_softmax(x, 8), x)
    check(lambda x, target: op.cross_entropy(x, target), x, torch.randint(0, shape[1], shape[:1], device="cuda"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("queries", "keys"), [(300, 300), (1, 9000)])
def test_attention(queries: int, keys: int, dtype: torch.dtype) -> None:
    q, k, v = (randn(2, 4, length, 64, dtype=dtype, device="cuda") for length in (queries, keys, keys))
    check(op.attention, q, k, v)


def test_operands_on_two_gpus() -> None:
    a, b = randn(65, 300, device="cuda:1"), randn(300, 70, device="cuda:0")
    with pytest.raises(RuntimeError, match=r"^xgemm::matmul: expected a and b on one device, got cuda:1 and cuda:0$"):
        op.matmul(a, b)
